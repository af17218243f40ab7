package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/server/servertest"
)

const unknownID = "0197a3c2-7d7e-7cc3-98c4-dc0c0c07398f"

// operations are all of the document, with a path that leads nowhere.
func operations(t *testing.T, i *servertest.Instance) (out [][2]string) {
	t.Helper()
	var doc struct{ Paths map[string]map[string]any }
	i.Stranger(t, "").Get("/openapi.json", &doc)
	for path, methods := range doc.Paths {
		for method := range methods {
			at := strings.NewReplacer("{id}", unknownID, "{name}", "nothing", "{persona}", "reviewer").Replace(path)
			out = append(out, [2]string{strings.ToUpper(method), at})
		}
	}
	require.Greater(t, len(out), 45)
	return out
}

func twin(path string) bool { return strings.HasPrefix(path, "/v1/a2a/") }

// TestNobodyGetsInWithoutASessionOrAnAPIToken: every operation is 401 without,
// also with any bearer of another kind, and a bearer is not rescued by a cookie.
func TestNobodyGetsInWithoutASessionOrAnAPIToken(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	home := bob.Publish("reviewer")
	alice := i.Agent(t, "alice")
	alice.Ask(t, servertest.V1, home)
	bearers := map[string]string{
		"none": "", "a home endpoint's": home.Credential, "a requester's": alice.Token(t, i.URL+"/a2a/reviewer"),
		"an unknown access token": "sbt_" + strings.Repeat("x", 43), "an unknown API token": "sba_" + strings.Repeat("x", 43), "nonsense": "nonsense",
	}
	for _, op := range operations(t, i) {
		if op[1] == "/v1/program-sign-in" {
			continue // a code is its only authorisation
		}
		for what, bearer := range bearers {
			if twin(op[1]) && (what == "a requester's" || strings.HasSuffix(op[1], "/friend-requests") && op[0] == http.MethodPost) {
				continue // its own
			}
			for _, path := range []string{op[1], strings.Replace(op[1], unknownID, "x", 1)} {
				r := i.Stranger(t, bearer).Do(op[0], path, nil)
				refused(t, 401, "unauthenticated", r, op, what)
				require.Contains(t, r.Header.Get("WWW-Authenticate"), "Bearer")
				require.Equal(t, "no-store", r.Header.Get("Cache-Control"))
			}
		}
	}
	refused(t, 401, "unauthenticated", bob.Do(http.MethodGet, "/v1/me", nil, "Authorization", "Bearer "+home.Credential))
	refused(t, 401, "unauthenticated", bob.Do(http.MethodGet, "/v1/me", nil, "Authorization", "Basic Ym9iOmJvYg=="))
}

