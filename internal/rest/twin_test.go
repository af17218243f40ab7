package rest_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

const twinPath = "/v1/a2a/reviewer/friend-requests"

// sent is a request as its sender sees it, over whichever transport.
type sent struct {
	ID, State string
	Artifact  map[string]any
}

// ofTask reads a task as what the twin would say.
func ofTask(t *testing.T, v servertest.A2A, task servertest.Task) sent {
	t.Helper()
	s := sent{ID: task.ID, State: map[string]string{
		v.Submitted: "pending", v.Completed: "approved", v.Rejected: "declined", v.Canceled: "withdrawn",
	}[task.Status.State]}
	if len(task.Artifacts) > 0 {
		require.NoError(t, json.Unmarshal(task.Artifacts[0].Parts[0].Data, &s.Artifact))
	}
	return s
}

// TestOneRequestThreeProjections: A2A of both versions, its REST twin and the
// MCP tool say the same of the same request at every moment of its life.
func TestOneRequestThreeProjections(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob, alice := i.SignIn(t, "bob"), i.SignIn(t, "alice")
	home, own := bob.Publish("reviewer"), alice.Publish("release")
	agent := i.Agent(t, "alice")
	stranger := i.Stranger(t, "")

	// One message, whichever way it comes.
	part := agent.Part(t, home, home.Wish())
	refused(t, 422, "invalid_argument", stranger.Do(http.MethodPost, twinPath, []byte(part)))
	key := uuid.NewString()
	first := stranger.Do(http.MethodPost, twinPath, []byte(part), "Idempotency-Key", key)
	require.Equal(t, 201, first.Status, first.Body)
	var s sent
	first.Into(t, &s)
	require.Equal(t, "pending", s.State)
	again := stranger.Do(http.MethodPost, twinPath, []byte(part), "Idempotency-Key", key)
	require.Equal(t, first.Body, again.Body)
	for _, v := range []servertest.A2A{servertest.V1, servertest.V03} {
		m := v.Message(part)
		m["messageId"] = key
		r := v.Call(t, i, "reviewer", "", v.Send, map[string]any{"message": m})
		require.Equal(t, s, ofTask(t, v, r.Task), r.Body)
	}
	wish := home.Wish()
	wish.Reason = "Something else."
	other := agent.Part(t, home, wish)
	refused(t, 409, "conflict", stranger.Do(http.MethodPost, twinPath, []byte(other), "Idempotency-Key", key))

	bearer := agent.Token(t, i.URL+"/a2a/reviewer")
	me := i.Stranger(t, bearer)
	projections := func(id string) map[string]sent {
		out := map[string]sent{}
		var one sent
		me.Get(twinPath+"/"+id, &one)
		out["twin"] = one
		var many struct{ Items []sent }
		me.Get(twinPath, &many)
		for _, item := range many.Items {
			if item.ID == id {
				out["twin, list"] = item
			}
		}
		for _, v := range []servertest.A2A{servertest.V1, servertest.V03} {
			out["a2a "+v.Version] = ofTask(t, v, v.Call(t, i, "reviewer", bearer, v.Get, map[string]any{"id": id}).Task)
			for _, task := range v.Call(t, i, "reviewer", bearer, v.List, map[string]any{"includeArtifacts": true}).Tasks {
				if task.ID == id {
					out["a2a, list "+v.Version] = ofTask(t, v, task)
				}
			}
		}
		tool := tool(t, i, own, "friend_request", map[string]any{"action": "get", "request_id": id})
		var got sent
		require.NoError(t, json.Unmarshal(tool, &got))
		out["mcp"] = got
		return out
	}
	same := func(id, state string, artifact bool) {
		for from, got := range projections(id) {
			require.Equal(t, projections(id)["twin"], got, from)
			require.Equal(t, id, got.ID)
			require.Equal(t, state, got.State, from)
			require.Equal(t, artifact, got.Artifact != nil, from)
		}
		require.Len(t, projections(id), 7)
	}
	same(s.ID, "pending", false)
	canceled := me.Do(http.MethodPost, twinPath+"/"+s.ID+"/cancel", nil)
	require.Equal(t, 200, canceled.Status, canceled.Body)
	same(s.ID, "withdrawn", false)
	refused(t, 409, "conflict", me.Do(http.MethodPost, twinPath+"/"+s.ID+"/cancel", nil))

	task := agent.Ask(t, servertest.V1, home)
	bob.Post("/v1/friend-requests/"+task.ID+"/decline", map[string]any{"note": "Not now.", "may_ask_again": true}, nil)
	same(task.ID, "declined", false)
	require.Contains(t, me.Do(http.MethodGet, twinPath+"/"+task.ID, nil).Body, "Not now.")
	task = agent.Ask(t, servertest.V03, home)
	bob.Post("/v1/friend-requests/"+task.ID+"/approve", map[string]any{}, nil)
	same(task.ID, "approved", true)

	var l list
	me.Get(twinPath+"?state=approved", &l)
	require.Equal(t, []string{task.ID}, l.ids())

	// What is another's, unknown or no id: one answer; and no other token.
	carol := i.Agent(t, "carol")
	theirs := carol.Ask(t, servertest.V1, home)
	for _, id := range []string{theirs.ID, uuid.NewString(), "x"} {
		p := refused(t, 404, "not_found", me.Do(http.MethodGet, twinPath+"/"+id, nil))
		require.NotContains(t, p.Detail, id)
		refused(t, 404, "not_found", me.Do(http.MethodPost, twinPath+"/"+id+"/cancel", nil))
	}
	refused(t, 401, "unauthenticated", i.Stranger(t, bearer).Do(http.MethodGet, "/v1/a2a/release/friend-requests", nil))
	refused(t, 404, "not_found", stranger.Do(http.MethodPost, "/v1/a2a/nobody/friend-requests", []byte(part), "Idempotency-Key", "k"))
}

