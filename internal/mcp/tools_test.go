package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

type listed struct {
	Name, Description         string
	InputSchema, OutputSchema json.RawMessage
	Annotations               struct{ ReadOnlyHint, DestructiveHint, IdempotentHint, OpenWorldHint *bool }
}

func (c client) list() (tools []listed, names string, raw string) {
	c.t.Helper()
	r := c.rpc("tools/list", nil)
	require.Equal(c.t, http.StatusOK, r.status, r.text)
	var v struct{ Tools []listed }
	require.NoError(c.t, json.Unmarshal(r.Result, &v))
	for _, t := range v.Tools {
		names += "," + t.Name
	}
	return v.Tools, strings.TrimPrefix(names, ","), r.text
}

func TestAPeersListIsItsScope_AndCostsUnder1500Tokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	verbs := scope.Verbs()
	for mask := range 1 << len(verbs) {
		var granted []scope.Verb
		want := ""
		for i, v := range verbs {
			if mask>>i&1 == 1 {
				granted, want = append(granted, v), want+string(v)+","
			}
		}
		c := b.vend("scoped", endpoint.Peer, granted)
		for _, version := range []string{modern, "2025-11-25"} {
			_, names, raw := c.as(version).list()
			require.Equal(t, want+"whoami", names)
			require.Less(t, len(raw)/4, 1500, "%s %s", version, names)
		}
	}
	_, _, raw := b.peer.list()
	t.Logf("whole peer list: %d bytes, %d tokens", len(raw), len(raw)/4)
}

func TestHomeListIsItsScope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, names, _ := b.home.list()
	require.Equal(t, "list_todos,get_todo,claim,claim_next,heartbeat,complete,fail,release,ask,create,discover,friend_request,friends,whoami", names)
	b.endpoints.change("home", func(c *endpoint.Caller) { c.Endpoint.Tools = []string{"complete", "claim_next"} })
	_, names, _ = b.home.list()
	require.Equal(t, "claim_next,complete,whoami", names, "the next list, same token")
}

func TestEveryToolSaysAllFourHints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := map[string]string{"create_for": "nnyy", "todo_status": "ynyn", "list_created": "ynyn", "whoami": "ynyn", "answer": "nnyy", "cancel_todo": "nyyy"}
	for _, c := range []client{b.peer, b.home} {
		tools, _, _ := c.list()
		for _, tool := range tools {
			got := ""
			for _, h := range []*bool{tool.Annotations.ReadOnlyHint, tool.Annotations.DestructiveHint, tool.Annotations.IdempotentHint, tool.Annotations.OpenWorldHint} {
				require.NotNil(t, h, tool.Name)
				got += map[bool]string{true: "y", false: "n"}[*h]
			}
			if w, ok := want[tool.Name]; ok {
				require.Equal(t, w, got, tool.Name)
			}
		}
	}
}