// TestOtherSitesDoNothingWithACookie.
func TestOtherSitesDoNothingWithACookie(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	queue := map[string]any{"name": "a"}
	for _, h := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", i.URL + ".evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", i.URL, "Sec-Fetch-Site", "cross-site"},
	} {
		refused(t, 403, "forbidden", bob.Do(http.MethodPost, "/v1/queues", queue, h...), h)
		refused(t, 403, "forbidden", bob.Do(http.MethodGet, "/v1/me", nil, h...), h)
	}
	require.Equal(t, 200, bob.Do(http.MethodGet, "/v1/me", nil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate").Status, "a link that was followed")
	require.Equal(t, 201, bob.Do(http.MethodPost, "/v1/queues", queue, "Origin", i.URL, "Sec-Fetch-Site", "same-origin").Status)
	var token struct{ Token string }
	bob.Post("/v1/api-tokens", map[string]any{"name": "reader"}, &token)
	require.Equal(t, 200, i.Stranger(t, token.Token).Do(http.MethodGet, "/v1/me", nil, "Origin", "https://evil.example").Status, "a bearer is no cookie")
}

// TestAnAPITokenReadsNarrowsPausesRevokesAndDeclines, and nothing else.
func TestAnAPITokenReadsNarrowsPausesRevokesAndDeclines(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	home := bob.Publish("reviewer")
	var made struct{ ID, Token string }
	bob.Post("/v1/api-tokens", map[string]any{"name": "reader"}, &made)
	require.True(t, strings.HasPrefix(made.Token, "sba_"))
	require.NotContains(t, bob.Do(http.MethodGet, "/v1/api-tokens", nil).Body, made.Token, "shown once")
	program := i.Stranger(t, made.Token)

	may := func(op [2]string) bool {
		method, path := op[0], op[1]
		last := path[strings.LastIndex(path, "/")+1:]
		switch {
		case method == http.MethodGet, last == "narrow", last == "pause", last == "revoke", last == "decline":
			return true
		}
		return false
	}
	for _, op := range operations(t, i) {
		if twin(op[1]) || op[1] == "/v1/program-sign-in" {
			continue
		}
		r := program.Do(op[0], op[1], map[string]any{})
		if may(op) {
			require.NotContains(t, []int{401, 403}, r.Status, "%v: %s", op, r.Body)
		} else {
			refused(t, 403, "forbidden", r, op)
		}
	}

	// What it may, it can.
	alice := i.Agent(t, "alice")
	task := alice.Ask(t, servertest.V1, home)
	refused(t, 403, "forbidden", program.Do(http.MethodPost, "/v1/friend-requests/"+task.ID+"/approve", map[string]any{}))
	program.Post("/v1/friend-requests/"+task.ID+"/decline", map[string]any{"may_ask_again": true}, nil)
	task = alice.Ask(t, servertest.V1, home)
	var grant struct{ ID, State string }
	bob.Post("/v1/friend-requests/"+task.ID+"/approve", map[string]any{}, &grant)
	at := "/v1/grants/" + grant.ID
	program.Post(at+"/narrow", map[string]any{"scope": map[string]any{"queues": []string{home.Queue}, "verbs": []string{"todo_status"}}}, nil)
	program.Post(at+"/pause", nil, &grant)
	require.Equal(t, "paused", grant.State)
	refused(t, 403, "forbidden", program.Do(http.MethodPost, at+"/resume", nil))
	program.Post(at+"/revoke", map[string]any{"open_todos": "finish"}, &grant)
	require.Equal(t, "revoked", grant.State)

	require.Equal(t, 204, bob.Do(http.MethodDelete, "/v1/api-tokens/"+made.ID, nil).Status)
	refused(t, 401, "unauthenticated", program.Do(http.MethodGet, "/v1/me", nil))
}

// TestAStaleSignInDecidesNothing: after 12 hours approving, vending, resuming,
// unblocking and making tokens need a new sign-in; the rest goes on.
func TestAStaleSignInDecidesNothing(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	home := bob.Publish("reviewer")
	task := i.Agent(t, "alice").Ask(t, servertest.V1, home)
	_, err := pgtest.Open(t, i.Database).Exec(t.Context(), `UPDATE session SET auth_time = auth_time - interval '12 hours 1 minute'`)
	require.NoError(t, err)
	const id = "/0197a3c2-7d7e-7cc3-98c4-dc0c0c07398f"
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/v1/friend-requests/" + task.ID + "/approve", map[string]any{}},
		{"POST", "/v1/endpoints", map[string]any{"kind": "home", "agent_id": home.AgentID, "persona_id": home.PersonaID, "queues": []string{home.Queue}}},
		{"POST", "/v1/endpoints" + id + "/rotate", nil}, {"POST", "/v1/endpoints" + id + "/resume", nil}, {"POST", "/v1/grants" + id + "/resume", nil},
		{"DELETE", "/v1/blocks" + id, nil}, {"POST", "/v1/api-tokens", map[string]any{"name": "a"}},
	} {
		refused(t, 403, "forbidden", bob.Do(c.method, c.path, c.body), c.path)
	}
	var me struct{ Session struct{ Fresh bool } }
	bob.Get("/v1/me", &me)
	require.False(t, me.Session.Fresh)
	bob.Post("/v1/queues", map[string]any{"name": "more"}, nil)
	bob.Post("/v1/friend-requests/"+task.ID+"/decline", map[string]any{}, nil)
}

// TestPeopleSeeTheirOwn: what is another's answers as what does not exist.
func TestPeopleSeeTheirOwn(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob, alice, carol := i.SignIn(t, "bob"), i.SignIn(t, "alice"), i.SignIn(t, "carol")
	home := bob.Publish("reviewer")
	task := i.Agent(t, "alice").Ask(t, servertest.V1, home)
	var grant, own struct{ ID string }
	bob.Post("/v1/friend-requests/"+task.ID+"/approve", map[string]any{}, &grant)
	bob.Post("/v1/todos", map[string]any{"queue": home.Queue, "title": "Private"}, &own)
	for _, path := range []string{"/v1/agents/" + home.AgentID, "/v1/personas/" + home.PersonaID, "/v1/todos/" + own.ID} {
		require.Equal(t, 200, bob.Do(http.MethodGet, path, nil).Status, path)
		refused(t, 404, "not_found", alice.Do(http.MethodGet, path, nil), path)
		if !strings.HasPrefix(path, "/v1/todos/") { // those are canceled
			refused(t, 404, "not_found", alice.Do(http.MethodDelete, path, nil), path)
		}
	}
	for _, path := range []string{"/v1/friend-requests/" + task.ID, "/v1/grants/" + grant.ID} {
		require.Equal(t, 200, bob.Do(http.MethodGet, path, nil).Status, path)
		require.Equal(t, 200, alice.Do(http.MethodGet, path, nil).Status, "her own")
		refused(t, 404, "not_found", carol.Do(http.MethodGet, path, nil), path)
	}
	for _, verb := range []string{"pause", "resume", "revoke"} {
		refused(t, 404, "not_found", alice.Do(http.MethodPost, "/v1/grants/"+grant.ID+"/"+verb, map[string]any{}), verb)
	}
	refused(t, 404, "not_found", bob.Do(http.MethodPost, "/v1/grants/"+grant.ID+"/leave", nil))
	// The requester learns nothing of the inside: neither todo nor how often it asked.
	out := alice.Do(http.MethodGet, "/v1/friend-requests/"+task.ID, nil)
	for _, inside := range []string{"todo_id", "earlier_requests", "first_seen"} {
		require.NotContains(t, out.Body, inside)
		require.Contains(t, bob.Do(http.MethodGet, "/v1/friend-requests/"+task.ID, nil).Body, inside)
	}
	alice.Post("/v1/grants/"+grant.ID+"/leave", nil, nil)
}