// tool calls a tool of a home endpoint and returns its structured content.
func tool(t *testing.T, i *servertest.Instance, h servertest.Home, name string, arguments any) json.RawMessage {
	t.Helper()
	r := i.Stranger(t, h.Credential).Do(http.MethodPost, h.URL, map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": arguments},
	}, "Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2025-11-25")
	var a struct {
		Result struct {
			StructuredContent json.RawMessage `json:"structuredContent"`
			IsError           bool            `json:"isError"`
		} `json:"result"`
	}
	r.Into(t, &a)
	require.False(t, a.Result.IsError, r.Body)
	return a.Result.StructuredContent
}

// offset is where in the body something is: the envelopes differ.
var offset = regexp.MustCompile(` at byte \d+$`)

// TestTheSameRefusalWhicheverWay: what is broken is refused with the same code
// and the same words over A2A and over REST, and stored by neither.
func TestTheSameRefusalWhicheverWay(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	home := bob.Publish("reviewer")
	agent := i.Agent(t, "alice")
	genuine := string(agent.Part(t, home, home.Wish()))
	change := func(f func(part, provenance map[string]any)) string {
		var part map[string]any
		require.NoError(t, json.Unmarshal([]byte(genuine), &part))
		f(part, part["provenance"].(map[string]any))
		b, err := json.Marshal(part)
		require.NoError(t, err)
		return string(b)
	}
	token := func(part int, with string) func(_, p map[string]any) {
		return func(_, p map[string]any) {
			pieces := strings.Split(p["id_token"].(string), ".")
			pieces[part] = with
			p["id_token"] = strings.Join(pieces, ".")
		}
	}
	for _, c := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"no object", `[]`, 422, "invalid_argument"},
		{"another type", change(func(p, _ map[string]any) { p["type"] = "work" }), 422, "invalid_argument"},
		{"an unknown member", change(func(p, _ map[string]any) { p["urgent"] = true }), 422, "invalid_argument"},
		{"a member in other case", strings.Replace(genuine, `"reason"`, `"Reason"`, 1), 422, "invalid_argument"},
		{"a member twice", strings.Replace(genuine, `"reason"`, `"reason":"x","reason"`, 1), 422, "invalid_argument"},
		{"a scope outside", change(func(p, _ map[string]any) { p["scope"].(map[string]any)["queues"] = []any{"inbox"} }), 422, "invalid_argument"},
		{"a limit too wide", change(func(p, _ map[string]any) { p["scope"].(map[string]any)["limits"] = map[string]any{"max_open": 51} }), 422, "invalid_argument"},
		{"an integer beyond 2^53", strings.Replace(genuine, `"reason"`, `"scale":9007199254740993,"reason"`, 1), 422, "invalid_argument"},
		{"supersedes a grant that is none", change(func(p, _ map[string]any) { p["supersedes"] = uuid.NewString() }), 401, "nonce_mismatch"},
		{"no provenance", change(func(p, _ map[string]any) { delete(p, "provenance") }), 401, "provenance_missing"},
		{"an unknown method", change(func(_, p map[string]any) { p["method"] = "trust-me" }), 422, "invalid_argument"},
		{"another signature", change(token(2, strings.Repeat("A", 86))), 401, "id_token_signature"},
		{"tampered", change(func(p, _ map[string]any) { p["reason"] = "Everything." }), 401, "nonce_mismatch"},
		{"another salt", change(func(_, p map[string]any) { p["salt"] = "AAAAAAAAAAAAAAAAAAAAAA" }), 401, "nonce_mismatch"},
		{"another statement", change(func(_, p map[string]any) { p["statement"] = "e30.e30.AAAA" }), 401, "statement_invalid"},
		{"too large", strings.Replace(genuine, `"reason"`, `"x":"`+strings.Repeat("x", 256<<10)+`","reason"`, 1), 413, "payload_too_large"},
	} {
		p := refused(t, c.status, c.code, i.Stranger(t, "").Do(http.MethodPost, twinPath, c.body, "Idempotency-Key", "k"), c.name)
		for _, v := range []servertest.A2A{servertest.V1, servertest.V03} {
			m := v.Message(json.RawMessage(`"@"`))
			body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": v.Send, "params": map[string]any{"message": m}})
			require.NoError(t, err)
			r := v.Raw(t, i, "reviewer", "", strings.Replace(string(body), `"@"`, c.body, 1)) // byte for byte
			require.NotNil(t, r.Error, "%s: %s", c.name, r.Body)
			require.Equal(t, strings.ToUpper(c.code), r.Reason(), "%s: %s", c.name, r.Body)
			require.Equal(t, "switchboard", r.Error.Data[0].Domain, c.name)
			if c.status != http.StatusUnprocessableEntity {
				require.Equal(t, c.status, r.Status, c.name)
			} else {
				require.Equal(t, http.StatusOK, r.Status, c.name)
			}
			require.Equal(t, offset.ReplaceAllString(p.Detail, ""), offset.ReplaceAllString(r.Error.Message, ""), c.name)
			if c.status == http.StatusUnauthorized {
				require.Equal(t, "Bearer", r.Header.Get("WWW-Authenticate"))
			}
		}
	}
	var in list
	bob.Get("/v1/friend-requests", &in)
	require.Empty(t, in.Items)
}
