package web_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/human"
	"switchboard/internal/web"
)

// TestLogin_SeveralIssuersAreChosenFrom: with more than one provider, the page asks
// which; what was on its way comes along, and each person is the one of their issuer.
func TestLogin_SeveralIssuersAreChosenFrom(t *testing.T) {
	t.Parallel()
	other, err := devidp.Start(t.Context(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	b := setupWith(t, func(_ *web.Deps, c *human.Config) {
		entry := c.Issuers[0]
		entry.Issuer, entry.Name = other.Issuer(), `<b>Elsewhere</b> \u202E & Sons`
		c.Issuers = append(c.Issuers, entry)
	})
	landing := b.get("/").body
	has(t, landing, "Sign in with Development")
	has(t, landing, "Sign in with &lt;b&gt;Elsewhere")

	a := b.get("/login?return_to=" + url.QueryEscape("/queues?x=1&y=2") + "&login_hint=bob&prompt=none")
	require.Equal(t, http.StatusOK, a.status)
	has(t, a.body, "Choose where your identity lives")
	has(t, a.body, `name="return_to" value="/queues?x=1&amp;y=2"`)
	has(t, a.body, `name="login_hint" value="bob"`)
	hasNot(t, a.body, "\u202E")
	hasNot(t, a.body, "<b>Elsewhere")

	arrive := func(issuer string) (path, subject string) {
		b.forget()
		next := "/login?" + url.Values{"issuer": {issuer}, "prompt": {"none"}, "login_hint": {"bob"}, "return_to": {"/queues"}}.Encode()
		for range 10 {
			a := b.get(next)
			if a.status < 300 || a.status >= 400 {
				break
			}
			next = a.to()
		}
		has(t, b.get("/settings").body, "Signed in by")
		var from string
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT h.issuer FROM human h JOIN session s ON s.human = h.id ORDER BY s.created_at DESC LIMIT 1`).Scan(&from))
		return next, from
	}
	path, from := arrive(other.Issuer())
	require.Equal(t, "/queues", path)
	require.Equal(t, other.Issuer(), from)
	_, from = arrive(b.issuer)
	require.Equal(t, b.issuer, from)
	var people int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM human`).Scan(&people))
	require.Equal(t, 2, people, "one name at two issuers is two people")

	require.NotEqual(t, http.StatusFound, b.get("/login?issuer=https%3A%2F%2Fevil.example").status, "an issuer that nobody listed leads nowhere")
	// Who has to confirm is sent to their own issuer, and not asked again.
	_, err = b.pool.Exec(t.Context(), `UPDATE session SET auth_time = clock_timestamp() - interval '13 hours'`)
	require.NoError(t, err)
	a = b.post("/settings/erase", url.Values{"phrase": {"erase my account"}})
	has(t, a.body, "issuer="+url.QueryEscape(b.issuer))
}
