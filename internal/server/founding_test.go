package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
)

// The decision that founded this project is confirmed by these seven tests, over
// the wire and with nothing replaced.

func TestFounding_1_ARequestCreatesAPendingEdgeThatGrantsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	f := w.ask(t, "alice", h, scope.Asked{})
	require.Equal(t, requester.Pending, f.request.State)

	var in struct{ Items []struct{ ID, State string } }
	bob.get("/v1/friend-requests?direction=in", &in)
	require.Len(t, in.Items, 1)
	require.Equal(t, "pending", in.Items[0].State)
	for _, direction := range []string{"in", "out"} {
		var grants struct{ Items []json.RawMessage }
		bob.get("/v1/grants?direction="+direction, &grants)
		require.Empty(t, grants.Items)
	}
	// The key may follow its request and opens nothing: neither bob's endpoint nor a made-up one.
	for _, url := range []string{h.url, w.url + "/mcp/" + uuid.NewString()} {
		r := *f.request
		r.Grant = &requester.Grant{Endpoint: url, AuthorizationServer: w.url}
		e, err := f.q.Endpoint(&r)
		require.NoError(t, err)
		_, err = e.Token(t.Context())
		require.Error(t, err)
	}
	listed, err := f.q.List(t.Context(), f.request)
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, requester.Pending, listed[0].State)
}

func TestFounding_2_ApprovalMintsRequestedMeetNarrowedNeverWider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	five, ten := int64(5), int64(10)
	f := w.ask(t, "alice", h, scope.Asked{Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Partial{MaxOpen: &ten}})
	path := "/v1/friend-requests/" + f.request.ID + "/approve"
	for what, wider := range map[string]map[string]any{
		"a verb":  {"queues": []string{h.queue}, "verbs": []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.Answer}},
		"a queue": {"queues": []string{h.queue, "other"}, "verbs": []scope.Verb{scope.CreateFor}},
		"a limit": {"queues": []string{h.queue}, "verbs": []scope.Verb{scope.CreateFor}, "limits": map[string]any{"max_open": 11}},
		"longer":  {"queues": []string{h.queue}, "verbs": []scope.Verb{scope.CreateFor}, "limits": map[string]any{"expires_in_days": 91}},
	} {
		r := bob.do(http.MethodPost, path, map[string]any{"scope": wider})
		require.Equal(t, 422, r.status, "%s: %s", what, r.body)
		require.Contains(t, r.body, `"invalid_argument"`, what)
	}
	bob.post(path, map[string]any{"scope": map[string]any{"queues": []string{h.queue}, "verbs": []scope.Verb{scope.TodoStatus, scope.CreateFor}, "limits": map[string]any{"max_open": five}}}, nil)
	f.approved(t)
	want := scope.Scope{Queues: []string{h.queue}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Limits{
		MaxOpen: 5, PerHour: 500, MaxPayloadBytes: 65536, MaxPriority: 5, MaxDelayDays: 7, ExpiresInDays: 90,
	}}
	require.Equal(t, want, f.request.Grant.Scope)
	names, err := f.endpoint.Tools(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"create_for", "todo_status", "whoami"}, names)
	// And the endpoint holds to it.
	for n := range 6 {
		r := f.call(t, "create_for", map[string]any{"queue": h.queue, "title": "x", "idempotency_key": uuid.NewString()}, nil)
		if n < 5 {
			require.False(t, r.IsError, r.Text)
		} else {
			require.Equal(t, refusal.QuotaExceeded, r.Refusal().Code)
		}
	}
}

func TestFounding_3_OneDirectionOnlyAndRevokingOneLeavesTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.signIn(t, "alice"), w.signIn(t, "bob")
	hb, ha := bob.publish("bobs"), alice.publish("alices")
	ab := w.ask(t, "alice", hb, scope.Asked{})
	bob.post("/v1/friend-requests/"+ab.request.ID+"/approve", map[string]any{}, nil)
	ab.approved(t)

	var none struct{ Items []json.RawMessage }
	bob.get("/v1/grants?direction=out", &none)
	require.Empty(t, none.Items, "alice→bob gave bob a grant")
	alice.get("/v1/grants?direction=in", &none)
	require.Empty(t, none.Items, "alice→bob gave bob a grant")
	require.Equal(t, 404, alice.do(http.MethodPost, "/v1/grants/"+ab.request.Grant.ID+"/revoke", map[string]any{}).status, "the requester is not the one who revokes")

	ba := w.ask(t, "bob", ha, scope.Asked{})
	alice.post("/v1/friend-requests/"+ba.request.ID+"/approve", map[string]any{}, nil)
	ba.approved(t)
	bob.post("/v1/grants/"+ab.request.Grant.ID+"/revoke", map[string]any{}, nil)
	_, err := ab.endpoint.Tools(t.Context())
	require.Error(t, err, "alice→bob is revoked")
	var made struct{ State string }
	ba.call(t, "create_for", map[string]any{"queue": ha.queue, "title": "x", "idempotency_key": "1"}, &made)
	require.Equal(t, "ready", made.State, "bob→alice is as it was")
}