// calls are good and bad calls of every tool. A bad one is its code and the
// arguments.
var calls = map[string]struct {
	good []string
	bad  map[string]string
}{
	"create_for": {
		good: []string{
			`{"queue":"reviews","title":"T","idempotency_key":"k"}`,
			`{"queue":"reviews","title":"T","idempotency_key":"k","body":"b","payload":{"pr":7},"priority":1,"not_before":"2030-01-01T00:00:00Z","deadline":"2031-01-01T00:00:00+02:00","traceparent":"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"}`,
			`{"items":[{"queue":"reviews","title":"T","idempotency_key":"k"},{"queue":"other","title":"T","idempotency_key":"k"},{"title":1}]}`,
			`{"queue":"reviews","title":"T","idempotency_key":"k","body":null,"priority":null}`,
			`{"queue":"reviews","title":"a \\u0000 in text is not U+0000","idempotency_key":"k"}`,
		},
		bad: map[string]string{
			`{"queue":"reviews","title":"T"}`:                                                                                           "invalid_argument",
			`{"queue":"reviews","title":"","idempotency_key":"k"}`:                                                                      "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","contextBudgetTokens":9}`:                                             "invalid_argument",
			`{"Queue":"reviews","title":"T","idempotency_key":"k"}`:                                                                     "invalid_argument",
			`{"queue":"reviews","title":"T","title":"U","idempotency_key":"k"}`:                                                         "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","payload":{"a":1,"a":2}}`:                                             "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","payload":"\u0000"}`:                                                  "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","payload":"\ud800"}`:                                                  "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","payload":1e400}`:                                                     "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","payload":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`: "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","priority":0}`:                                                        "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","priority":10}`:                                                       "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","priority":"5"}`:                                                      "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","not_before":"tomorrow"}`:                                             "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","traceparent":"x"}`:                                                   "invalid_argument",
			`{"queue":"reviews","title":"` + strings.Repeat("é", 201) + `","idempotency_key":"k"}`:                                      "invalid_argument",
			`{"queue":"reviews","title":"T","idempotency_key":"k","body":"` + strings.Repeat("x", 64<<10+1) + `"}`:                      "payload_too_large",
			`{"queue":"inbox","title":"T","idempotency_key":"k"}`:                                                                       "not_found",
			`{"items":[]}`: "invalid_argument",
			`{"items":[` + strings.Repeat(`{},`, 100) + `{}]}`: "invalid_argument",
			`{"items":[{}],"queue":"reviews"}`:                 "invalid_argument",
			`{"items":{}}`:                                     "invalid_argument",
			`[]`:                                               "invalid_argument",
			`"text"`:                                           "invalid_argument",
		},
	},
	"todo_status": {
		good: []string{`{"todo_id":"` + aTodo.String() + `"}`, `{"todo_id":"` + aTodo.String() + `","wait_seconds":50,"since_version":0}`},
		bad: map[string]string{
			`{}`: "invalid_argument", `{"todo_id":"x"}`: "invalid_argument",
			`{"todo_id":"` + aTodo.String() + `","wait_seconds":51}`:  "invalid_argument",
			`{"todo_id":"` + aTodo.String() + `","wait_seconds":-1}`:  "invalid_argument",
			`{"todo_id":"` + aTodo.String() + `","wait_seconds":1.5}`: "invalid_argument",
		},
	},
	"list_created": {
		good: []string{`{}`, `{"state":"done","queue":"reviews","cursor":"c","limit":100}`},
		bad:  map[string]string{`{"state":"finished"}`: "invalid_argument", `{"limit":101}`: "invalid_argument", `{"limit":0}`: "invalid_argument", `{"cursor":"` + strings.Repeat("x", 2000) + `"}`: "invalid_argument"},
	},
	"answer": {
		good: []string{`{"todo_id":"` + aTodo.String() + `","text":"yes"}`, `{"todo_id":"` + aTodo.String() + `","text":"yes","question_id":"` + aTodo.String() + `","payload":[1],"idempotency_key":"k"}`},
		bad:  map[string]string{`{"todo_id":"` + aTodo.String() + `"}`: "invalid_argument", `{"todo_id":"` + aTodo.String() + `","text":"yes","question_id":"1"}`: "invalid_argument"},
	},
	"cancel_todo": {
		good: []string{`{"todo_id":"` + aTodo.String() + `","reason":"no longer needed"}`},
		bad:  map[string]string{`{}`: "invalid_argument", `{"todo_id":"` + aTodo.String() + `","reason":"` + strings.Repeat("x", 2001) + `"}`: "invalid_argument"},
	},
	"whoami":     {good: []string{`{}`}, bad: map[string]string{`{"x":1}`: "invalid_argument"}},
	"list_todos": {good: []string{`{}`, `{"queue":"reviews","state":"ready","limit":1}`}, bad: map[string]string{`{"limit":0}`: "invalid_argument"}},
	"get_todo":   {good: []string{`{"todo_id":"` + aTodo.String() + `"}`}, bad: map[string]string{`{}`: "invalid_argument"}},
	"claim": {
		good: []string{`{"todo_id":"` + aTodo.String() + `","lease_seconds":1,"claim_id":"c"}`},
		bad:  map[string]string{`{"todo_id":"` + aTodo.String() + `","lease_seconds":0}`: "invalid_argument", `{"todo_id":"` + aTodo.String() + `","lease_seconds":86401}`: "invalid_argument"},
	},
	"claim_next": {
		good: []string{`{}`, `{"queues":["reviews"],"max":100,"wait_seconds":50,"lease_seconds":86400,"claim_id":"c"}`},
		bad:  map[string]string{`{"max":101}`: "invalid_argument", `{"max":0}`: "invalid_argument", `{"wait_seconds":51}`: "invalid_argument", `{"queues":[]}`: "invalid_argument", `{"queues":"reviews"}`: "invalid_argument"},
	},
	"heartbeat": {
		good: []string{`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","progress":{"percent":40,"note":"Reading."},"artifacts":[{"name":"a","media_type":"text/plain","text":""}]}`,
			`{"items":[{"todo_id":"` + aTodo.String() + `","lease_token":"fence"}]}`},
		bad: map[string]string{
			`{"todo_id":"` + aTodo.String() + `"}`:                                                                                       "invalid_argument",
			`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","progress":{"percent":101}}`:                                      "invalid_argument",
			`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","progress":{"eta":1}}`:                                            "invalid_argument",
			`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","artifacts":[{"name":"a","media_type":"text/plain"}]}`:            "invalid_argument",
			`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","artifacts":[{"name":"a","media_type":"t","text":"","url":"u"}]}`: "invalid_argument",
		},
	},
	"complete": {
		good: []string{`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","result":{"verdict":"approved"}}`,
			`{"items":[{"todo_id":"` + aTodo.String() + `","lease_token":"stale"},{"todo_id":"` + aTodo.String() + `","lease_token":"fence"}]}`},
		bad: map[string]string{`{"todo_id":"` + aTodo.String() + `","lease_token":"stale"}`: "lease_lost"},
	},
	"fail": {
		good: []string{`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","error":"e","public_message":"p","retry":false,"retry_after_seconds":5}`},
		bad: map[string]string{`{"todo_id":"` + aTodo.String() + `","lease_token":"fence"}`: "invalid_argument",
			`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","error":"e","retry_after_seconds":-1}`: "invalid_argument"},
	},
	"release":  {good: []string{`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","reason":"r"}`}, bad: map[string]string{`{"todo_id":"` + aTodo.String() + `","lease_token":"stale"}`: "lease_lost"}},
	"ask":      {good: []string{`{"todo_id":"` + aTodo.String() + `","lease_token":"fence","question":"Which?"}`}, bad: map[string]string{`{"todo_id":"` + aTodo.String() + `","lease_token":"fence"}`: "invalid_argument"}},
	"create":   {good: []string{`{"queue":"reviews","title":"T","idempotency_key":"k"}`}, bad: map[string]string{`{"queue":"reviews"}`: "invalid_argument"}},
	"discover": {good: []string{`{}`, `{"query":"review"}`}, bad: map[string]string{`{"query":1}`: "invalid_argument"}},
	"friends":  {good: []string{`{}`, `{"direction":"in"}`, `{"direction":"out"}`}, bad: map[string]string{`{"direction":"both"}`: "invalid_argument", `{"cursor":"x"}`: "invalid_argument"}},
	"friend_request": {
		good: []string{`{"action":"card","persona":"reviewer"}`, `{"action":"list"}`, `{"action":"get","request_id":"` + aTodo.String() + `"}`, `{"action":"cancel","request_id":"` + aTodo.String() + `"}`},
		bad: map[string]string{
			`{}`: "invalid_argument", `{"action":"approve"}`: "invalid_argument", `{"action":"card"}`: "invalid_argument", `{"action":"get"}`: "invalid_argument",
			`{"action":"list","request_id":"x"}`: "invalid_argument", `{"action":"send","persona":"reviewer"}`: "invalid_argument",
			`{"action":"get","request_id":"01890a5d-ac96-774b-bcce-b302099a8058"}`:                                                                                "not_found",
			`{"action":"send","persona":"reviewer","scope":{"queues":["reviews"],"verbs":["create_for"]},"reason":"r","key":{"kty":"OKP"},"idempotency_key":"k"}`: "unavailable",
			`{"action":"card","card":"https://other.example/card.json"}`:                                                                                          "unavailable",
		},
	},
}

