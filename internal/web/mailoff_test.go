package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/human"
	"switchboard/internal/web"
)

// TestMailOff_ActsOnOneClickOfAMailProgramOnly: it has no session, no page to read a
// form from, and may send either kind of form (RFC 8058 section 3.2).
func TestMailOff_ActsOnOneClickOfAMailProgramOnly(t *testing.T) {
	t.Parallel()
	var off []string
	b := setupWith(t, func(d *web.Deps, _ *human.Config) { d.Notices = notices{&off} })
	post := func(of, kind, body string, headers ...string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.server.URL+"/notifications/off?of="+of, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", kind)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		answer, err := b.client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	const form = "application/x-www-form-urlencoded"
	require.Equal(t, http.StatusNoContent, post("one", form, "List-Unsubscribe=One-Click"))
	require.Equal(t, http.StatusNoContent, post("two", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n"))
	require.Equal(t, []string{"one", "two"}, off)

	require.Equal(t, http.StatusNoContent, post("three", form, ""))
	require.Equal(t, http.StatusNoContent, post("three", form, "List-Unsubscribe=Perhaps"))
	require.Equal(t, http.StatusNoContent, post("three&List-Unsubscribe=One-Click", form, ""), "the click is in the body")
	require.Equal(t, http.StatusForbidden, post("three", form, "List-Unsubscribe=One-Click", "Origin", "https://evil.example"))
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		a := b.do(method, "/notifications/off?of=three&List-Unsubscribe=One-Click", nil)
		require.Equal(t, http.StatusSeeOther, a.status)
		require.Equal(t, "/settings#h-notify", a.to())
	}
	require.Len(t, off, 2)

	limited := false
	for range 200 {
		limited = limited || post("many", form, url.Values{"List-Unsubscribe": {"One-Click"}}.Encode()) == http.StatusTooManyRequests
	}
	require.True(t, limited)
	require.LessOrEqual(t, len(off), 130)
}
