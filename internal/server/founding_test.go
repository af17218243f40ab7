package server_test

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
	"switchboard/internal/server/servertest"
)

// The decision that founded this project is confirmed by these seven tests, over
// the wire and with nothing replaced.

func TestFounding_1_ARequestCreatesAPendingEdgeThatGrantsNothing(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	f := ask(t, w, "alice", h, scope.Asked{})
	require.Equal(t, requester.Pending, f.request.State)

	var in struct{ Items []struct{ ID, State string } }
	bob.Get("/v1/friend-requests?direction=in", &in)
	require.Len(t, in.Items, 1)
	require.Equal(t, "pending", in.Items[0].State)
	for _, direction := range []string{"in", "out"} {
		var grants struct{ Items []json.RawMessage }
		bob.Get("/v1/grants?direction="+direction, &grants)
		require.Empty(t, grants.Items)
	}
	// The key may follow its request and opens nothing: neither bob's endpoint nor a made-up one.
	for _, url := range []string{h.URL, w.URL + "/mcp/" + uuid.NewString()} {
		r := *f.request
		r.Grant = &requester.Grant{Endpoint: url, AuthorizationServer: w.URL}
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
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	five, ten := int64(5), int64(10)
	f := ask(t, w, "alice", h, scope.Asked{Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Partial{MaxOpen: &ten}})
	path := "/v1/friend-requests/" + f.request.ID + "/approve"
	for what, wider := range map[string]map[string]any{
		"a verb":  {"queues": []string{h.Queue}, "verbs": []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.Answer}},
		"a queue": {"queues": []string{h.Queue, "other"}, "verbs": []scope.Verb{scope.CreateFor}},
		"a limit": {"queues": []string{h.Queue}, "verbs": []scope.Verb{scope.CreateFor}, "limits": map[string]any{"max_open": 11}},
		"longer":  {"queues": []string{h.Queue}, "verbs": []scope.Verb{scope.CreateFor}, "limits": map[string]any{"expires_in_days": 91}},
	} {
		r := bob.Do(http.MethodPost, path, map[string]any{"scope": wider})
		require.Equal(t, 422, r.Status, "%s: %s", what, r.Body)
		require.Contains(t, r.Body, `"invalid_argument"`, what)
	}
	bob.Post(path, map[string]any{"scope": map[string]any{"queues": []string{h.Queue}, "verbs": []scope.Verb{scope.TodoStatus, scope.CreateFor}, "limits": map[string]any{"max_open": five}}}, nil)
	f.approved(t)
	want := scope.Scope{Queues: []string{h.Queue}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Limits{
		MaxOpen: 5, PerHour: 500, MaxPayloadBytes: 65536, MaxPriority: 5, MaxDelayDays: 7, ExpiresInDays: 90,
	}}
	require.Equal(t, want, f.request.Grant.Scope)
	names, err := f.endpoint.Tools(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"create_for", "todo_status", "whoami"}, names)
	// And the endpoint holds to it.
	for n := range 6 {
		r := f.call(t, "create_for", map[string]any{"queue": h.Queue, "title": "x", "idempotency_key": uuid.NewString()}, nil)
		if n < 5 {
			require.False(t, r.IsError, r.Text)
		} else {
			require.Equal(t, refusal.QuotaExceeded, r.Refusal().Code)
		}
	}
}

func TestFounding_3_OneDirectionOnlyAndRevokingOneLeavesTheOther(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	alice, bob := w.SignIn(t, "alice"), w.SignIn(t, "bob")
	hb, ha := bob.Publish("bobs"), alice.Publish("alices")
	ab := ask(t, w, "alice", hb, scope.Asked{})
	bob.Post("/v1/friend-requests/"+ab.request.ID+"/approve", map[string]any{}, nil)
	ab.approved(t)

	var none struct{ Items []json.RawMessage }
	bob.Get("/v1/grants?direction=out", &none)
	require.Empty(t, none.Items, "alice→bob gave bob a grant")
	alice.Get("/v1/grants?direction=in", &none)
	require.Empty(t, none.Items, "alice→bob gave bob a grant")
	require.Equal(t, 404, alice.Do(http.MethodPost, "/v1/grants/"+ab.request.Grant.ID+"/revoke", map[string]any{}).Status, "the requester is not the one who revokes")

	ba := ask(t, w, "bob", ha, scope.Asked{})
	alice.Post("/v1/friend-requests/"+ba.request.ID+"/approve", map[string]any{}, nil)
	ba.approved(t)
	bob.Post("/v1/grants/"+ab.request.Grant.ID+"/revoke", map[string]any{}, nil)
	_, err := ab.endpoint.Tools(t.Context())
	require.Error(t, err, "alice→bob is revoked")
	var made struct{ State string }
	ba.call(t, "create_for", map[string]any{"queue": ha.Queue, "title": "x", "idempotency_key": "1"}, &made)
	require.Equal(t, "ready", made.State, "bob→alice is as it was")
}

