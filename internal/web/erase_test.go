package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErase_NeedsTheWordsAndAFreshWordOfTheProvider(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	has(t, b.get("/settings").body, `href="/settings/erase"`)
	page := b.get("/settings/erase").body
	has(t, page, "<b>2 grants</b> that you gave are revoked first")
	has(t, page, "What friends left open is canceled.")
	has(t, page, "Erase it all")
	humans := func() (n int) {
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM human`).Scan(&n))
		return n
	}
	a := b.post("/settings/erase", url.Values{"phrase": {"erase <my> account"}})
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	has(t, a.body, `id="phrase-wrong"`)
	has(t, a.body, `value="erase &lt;my&gt; account"`)

	_, err := b.pool.Exec(t.Context(), `UPDATE session SET auth_time = clock_timestamp() - interval '11 minutes'`)
	require.NoError(t, err)
	page = b.get("/settings/erase").body
	has(t, page, "your provider is asked once more")
	hasNot(t, page, `name="phrase"`)
	a = b.post("/settings/erase", url.Values{"phrase": {"Erase  my account"}})
	require.Equal(t, http.StatusOK, a.status)
	has(t, a.body, "Confirm it is you")
	require.Equal(t, 1, humans(), "fresh for approvals is not fresh enough to erase")
	_, to, _ := strings.Cut(a.header.Get("Refresh"), "url=")
	q, err := url.Parse(to)
	require.NoError(t, err)
	require.Equal(t, "login", q.Query().Get("prompt"))
	back := b.signIn("bob", q.Query().Get("return_to"))
	has(t, back.body, "Nothing is erased yet")
	hasNot(t, back.body, `value="Erase`, "the words are typed last")
	hasNot(t, b.get("/settings/erase?phrase=erase+my+account").body, `value="erase`, "no link can type them")

	require.Equal(t, "/?done=erased", b.post("/settings/erase", url.Values{"phrase": {"erase my account"}}).to())
	require.Zero(t, humans())
	has(t, b.get("/?done=erased").body, "Your account is erased")
	require.Contains(t, b.get("/settings").to(), "/login")
}