func TestEveryTool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []client{b.peer, b.home} {
		tools, _, _ := c.list()
		for _, tool := range tools {
			in, out := compile(t, tool.InputSchema), compile(t, tool.OutputSchema)
			set, ok := calls[tool.Name]
			require.True(t, ok, "%s has no calls here", tool.Name)
			for _, args := range set.good {
				if !strings.Contains(args, `"title":1`) && !strings.Contains(args, "null") { // each a liberty of ours
					require.NoError(t, in.Validate(parsed(t, args)), "%s %s", tool.Name, args)
				}
				r := c.tool(tool.Name, args)
				v := r.content(t)
				require.Nil(t, v["error"], "%s %s: %s", tool.Name, args, r.text)
				require.NoError(t, out.Validate(any(v)), "%s %s: %s", tool.Name, args, r.text)
				require.Len(t, c.as("2025-06-18").tool(tool.Name, args).content(t), len(v))
			}
			for args, code := range set.bad {
				r := c.tool(tool.Name, args)
				got, _ := r.refused(t)
				require.Equal(t, code, got, "%s %s: %s", tool.Name, args, r.text)
				require.NoError(t, out.Validate(any(r.content(t))), "clients check refusals against the schema too")
			}
		}
	}
}

func compile(t *testing.T, schema json.RawMessage) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("schema.json", doc))
	s, err := c.Compile("schema.json")
	require.NoError(t, err)
	return s
}

