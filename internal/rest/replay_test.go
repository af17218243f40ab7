package rest_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

// TestIdempotencyKeysReplayWithoutSecrets: the same key and body answers as the
// first time, but for the secret; another body is 409; other people's keys are
// theirs.
func TestIdempotencyKeysReplayWithoutSecrets(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob, alice := i.SignIn(t, "bob"), i.SignIn(t, "alice")
	home := bob.Publish("reviewer")
	const header = "Idempotency-Key"
	for _, c := range []struct {
		path        string
		body, other map[string]any
		secret      string
	}{
		{"/v1/agents", map[string]any{"name": "a"}, map[string]any{"name": "b"}, ""},
		{"/v1/queues", map[string]any{"name": "q-1"}, map[string]any{"name": "q-2"}, ""},
		{"/v1/personas", map[string]any{"agent_id": home.AgentID, "slug": "p-1", "name": "p"}, map[string]any{"agent_id": home.AgentID, "slug": "p-2", "name": "p"}, ""},
		{"/v1/endpoints", map[string]any{"kind": "home", "agent_id": home.AgentID, "persona_id": home.PersonaID, "queues": []string{home.Queue}},
			map[string]any{"kind": "home", "agent_id": home.AgentID, "persona_id": home.PersonaID, "queues": []string{home.Queue}, "expires_in_days": 1}, "credential"},
		{"/v1/api-tokens", map[string]any{"name": "t"}, map[string]any{"name": "u"}, "token"},
	} {
		first := bob.Do(http.MethodPost, c.path, c.body, header, "k")
		require.Equal(t, 201, first.Status, first.Body)
		var a, b map[string]any
		first.Into(t, &a)
		again := bob.Do(http.MethodPost, c.path, c.body, header, "k")
		require.Equal(t, 201, again.Status, again.Body)
		again.Into(t, &b)
		if c.secret != "" {
			require.NotEmpty(t, a[c.secret], c.path)
			require.NotContains(t, again.Body, a[c.secret].(string), c.path)
			delete(a, c.secret)
		}
		require.Equal(t, a, b, c.path)
		require.Equal(t, headOf(first), headOf(again), c.path)
		refused(t, 409, "conflict", bob.Do(http.MethodPost, c.path, c.other, header, "k"), c.path)
		require.Equal(t, 201, bob.Do(http.MethodPost, c.path, c.other, header, "k2").Status, c.path)
	}
	require.Equal(t, 201, alice.Do(http.MethodPost, "/v1/agents", map[string]any{"name": "c"}, header, "k").Status, "alice's own key")

	// A request that failed may be mended under its key.
	refused(t, 422, "invalid_argument", bob.Do(http.MethodPost, "/v1/queues", map[string]any{"name": "Bad"}, header, "mend"))
	require.Equal(t, 201, bob.Do(http.MethodPost, "/v1/queues", map[string]any{"name": "good"}, header, "mend").Status)

	// Todos have the queue's own deduplication behind the same header.
	todo := map[string]any{"queue": home.Queue, "title": "a"}
	var one, two struct {
		ID           string
		Deduplicated bool
	}
	bob.Do(http.MethodPost, "/v1/todos", todo, header, "k").Into(t, &one)
	bob.Do(http.MethodPost, "/v1/todos", todo, header, "k").Into(t, &two)
	require.Equal(t, one.ID, two.ID)
	require.True(t, two.Deduplicated)
	refused(t, 409, "conflict", bob.Do(http.MethodPost, "/v1/todos", map[string]any{"queue": home.Queue, "title": "b"}, header, "k"))
}

// headOf is what an answer's header says of the answer itself.
func headOf(r servertest.Reply) http.Header {
	h := r.Header.Clone()
	for _, own := range []string{"Date", "X-Request-Id", "Content-Length", "Idempotency-Replayed"} {
		h.Del(own)
	}
	return h
}

