package rest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

// TestErrorsAreProblemsThatRepeatNoValue: whatever is wrong with a body, the
// answer names the member and never what stood there.
func TestErrorsAreProblemsThatRepeatNoValue(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	const secret = "s3cr3t"
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		code         string
	}{
		{"POST", "/v1/queues", map[string]any{"name": "No " + secret}, 422, "invalid_argument"},
		{"POST", "/v1/queues", map[string]any{"name": 7}, 422, "invalid_argument"},
		{"POST", "/v1/queues", map[string]any{"name": "a", "more": secret}, 422, "invalid_argument"},
		{"POST", "/v1/queues", map[string]any{"description": secret}, 422, "invalid_argument"},
		{"POST", "/v1/queues", `{"name": "` + secret, 422, "invalid_argument"},
		{"POST", "/v1/queues", ``, 422, "invalid_argument"},
		{"POST", "/v1/queues", []string{secret}, 422, "invalid_argument"},
		{"POST", "/v1/queues", map[string]any{"name": "a", "description": strings.Repeat(secret, 1<<18)}, 413, "payload_too_large"},
		{"POST", "/v1/personas", map[string]any{"agent_id": "urn:" + secret + ":0197a3c2-7d7e-7cc3-98c4-dc0c0c07398f", "slug": "a", "name": "a"}, 422, "invalid_argument"},
		{"POST", "/v1/personas", map[string]any{"agent_id": uuid.NewString(), "slug": "a", "name": "a", "who_may_ask": secret}, 422, "invalid_argument"},
		{"POST", "/v1/personas", map[string]any{"agent_id": uuid.NewString(), "slug": "a", "name": "a", "visibility": secret}, 422, "invalid_argument"},
		{"POST", "/v1/endpoints", map[string]any{"kind": secret, "agent_id": uuid.NewString(), "persona_id": uuid.NewString(), "queues": []string{"a"}}, 422, "invalid_argument"},
		{"POST", "/v1/todos", map[string]any{"queue": "inbox", "title": "a", "not_before": secret}, 422, "invalid_argument"},
		{"GET", "/v1/queues?limit=" + secret, nil, 422, "invalid_argument"},
		{"GET", "/v1/queues?limit=101", nil, 422, "invalid_argument"},
		{"GET", "/v1/queues?cursor=" + secret, nil, 422, "invalid_argument"},
		{"GET", "/v1/friend-requests?direction=" + secret, nil, 422, "invalid_argument"},
		{"GET", "/v1/todos?state=" + secret, nil, 422, "invalid_argument"},
		{"GET", "/v1/nothing-" + secret, nil, 404, "not_found"},
		{"PATCH", "/v1/queues/" + secret, map[string]any{"paused": true}, 404, "not_found"},
	} {
		r := bob.Do(c.method, c.path, c.body)
		refused(t, c.status, c.code, r, c.method, c.path, c.body)
		require.NotContains(t, r.Body, secret)
	}
	p := refused(t, 422, "invalid_argument", bob.Do(http.MethodPost, "/v1/queues", map[string]any{"name": "A"}))
	require.Equal(t, "name", p.Field)
}

// TestAnotherMethodIsRefusedOnEveryPath: 405 with what can be done there, for
// whoever asks; what is no path stays 404.
func TestAnotherMethodIsRefusedOnEveryPath(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob, stranger := i.SignIn(t, "bob"), i.Stranger(t, "")
	has := map[string][]string{}
	for _, op := range operations(t, i) {
		has[op[1]] = append(has[op[1]], op[0])
	}
	for path, methods := range has {
		if slices.Contains(methods, http.MethodGet) {
			methods = append(methods, http.MethodHead)
		}
		slices.Sort(methods)
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
			if slices.Contains(methods, method) {
				continue
			}
			for _, who := range []*servertest.Person{bob, stranger} {
				r := who.Do(method, path, nil)
				refused(t, 405, "method_not_allowed", r, method, path)
				require.Equal(t, strings.Join(methods, ", "), r.Header.Get("Allow"), path)
				require.Equal(t, "no-store", r.Header.Get("Cache-Control"))
			}
		}
		refused(t, 404, "not_found", bob.Do(http.MethodPut, path+"/more/than/there/is", nil), path)
	}
}