func TestFounding_4_WorkArrivesThroughCreateForAndNoA2AMethodTakesWork(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	f := ask(t, w, "alice", h, scope.Asked{})
	bob.Post("/v1/friend-requests/"+f.request.ID+"/approve", map[string]any{}, nil)
	f.approved(t)
	var made struct {
		TodoID string `json:"todo_id"`
	}
	f.call(t, "create_for", map[string]any{"queue": h.Queue, "title": "Review PR 7", "idempotency_key": "pr-7", "payload": map[string]any{"pr": 7}}, &made)
	var claimed struct {
		Todos []struct {
			TodoID     string `json:"todo_id"`
			FromFriend struct{ Title string }
		}
	}
	work(t, w, h, "claim_next", map[string]any{}, &claimed)
	require.Len(t, claimed.Todos, 1)
	require.Equal(t, made.TodoID, claimed.Todos[0].TodoID)

	// No method of either version takes work, with or without the extension.
	parts := map[string][]any{
		"1.0": {map[string]any{"text": "Review PR 8."}, map[string]any{"data": map[string]any{"queue": h.Queue, "title": "Review PR 8"}}},
		"":    {map[string]any{"kind": "text", "text": "Review PR 8."}, map[string]any{"kind": "data", "data": map[string]any{"queue": h.Queue, "title": "Review PR 8"}}},
	}
	for version, methods := range map[string][]string{"1.0": {"SendMessage", "SendStreamingMessage"}, "": {"message/send", "message/stream"}} {
		for _, method := range methods {
			for _, part := range parts[version] {
				message := map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{part}}
				if version == "" {
					message["role"], message["kind"] = "user", "message"
				}
				r := w.Stranger(t, "").Do(http.MethodPost, "/a2a/reviewer", map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": map[string]any{"message": message}},
					"A2A-Version", version, "A2A-Extensions", "urn:switchboard:a2a:friend-request:v1")
				var a struct{ Error struct{ Code int } }
				require.NoError(t, json.Unmarshal([]byte(r.Body), &a), r.Body)
				require.Contains(t, []int{-32005, -32602}, a.Error.Code, "%s %s: %s", version, method, r.Body)
			}
		}
	}
	var todos struct{ Items []json.RawMessage }
	bob.Get("/v1/todos?queue="+h.Queue, &todos)
	require.Len(t, todos.Items, 1)
}

func TestFounding_5_ARequestWithoutValidProvenanceIsRefused(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	key := map[string]any{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
	data := map[string]any{
		"type": "friend-request", "from": map[string]any{"name": "release-bot"}, "reason": "Because.", "key": key,
		"scope": map[string]any{"queues": []string{h.Queue}, "verbs": []scope.Verb{scope.CreateFor}},
	}
	send := func() servertest.Reply {
		return w.Stranger(t, "").Do(http.MethodPost, "/a2a/reviewer", map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
			"message": map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{map[string]any{"data": data}}},
		}}, "A2A-Version", "1.0", "A2A-Extensions", "urn:switchboard:a2a:friend-request:v1")
	}
	r := send()
	require.Equal(t, 401, r.Status)
	require.Contains(t, r.Body, "PROVENANCE_MISSING")
	data["provenance"] = map[string]any{"method": "oidc-nonce", "id_token": "eyJhbGciOiJub25lIn0.e30.", "salt": strings.Repeat("A", 22), "statement": "eyJhbGciOiJub25lIn0.e30."}
	r = send()
	require.Equal(t, 401, r.Status, r.Body)
	var in struct{ Items []json.RawMessage }
	bob.Get("/v1/friend-requests?direction=in", &in)
	require.Empty(t, in.Items)
}