// TestOneKeyAtOnceCreatesOnce.
func TestOneKeyAtOnceCreatesOnce(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	var all sync.WaitGroup
	status := make([]int, 8)
	for n := range status {
		all.Go(func() {
			status[n] = bob.Do(http.MethodPost, "/v1/agents", map[string]any{"name": "one"}, "Idempotency-Key", "k").Status
		})
	}
	all.Wait()
	require.Contains(t, status, 201)
	for _, s := range status {
		require.Contains(t, []int{201, 409}, s)
	}
	var l list
	bob.Get("/v1/agents", &l)
	require.Len(t, l.Items, 1)
}

// TestIfMatchGuardsEveryChange of something that has a version.
func TestIfMatchGuardsEveryChange(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	home := bob.Publish("reviewer")
	var grant struct{ ID string }
	task := i.Agent(t, "alice").Ask(t, servertest.V1, home)
	bob.Post("/v1/friend-requests/"+task.ID+"/approve", map[string]any{}, &grant)
	var endpoints list
	bob.Get("/v1/endpoints", &endpoints)
	endpoint := ""
	for _, e := range endpoints.Items {
		if e["kind"] == "home" {
			endpoint = e["id"].(string)
		}
	}
	scope := map[string]any{"scope": map[string]any{"queues": []string{home.Queue}, "verbs": []string{"todo_status"}}}
	for _, c := range []struct {
		read, method, path string
		body               any
	}{
		{"/v1/me", "PATCH", "/v1/me", map[string]any{"name": "Bob"}},
		{"/v1/agents/" + home.AgentID, "PATCH", "/v1/agents/" + home.AgentID, map[string]any{"name": "x"}},
		{"/v1/personas/" + home.PersonaID, "PATCH", "/v1/personas/" + home.PersonaID, map[string]any{"name": "x"}},
		{"/v1/grants/" + grant.ID, "POST", "/v1/grants/" + grant.ID + "/narrow", scope},
		{"/v1/grants/" + grant.ID, "POST", "/v1/grants/" + grant.ID + "/pause", nil},
		{"/v1/grants/" + grant.ID, "POST", "/v1/grants/" + grant.ID + "/resume", nil},
		{"/v1/grants/" + grant.ID, "POST", "/v1/grants/" + grant.ID + "/revoke", map[string]any{}},
		{"/v1/endpoints/" + endpoint, "POST", "/v1/endpoints/" + endpoint + "/narrow", map[string]any{"verbs": []string{"whoami", "claim_next"}}},
		{"/v1/endpoints/" + endpoint, "POST", "/v1/endpoints/" + endpoint + "/rotate", nil},
		{"/v1/endpoints/" + endpoint, "POST", "/v1/endpoints/" + endpoint + "/revoke", nil},
	} {
		tag := bob.Do(http.MethodGet, c.read, nil).Header.Get("ETag")
		require.NotEmpty(t, tag, c.read)
		for _, stale := range []string{`"0"`, `"999"`, "W/" + tag, "nonsense"} {
			refused(t, 412, "precondition_failed", bob.Do(c.method, c.path, c.body, "If-Match", stale), c.path, stale)
		}
		require.Equal(t, tag, bob.Do(http.MethodGet, c.read, nil).Header.Get("ETag"), "nothing has changed")
		r := bob.Do(c.method, c.path, c.body, "If-Match", tag)
		require.Equal(t, 200, r.Status, "%s: %s", c.path, r.Body)
		require.Equal(t, r.Header.Get("ETag"), bob.Do(http.MethodGet, c.read, nil).Header.Get("ETag"), c.path)
		require.NotEqual(t, tag, r.Header.Get("ETag"), c.path)
	}
	queue := bob.Do(http.MethodPatch, "/v1/queues/"+home.Queue, map[string]any{"paused": true})
	refused(t, 412, "precondition_failed", bob.Do(http.MethodPatch, "/v1/queues/"+home.Queue, map[string]any{"paused": false}, "If-Match", `"1"`))
	require.Equal(t, 200, bob.Do(http.MethodPatch, "/v1/queues/"+home.Queue, map[string]any{"paused": false}, "If-Match", queue.Header.Get("ETag")).Status)
	require.Equal(t, 200, bob.Do(http.MethodPatch, "/v1/queues/"+home.Queue, map[string]any{"paused": false}, "If-Match", "*").Status)
}