// TestAMalformedIDIsAnUnknownOne: 404, whatever stands there.
func TestAMalformedIDIsAnUnknownOne(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	ids := []string{uuid.NewString(), "x", strings.Repeat("x", 36), strings.Repeat("9", 300), "0197a3c27d7e7cc398c4dc0c0c07398f", "%00", "ü"}
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/v1/agents/{}", nil}, {"PATCH", "/v1/agents/{}", map[string]any{}}, {"DELETE", "/v1/agents/{}", nil},
		{"GET", "/v1/personas/{}", nil}, {"PATCH", "/v1/personas/{}", map[string]any{}}, {"DELETE", "/v1/personas/{}", nil},
		{"POST", "/v1/endpoints/{}/narrow", map[string]any{"queues": []string{"a"}}}, {"POST", "/v1/endpoints/{}/rotate", nil}, {"POST", "/v1/endpoints/{}/pause", nil},
		{"POST", "/v1/endpoints/{}/resume", nil}, {"POST", "/v1/endpoints/{}/revoke", nil},
		{"GET", "/v1/friend-requests/{}", nil}, {"POST", "/v1/friend-requests/{}/approve", map[string]any{}}, {"POST", "/v1/friend-requests/{}/decline", map[string]any{}},
		{"POST", "/v1/friend-requests/{}/withdraw", nil},
		{"GET", "/v1/grants/{}", nil}, {"POST", "/v1/grants/{}/narrow", map[string]any{"scope": map[string]any{"queues": []string{"a"}, "verbs": []string{"answer"}}}},
		{"POST", "/v1/grants/{}/pause", nil}, {"POST", "/v1/grants/{}/resume", nil}, {"POST", "/v1/grants/{}/revoke", map[string]any{}}, {"POST", "/v1/grants/{}/leave", nil},
		{"GET", "/v1/todos/{}", nil}, {"POST", "/v1/todos/{}/retry", nil}, {"POST", "/v1/todos/{}/cancel", map[string]any{}}, {"POST", "/v1/todos/{}/release", nil},
		{"POST", "/v1/todos/{}/answer", map[string]any{"text": "a"}},
		{"DELETE", "/v1/blocks/{}", nil}, {"DELETE", "/v1/api-tokens/{}", nil},
	} {
		for _, id := range ids {
			refused(t, 404, "not_found", bob.Do(c.method, strings.ReplaceAll(c.path, "{}", id), c.body), c.method, c.path, id)
		}
	}
}

// TestListsAreBoundToTheirCaller: pages follow one another, and a cursor is of
// no use to anybody else, in another list, or with another filter.
func TestListsAreBoundToTheirCaller(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob, alice := i.SignIn(t, "bob"), i.SignIn(t, "alice")
	home := bob.Publish("reviewer")
	for _, name := range []string{"a", "b", "c"} {
		for _, p := range []*servertest.Person{bob, alice} {
			p.Post("/v1/agents", map[string]any{"name": name}, nil)
			p.Post("/v1/queues", map[string]any{"name": name}, nil)
			p.Post("/v1/todos", map[string]any{"queue": name, "title": name}, nil)
		}
	}
	for _, path := range []string{"/v1/agents?", "/v1/queues?", "/v1/todos?", "/v1/activity?", "/v1/personas?", "/v1/endpoints?", "/v1/inbox?", "/v1/blocks?", "/v1/api-tokens?", "/v1/directory?", "/v1/grants?", "/v1/friend-requests?", "/v1/friend-requests?direction=out&"} {
		var l list
		bob.Get(path, &l)
		require.NotNil(t, l.Items, path)
		require.Nil(t, l.NextCursor, path)
	}
	all := func(path string) (items []map[string]any, second string) {
		cursor := ""
		for range 50 {
			var l list
			bob.Get(path+"limit=1"+cursor, &l)
			items = append(items, l.Items...)
			if l.NextCursor == nil {
				return items, second
			}
			if second == "" {
				second = *l.NextCursor
			}
			cursor = "&cursor=" + *l.NextCursor
		}
		require.Fail(t, "the pages have no end", path)
		return nil, ""
	}
	for _, path := range []string{"/v1/agents?", "/v1/queues?", "/v1/todos?", "/v1/activity?"} {
		var whole list
		bob.Get(path, &whole)
		paged, cursor := all(path)
		require.Equal(t, whole.Items, paged, path)
		refused(t, 422, "invalid_argument", alice.Do(http.MethodGet, path+"cursor="+cursor, nil), path)
		other := "/v1/agents?"
		if path == other {
			other = "/v1/queues?"
		}
		refused(t, 422, "invalid_argument", bob.Do(http.MethodGet, other+"cursor="+cursor, nil), path)
	}
	_, cursor := all("/v1/todos?")
	refused(t, 422, "invalid_argument", bob.Do(http.MethodGet, "/v1/todos?state=ready&cursor="+cursor, nil))

	// The requester's twin.
	agent, other := i.Agent(t, "alice"), i.Agent(t, "carol")
	for range 2 {
		task := agent.Ask(t, servertest.V1, home)
		bob.Post("/v1/friend-requests/"+task.ID+"/decline", map[string]any{"may_ask_again": true}, nil)
	}
	other.Ask(t, servertest.V1, home)
	twin := "/v1/a2a/reviewer/friend-requests?limit=1"
	var l list
	i.Stranger(t, agent.Token(t, i.URL+"/a2a/reviewer")).Get(twin, &l)
	require.NotNil(t, l.NextCursor)
	refused(t, 422, "invalid_argument", i.Stranger(t, other.Token(t, i.URL+"/a2a/reviewer")).Do(http.MethodGet, twin+"&cursor="+*l.NextCursor, nil))
}