func TestFounding_6_FriendingRevealsNoOtherPersonaFriendOrQueue(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h, secret := bob.Publish("reviewer"), bob.Publish("hidden-helper")
	bob.Must(http.MethodPatch, "/v1/personas/"+secret.PersonaID, map[string]any{"visibility": "unlisted"}, nil)
	carol := ask(t, w, "carol", secret, scope.Asked{})
	bob.Post("/v1/friend-requests/"+carol.request.ID+"/approve", map[string]any{}, nil)
	f := ask(t, w, "alice", h, scope.Asked{})
	bob.Post("/v1/friend-requests/"+f.request.ID+"/approve", map[string]any{}, nil)
	f.approved(t)
	carol.approved(t)
	var hers struct {
		TodoID string `json:"todo_id"`
	}
	carol.call(t, "create_for", map[string]any{"queue": secret.Queue, "title": "carol's", "idempotency_key": "1"}, &hers)

	anyone := w.Stranger(t, "")
	alice := w.SignIn(t, "alice")
	seen := []string{
		anyone.Do(http.MethodGet, "/.well-known/api-catalog", nil).Body,
		anyone.Do(http.MethodGet, "/a2a/reviewer/.well-known/agent-card.json", nil).Body,
		anyone.Do(http.MethodGet, "/a2a-v03/reviewer/.well-known/agent-card.json", nil).Body,
		alice.Do(http.MethodGet, "/v1/friend-requests?direction=out", nil).Body,
		alice.Do(http.MethodGet, "/v1/grants?direction=out", nil).Body,
		alice.Do(http.MethodGet, "/v1/directory", nil).Body,
		f.call(t, "whoami", nil, nil).Text,
		f.call(t, "list_created", nil, nil).Text,
	}
	for _, text := range seen {
		for _, name := range []string{secret.Slug, secret.Queue, "carol", hers.TodoID, "inbox"} {
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
	require.Equal(t, refusal.NotFound, create(secret.Queue).Code)
	require.Equal(t, create("no-such-queue").Message, create(secret.Queue).Message)
	require.Equal(t, create("no-such-queue").Message, create("inbox").Message)
}

func TestFounding_7_NoAgentCanApprove(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	f := ask(t, w, "alice", h, scope.Asked{})
	path := "/v1/friend-requests/" + f.request.ID + "/approve"
	var token struct{ Token string }
	bob.Post("/v1/api-tokens", map[string]any{"name": "script"}, &token)
	for what, want := range map[string]struct {
		bearer string
		status int
	}{
		"bob's own worker": {h.Credential, 401},
		"bob's API token":  {token.Token, 403},
		"nobody":           {"", 401},
	} {
		header := []string{}
		if want.bearer != "" {
			header = []string{"Authorization", "Bearer " + want.bearer}
		}
		require.Equal(t, want.status, w.Stranger(t, "").Do(http.MethodPost, path, map[string]any{}, header...).Status, what)
	}
	require.Equal(t, 404, w.SignIn(t, "alice").Do(http.MethodPost, path, map[string]any{}).Status, "the requester herself")

	// The consent todo is out of every tool's sight and reach.
	var inbox struct{ Items []struct{ ID string } }
	bob.Get("/v1/inbox", &inbox)
	require.Len(t, inbox.Items, 1)
	id := inbox.Items[0].ID
	for tool, arguments := range map[string]map[string]any{
		"get_todo": {"todo_id": id}, "claim": {"todo_id": id}, "complete": {"todo_id": id, "lease_token": "x"}, "fail": {"todo_id": id, "lease_token": "x", "error": "x"},
		"claim_next": {"queues": []string{"inbox"}}, "list_todos": {"queue": "inbox"}, "create": {"queue": "inbox", "title": "x", "idempotency_key": "x"},
	} {
		r := work(t, w, h, tool, arguments, nil)
		require.Contains(t, r.Body, `"isError":true`, "%s: %s", tool, r.Body)
		require.NotContains(t, r.Body, f.request.ID, tool)
	}
	for _, act := range []string{"cancel", "retry", "release", "answer"} {
		r := bob.Do(http.MethodPost, "/v1/todos/"+id+"/"+act, map[string]any{"text": "yes"})
		require.GreaterOrEqual(t, r.Status, 400, "%s: %s", act, r.Body)
	}
	var request struct{ State string }
	bob.Get("/v1/friend-requests/"+f.request.ID, &request)
	require.Equal(t, "pending", request.State)
}