func TestFounding_4_WorkArrivesThroughCreateForAndNoA2AMethodTakesWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	f := w.ask(t, "alice", h, scope.Asked{})
	bob.post("/v1/friend-requests/"+f.request.ID+"/approve", map[string]any{}, nil)
	f.approved(t)
	var made struct {
		TodoID string `json:"todo_id"`
	}
	f.call(t, "create_for", map[string]any{"queue": h.queue, "title": "Review PR 7", "idempotency_key": "pr-7", "payload": map[string]any{"pr": 7}}, &made)
	var claimed struct {
		Todos []struct {
			TodoID     string `json:"todo_id"`
			FromFriend struct{ Title string }
		}
	}
	w.work(t, h, "claim_next", map[string]any{}, &claimed)
	require.Len(t, claimed.Todos, 1)
	require.Equal(t, made.TodoID, claimed.Todos[0].TodoID)

	// No method of either version takes work, with or without the extension.
	parts := map[string][]any{
		"1.0": {map[string]any{"text": "Review PR 8."}, map[string]any{"data": map[string]any{"queue": h.queue, "title": "Review PR 8"}}},
		"":    {map[string]any{"kind": "text", "text": "Review PR 8."}, map[string]any{"kind": "data", "data": map[string]any{"queue": h.queue, "title": "Review PR 8"}}},
	}
	for version, methods := range map[string][]string{"1.0": {"SendMessage", "SendStreamingMessage"}, "": {"message/send", "message/stream"}} {
		for _, method := range methods {
			for _, part := range parts[version] {
				message := map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{part}}
				if version == "" {
					message["role"], message["kind"] = "user", "message"
				}
				r := w.stranger(t).do(http.MethodPost, "/a2a/reviewer", map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": map[string]any{"message": message}},
					"A2A-Version", version, "A2A-Extensions", "urn:switchboard:a2a:friend-request:v1")
				var a struct{ Error struct{ Code int } }
				require.NoError(t, json.Unmarshal([]byte(r.body), &a), r.body)
				require.Contains(t, []int{-32005, -32602}, a.Error.Code, "%s %s: %s", version, method, r.body)
			}
		}
	}
	var todos struct{ Items []json.RawMessage }
	bob.get("/v1/todos?queue="+h.queue, &todos)
	require.Len(t, todos.Items, 1)
}

func TestFounding_5_ARequestWithoutValidProvenanceIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	key := map[string]any{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
	data := map[string]any{
		"type": "friend-request", "from": map[string]any{"name": "release-bot"}, "reason": "Because.", "key": key,
		"scope": map[string]any{"queues": []string{h.queue}, "verbs": []scope.Verb{scope.CreateFor}},
	}
	send := func() reply {
		return w.stranger(t).do(http.MethodPost, "/a2a/reviewer", map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
			"message": map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{map[string]any{"data": data}}},
		}}, "A2A-Version", "1.0", "A2A-Extensions", "urn:switchboard:a2a:friend-request:v1")
	}
	r := send()
	require.Equal(t, 401, r.status)
	require.Contains(t, r.body, "PROVENANCE_MISSING")
	data["provenance"] = map[string]any{"method": "oidc-nonce", "id_token": "eyJhbGciOiJub25lIn0.e30.", "salt": strings.Repeat("A", 22), "statement": "eyJhbGciOiJub25lIn0.e30."}
	r = send()
	require.Equal(t, 401, r.status, r.body)
	var in struct{ Items []json.RawMessage }
	bob.get("/v1/friend-requests?direction=in", &in)
	require.Empty(t, in.Items)
}

