package oauth

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRedirectsMatchExactlyButForALoopbackPort(t *testing.T) {
	t.Parallel()
	registered := []string{
		"http://127.0.0.1/callback", "http://[::1]:7/cb?x=1", "https://client.example/cb", "cursor://anysphere/cb", "http://intranet.example/cb", "javascript:alert(1)",
	}
	for sent, want := range map[string]string{
		"http://127.0.0.1:53999/callback": registered[0],
		"http://127.0.0.1/callback":       registered[0],
		"http://[::1]:9999/cb?x=1":        registered[1],
		"https://client.example/cb":       registered[2],
		"cursor://anysphere/cb":           registered[3],

		"http://127.0.0.1/callback/":                          "",
		"http://127.0.0.2:53999/callback":                     "",
		"http://localhost:53999/callback":                     "",
		"http://[::1]:9999/cb":                                "",
		"https://client.example:443/cb":                       "",
		"https://client.example/cb?x":                         "",
		"https://CLIENT.example/cb":                           "",
		"http://intranet.example/cb":                          "",
		"javascript:alert(1)":                                 "",
		"cursor://anysphere/cb2":                              "",
		"http://127.0.0.1:53999\\@x/call":                     "",
		"http://127.0.0.1:53999/call back":                    "",
		"http://u@127.0.0.1:53999/callback":                   "",
		"":                                                    "",
		"https://client.example/" + strings.Repeat("x", 2000): "",
	} {
		got, ok := matchRedirect(registered, sent)
		require.Equal(t, want, got, sent)
		require.Equal(t, want != "", ok, sent)
	}
}

func TestAnswersKeepTheRedirectsQuery(t *testing.T) {
	t.Parallel()
	v := url.Values{"code": {"a b"}}
	require.Equal(t, "https://x.example/cb?code=a+b", withAnswer("https://x.example/cb", v))
	require.Equal(t, "https://x.example/cb?code=a+b", withAnswer("https://x.example/cb?", v))
	require.Equal(t, "https://x.example/cb?y=1&code=a+b", withAnswer("https://x.example/cb?y=1", v))
}

func TestHowLongADocumentIsKept(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": keepDefault, "public, max-age=60": time.Minute, "max-age=999999999": keepLongest, "max-age=-1": keepDefault, "no-store": 0, "max-age=60, no-cache": 0, "MAX-AGE=5": 5 * time.Second,
	} {
		require.Equal(t, want, keepFor(header), header)
	}
}

// FuzzClient: whatever a document or redirect holds, reading it ends, and what
// is accepted is of the client that was asked for.
func FuzzClient(f *testing.F) {
	const id = "https://client.example/app.json"
	f.Add([]byte(`{"client_id":"https://client.example/app.json","client_name":"x","redirect_uris":["http://127.0.0.1/cb"]}`), "http://127.0.0.1:1/cb")
	f.Add([]byte(`{"client_id":"https://client.example/app.json","redirect_uris":["https://x.example/?a"]}`), "https://x.example/?a")
	f.Add([]byte(`[]`), "cursor://x")
	f.Fuzz(func(t *testing.T, body []byte, sent string) {
		_ = checkClientID(sent, true)
		c, err := parseClient(body, id)
		if err != nil {
			return
		}
		if c.id != id {
			t.Fatal("another client")
		}
		match, ok := matchRedirect(c.redirects, sent)
		if !ok {
			return
		}
		u, err := url.Parse(sent)
		if err != nil || u.User != nil || u.Fragment != "" || match == "" {
			t.Fatalf("matched %q", sent)
		}
		if u.Scheme == "http" && !loopback(u) {
			t.Fatalf("matched %q", sent)
		}
	})
}