func parsed(t *testing.T, s string) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(s))
	require.NoError(t, err)
	return v
}

func TestWhatTheDomainIsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.peer.tool("create_for", calls["create_for"].good[1])
	n := b.todos.last().([]todo.New)[0]
	require.Equal(t, []any{"reviews", "T", "k", "b", `{"pr":7}`, 1}, []any{n.Queue, n.Title, n.IdempotencyKey, n.Body, string(n.Payload), *n.Priority})
	require.True(t, n.Deadline.Equal(time.Date(2030, 12, 31, 22, 0, 0, 0, time.UTC)))

	r := b.peer.tool("create_for", calls["create_for"].good[2]).content(t)["results"].([]any)
	require.Len(t, r, 3)
	require.Equal(t, aTodo.String(), r[0].(map[string]any)["todo_id"])
	require.Equal(t, "not_found", r[1].(map[string]any)["error"].(map[string]any)["code"])
	require.Equal(t, "invalid_argument", r[2].(map[string]any)["error"].(map[string]any)["code"])
	require.Len(t, b.todos.last(), 2, "the bad item does not reach the domain")

	traced := b.peer.message("tools/call", map[string]any{"name": "create_for", "arguments": json.RawMessage(calls["create_for"].good[0])})
	traced["params"].(map[string]any)["_meta"].(map[string]any)["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	body, err := json.Marshal(traced)
	require.NoError(t, err)
	b.peer.post(string(body), b.peer.headers("tools/call", map[string]any{"name": "create_for"}))
	require.NotEmpty(t, b.todos.last().([]todo.New)[0].Traceparent)

	b.home.tool("claim_next", `{}`)
	require.Equal(t, todo.ClaimNext{Max: 1}, b.todos.last())
	b.home.tool("fail", calls["fail"].good[0])
	f := b.todos.last().([]todo.Failure)[0]
	require.True(t, f.NoRetry)
	require.Equal(t, 5*time.Second, *f.RetryAfter)
}

func TestAToolOutsideTheScopeIsAnUnknownTool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.vend("narrow", endpoint.Peer, []scope.Verb{scope.TodoStatus})
	for _, version := range []string{modern, "2025-11-25"} {
		c := c.as(version)
		unknown := c.tool("no_such_tool", `{}`)
		require.Equal(t, -32602, unknown.Error.Code, unknown.text)
		for _, name := range []string{"create_for", "claim_next", "friends"} {
			require.Equal(t, unknown.text, c.tool(name, `{"nonsense":1}`).text)
			require.Equal(t, unknown.status, c.tool(name, `{}`).status)
		}
	}
	require.Equal(t, -32602, b.home.tool("create_for", `{}`).Error.Code, "a worker is no friend")
}

func TestATokenThatHoldsLessThanItsEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoints.change("peer", func(c *endpoint.Caller) {
		c.Endpoint.Scope.Queues = []string{"builds", "reviews"}
		c.TokenScope = []string{"todo_status:reviews", "create_for:builds"}
	})
	_, names, _ := b.peer.list()
	require.Equal(t, "create_for,todo_status,whoami", names)
	r := b.peer.tool("cancel_todo", `{"todo_id":"`+aTodo.String()+`"}`)
	require.Equal(t, http.StatusForbidden, r.status)
	require.Contains(t, r.header.Get("WWW-Authenticate"), `error="insufficient_scope", scope="cancel_todo:builds cancel_todo:reviews"`)
	r = b.peer.tool("create_for", `{"queue":"reviews","title":"T","idempotency_key":"k"}`)
	require.Equal(t, http.StatusForbidden, r.status)
	code, _ := b.peer.tool("create_for", `{"queue":"none","title":"T","idempotency_key":"k"}`).refused(t)
	require.Equal(t, "not_found", code, "a queue outside the endpoint is not one to ask for")
}

func TestAStaleCallerIsResolvedAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stale := func(change func(*endpoint.Caller)) reply {
		// The change happens between authentication and the write.
		b.todos.wake = make(chan struct{})
		done := make(chan reply, 1)
		go func() { done <- b.peer.tool("todo_status", `{"todo_id":"`+aTodo.String()+`","wait_seconds":20}`) }()
		require.Eventually(t, func() bool { w, ok := b.todos.last().(time.Duration); return ok && w > 0 }, 5*time.Second, time.Millisecond)
		b.endpoints.change("peer", change)
		close(b.todos.wake)
		b.todos.note(b.endpoints.callers["peer"], nil)
		return <-done
	}
	require.Equal(t, aTodo.String(), stale(func(*endpoint.Caller) {}).content(t)["todo_id"], "an unimportant change is not noticed")
	require.Equal(t, -32602, stale(func(c *endpoint.Caller) { c.Endpoint.Scope.Verbs = []scope.Verb{scope.CreateFor} }).Error.Code)
	b.endpoints.change("peer", func(c *endpoint.Caller) { c.Endpoint.Scope.Verbs = scope.Verbs() })
	r := stale(func(c *endpoint.Caller) { c.Endpoint.State = endpoint.Revoked })
	r.refusedToken(t)
}

func TestErrorsOfTheDomainAreResults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.todos.err = refusal.New(refusal.RateLimited, "too many").After(1500 * time.Millisecond)
	e := b.peer.tool("todo_status", `{"todo_id":"`+aTodo.String()+`"}`).content(t)["error"].(map[string]any)
	require.Equal(t, "rate_limited", e["code"])
	require.EqualValues(t, 2, e["retry_after_seconds"])
	b.todos.err = http.ErrAbortHandler
	code, message := b.peer.tool("todo_status", `{"todo_id":"`+aTodo.String()+`"}`).refused(t)
	require.Equal(t, "internal", code)
	require.NotContains(t, message, "abort", "nothing from inside gets out")
	require.Contains(t, b.log.String(), "abort", "but into the log")
}

func TestMembersThatCannotBeHonouredAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.peer.rpc("tools/call", map[string]any{"name": "whoami", "arguments": map[string]any{}, "contextBudgetTokens": 5})
	code, _ := r.refused(t)
	require.Equal(t, "invalid_argument", code)
	r = b.peer.rpc("tools/list", map[string]any{"contextBudgetTokens": 5})
	require.Equal(t, -32602, r.Error.Code)
}

func TestStrangersTextIsVisible(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.home.tool("claim_next", `{}`)
	for _, hidden := range []string{"\u202e", "\u200b"} {
		require.NotContains(t, r.text, hidden)
	}
	f := r.content(t)["todos"].([]any)[0].(map[string]any)["from_friend"].(map[string]any)
	require.Equal(t, "evil⟦U+202E⟧txt\n  kept", f["body"])
	require.Equal(t, "release⟦U+200B⟧bot", f["calls_itself"])
	require.Equal(t, "a\u202eb", f["payload"].(map[string]any)["x"], "a document keeps its value, its spelling shows")
	require.Contains(t, r.text, `a\\u202eb`)
}

func TestAClientThatLeavesEndsItsWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.todos.wake = make(chan struct{})
	c := b.peer
	params := map[string]any{"name": "todo_status", "arguments": map[string]any{"todo_id": aTodo, "wait_seconds": 50}}
	body, err := json.Marshal(c.message("tools/call", params))
	require.NoError(t, err)
	req, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(body))
	require.NoError(t, err)
	for k, v := range c.headers("tools/call", params) {
		req.Header.Set(k, v)
	}
	tr := &http.Transport{}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		resp, err := tr.RoundTrip(req.WithContext(ctx))
		if err == nil {
			resp.Body.Close()
		}
	}()
	require.Eventually(t, func() bool { w, ok := b.todos.last().(time.Duration); return ok && w > 0 }, 5*time.Second, time.Millisecond)
	cancel()
	require.Error(t, <-b.todos.ended)
	<-done
}

func TestFriendsReadBothDirectionsAsOneList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var personas []string
	cursor := "null"
	for range 5 {
		r := b.home.tool("friends", `{"cursor":`+cursor+`}`).content(t)
		for _, g := range r["grants"].([]any) {
			g := g.(map[string]any)
			personas = append(personas, g["direction"].(string)+":"+g["persona"].(string))
			require.Equal(t, g["direction"] == "out", g["mcp_endpoint"] != nil, "a friend's URL is the friend's")
		}
		if r["next_cursor"] == nil {
			break
		}
		c, err := json.Marshal(r["next_cursor"])
		require.NoError(t, err)
		cursor = string(c)
	}
	require.Equal(t, []string{"in:reviewer", "in:reviewer", "out:bob-asked"}, personas)
}

func TestARequestersTodoStaysTheTargetsSecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NotContains(t, b.home.tool("friend_request", `{"action":"list"}`).content(t)["requests"].([]any)[0], "todo_id")
}