func TestFounding_6_FriendingRevealsNoOtherPersonaFriendOrQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h, secret := bob.publish("reviewer"), bob.publish("hidden-helper")
	bob.must(http.MethodPatch, "/v1/personas/"+secret.personaID, map[string]any{"visibility": "unlisted"}, nil)
	carol := w.ask(t, "carol", secret, scope.Asked{})
	bob.post("/v1/friend-requests/"+carol.request.ID+"/approve", map[string]any{}, nil)
	f := w.ask(t, "alice", h, scope.Asked{})
	bob.post("/v1/friend-requests/"+f.request.ID+"/approve", map[string]any{}, nil)
	f.approved(t)
	carol.approved(t)
	var hers struct {
		TodoID string `json:"todo_id"`
	}
	carol.call(t, "create_for", map[string]any{"queue": secret.queue, "title": "carol's", "idempotency_key": "1"}, &hers)

	anyone := w.stranger(t)
	alice := w.signIn(t, "alice")
	seen := []string{
		anyone.do(http.MethodGet, "/.well-known/api-catalog", nil).body,
		anyone.do(http.MethodGet, "/a2a/reviewer/.well-known/agent-card.json", nil).body,
		anyone.do(http.MethodGet, "/a2a-v03/reviewer/.well-known/agent-card.json", nil).body,
		alice.do(http.MethodGet, "/v1/friend-requests?direction=out", nil).body,
		alice.do(http.MethodGet, "/v1/grants?direction=out", nil).body,
		alice.do(http.MethodGet, "/v1/directory", nil).body,
		f.call(t, "whoami", nil, nil).Text,
		f.call(t, "list_created", nil, nil).Text,
	}
	for _, text := range seen {
		for _, name := range []string{secret.slug, secret.queue, "carol", hers.TodoID, "inbox"} {
			require.NotContains(t, text, name)
		}
	}
	// Another's todo and an unknown one, another queue and an unknown one: the same words.
	foreign, unknown := uuid.MustParse(hers.TodoID), uuid.New()
	a := f.call(t, "todo_status", map[string]any{"todo_id": foreign}, nil).Refusal()
	b := f.call(t, "todo_status", map[string]any{"todo_id": unknown}, nil).Refusal()
	require.Equal(t, refusal.NotFound, a.Code)
	require.Equal(t, a.Message, b.Message)
	create := func(queue string) *refusal.Error {
		return f.call(t, "create_for", map[string]any{"queue": queue, "title": "x", "idempotency_key": queue}, nil).Refusal()
	}
	require.Equal(t, refusal.NotFound, create(secret.queue).Code)
	require.Equal(t, create("no-such-queue").Message, create(secret.queue).Message)
	require.Equal(t, create("no-such-queue").Message, create("inbox").Message)
}

func TestFounding_7_NoAgentCanApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	f := w.ask(t, "alice", h, scope.Asked{})
	path := "/v1/friend-requests/" + f.request.ID + "/approve"
	var token struct{ Token string }
	bob.post("/v1/api-tokens", map[string]any{"name": "script"}, &token)
	for what, want := range map[string]struct {
		bearer string
		status int
	}{
		"bob's own worker": {h.credential, 401},
		"bob's API token":  {token.Token, 403},
		"nobody":           {"", 401},
	} {
		header := []string{}
		if want.bearer != "" {
			header = []string{"Authorization", "Bearer " + want.bearer}
		}
		require.Equal(t, want.status, w.stranger(t).do(http.MethodPost, path, map[string]any{}, header...).status, what)
	}
	require.Equal(t, 404, w.signIn(t, "alice").do(http.MethodPost, path, map[string]any{}).status, "the requester herself")

	// The consent todo is out of every tool's sight and reach.
	var inbox struct{ Items []struct{ ID string } }
	bob.get("/v1/inbox", &inbox)
	require.Len(t, inbox.Items, 1)
	id := inbox.Items[0].ID
	for tool, arguments := range map[string]map[string]any{
		"get_todo": {"todo_id": id}, "claim": {"todo_id": id}, "complete": {"todo_id": id, "lease_token": "x"}, "fail": {"todo_id": id, "lease_token": "x", "error": "x"},
		"claim_next": {"queues": []string{"inbox"}}, "list_todos": {"queue": "inbox"}, "create": {"queue": "inbox", "title": "x", "idempotency_key": "x"},
	} {
		r := w.work(t, h, tool, arguments, nil)
		require.Contains(t, r.body, `"isError":true`, "%s: %s", tool, r.body)
		require.NotContains(t, r.body, f.request.ID, tool)
	}
	for _, act := range []string{"cancel", "retry", "release", "answer"} {
		r := bob.do(http.MethodPost, "/v1/todos/"+id+"/"+act, map[string]any{"text": "yes"})
		require.GreaterOrEqual(t, r.status, 400, "%s: %s", act, r.body)
	}
	var request struct{ State string }
	bob.get("/v1/friend-requests/"+f.request.ID, &request)
	require.Equal(t, "pending", request.State)
}
