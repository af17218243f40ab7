package rest_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

// notText are values that PostgreSQL takes for no text, as they stand in an address.
var notText = []string{"%00", "a%00b", "%ff", "%c3%28", "%ed%a0%80"}

// TestWhatIsNoTextIsRefused, in every parameter of every operation of the document,
// whether or not it comes to the database: never is it our fault.
func TestWhatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	home := bob.Publish("reviewer")
	alice := i.Agent(t, "alice")
	alice.Ask(t, servertest.V1, home)
	requester := i.Stranger(t, alice.Token(t, i.URL+"/a2a/reviewer"))
	r := bob.Do(http.MethodGet, "/openapi.json", nil)
	var doc document
	require.NoError(t, json.Unmarshal([]byte(r.Body), &doc))
	names := strings.NewReplacer("{id}", unknownID, "{name}", home.Queue, "{persona}", "reviewer")
	tried := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			who := bob
			if twin(path) {
				who = requester
			}
			for _, p := range op.Parameters {
				for _, text := range append(notText, strings.Repeat("a", 5000)) {
					at := names.Replace(path)
					switch p.In {
					case "path":
						at = names.Replace(strings.Replace(path, "{"+p.Name+"}", text, 1))
					case "query":
						at += "?" + url.QueryEscape(p.Name) + "=" + text
					default:
						continue
					}
					tried++
					answer := who.Do(strings.ToUpper(method), at, map[string]any{})
					require.GreaterOrEqual(t, answer.Status, 400, "%s %s", method, at)
					require.Less(t, answer.Status, 500, "%s %s: %s", method, at, answer.Body)
				}
			}
		}
	}
	require.Greater(t, tried, 300)
	bad, err := url.PathUnescape("a%ff")
	require.NoError(t, err)
	refused(t, 422, "invalid_argument", bob.Do(http.MethodPost, "/v1/todos", map[string]any{"queue": home.Queue, "title": "a"}, "Idempotency-Key", bad))
	refused(t, 422, "invalid_argument", bob.Do(http.MethodGet, "/v1/directory?q=%00", nil))
	refused(t, 404, "not_found", bob.Do(http.MethodPatch, "/v1/queues/%00", map[string]any{"paused": true}))
	refused(t, 401, "unauthenticated", i.Stranger(t, "").Do(http.MethodGet, "/v1/directory?q=%00", nil))
}
