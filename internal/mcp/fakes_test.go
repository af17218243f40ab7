package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/mcp"
	"switchboard/internal/persona"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

const modern = "2026-07-28"

// unauthorized is the body of every 401, byte for byte.
const unauthorized = `{"error":"invalid_token"}`

var legacy = []string{"2025-11-25", "2025-06-18", "2025-03-26"}

// fakeEndpoints knows endpoints and, for each, one token of the same name.
type fakeEndpoints struct {
	mu        sync.Mutex
	callers   map[string]endpoint.Caller
	refreshed int
	broken    error
}

func (f *fakeEndpoints) Authenticate(_ context.Context, id uuid.UUID, bearer string) (endpoint.Caller, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return endpoint.Caller{}, f.broken
	}
	c, ok := f.callers[bearer]
	if !ok || c.Endpoint.ID != id || c.Endpoint.State != endpoint.Active {
		return endpoint.Caller{}, refusal.New(refusal.Unauthenticated, "no")
	}
	return c, nil
}

func (f *fakeEndpoints) Shared(ctx context.Context, id uuid.UUID, bearer string) (*endpoint.Caller, error) {
	c, err := f.Authenticate(ctx, id, bearer)
	return &c, err
}

// Proven takes a proof that spells the thumbprint.
func (f *fakeEndpoints) Proven(_ context.Context, proofKey string, p endpoint.Presented) error {
	if proofKey == "" && p.Scheme == "Bearer" || proofKey != "" && p.Scheme == "DPoP" && len(p.Proofs) == 1 && p.Proofs[0] == proofKey+" for "+p.URL {
		return nil
	}
	return refusal.New(refusal.Unauthenticated, "no")
}

func (f *fakeEndpoints) Refresh(ctx context.Context, c endpoint.Caller) (endpoint.Caller, error) {
	f.mu.Lock()
	f.refreshed++
	f.mu.Unlock()
	return f.Authenticate(ctx, c.Endpoint.ID, string(c.TokenID))
}

// Live and Hold compare with what change has made of the endpoint.
func (f *fakeEndpoints) Live(ctx context.Context, c endpoint.Caller) (endpoint.Caller, error) {
	return f.Authenticate(ctx, c.Endpoint.ID, string(c.TokenID))
}

func (f *fakeEndpoints) Hold(ctx context.Context, c endpoint.Caller, do func(context.Context) error) error {
	if err := f.current(c); err != nil {
		return err
	}
	return do(ctx)
}

func (f *fakeEndpoints) change(token string, change func(*endpoint.Caller)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.callers[token]
	c.Endpoint.Version++
	change(&c)
	f.callers[token] = c
}

// current reports whether the caller is as the fake database has it.
func (f *fakeEndpoints) current(c endpoint.Caller) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callers[string(c.TokenID)].Endpoint.Version != c.Endpoint.Version {
		return endpoint.ErrStale
	}
	return nil
}

// fakeTodos answers each call with what the test put there and remembers what
// it was asked.
type fakeTodos struct {
	mcp.Todos // nil: calls that a test does not expect panic
	endpoints *fakeEndpoints

	mu      sync.Mutex
	asked   any
	err     error
	status  todo.Status
	fault   any // Status panics with it
	wake    chan struct{}
	ended   chan error
	waiting atomic.Int64
}

func (f *fakeTodos) note(c endpoint.Caller, v any) error {
	if err := f.endpoints.current(c); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = v
	return f.err
}

func (f *fakeTodos) last() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

var aTodo = uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")

func (f *fakeTodos) Create(_ context.Context, c endpoint.Caller, items []todo.New) ([]todo.Outcome[todo.Created], error) {
	if err := f.note(c, items); err != nil {
		return nil, err
	}
	out := make([]todo.Outcome[todo.Created], len(items))
	for i, n := range items {
		if n.Queue != "reviews" {
			out[i].Err = refusal.New(refusal.NotFound, "no such queue")
			continue
		}
		out[i].Value = todo.Created{TodoID: aTodo, State: todo.Ready, Version: 1}
	}
	return out, nil
}

func (f *fakeTodos) Status(ctx context.Context, c endpoint.Caller, _ uuid.UUID, wait time.Duration, _ *int64) (todo.Status, error) {
	if err := f.note(c, wait); err != nil {
		return todo.Status{}, err
	}
	if f.fault != nil {
		panic(f.fault)
	}
	if wait > 0 && f.wake != nil {
		f.waiting.Add(1)
		defer f.waiting.Add(-1)
		select {
		case <-f.wake:
		case <-ctx.Done():
			select {
			case f.ended <- ctx.Err():
			default:
			}
			return todo.Status{}, ctx.Err()
		}
		if err := f.endpoints.current(c); err != nil {
			return todo.Status{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, nil
}

func (f *fakeTodos) ListCreated(_ context.Context, c endpoint.Caller, queue string, state todo.State, cursor string, limit int) ([]todo.Status, string, error) {
	return nil, "", f.note(c, []any{queue, state, cursor, limit})
}

func (f *fakeTodos) Answer(_ context.Context, c endpoint.Caller, r todo.Reply) (todo.Changed, error) {
	return todo.Changed{TodoID: r.TodoID, State: todo.Ready, Version: 4}, f.note(c, r)
}

func (f *fakeTodos) Cancel(_ context.Context, c endpoint.Caller, id uuid.UUID, reason string) (todo.Changed, error) {
	return todo.Changed{TodoID: id, State: todo.Canceled, Version: 5}, f.note(c, reason)
}

func (f *fakeTodos) Used(_ context.Context, c endpoint.Caller) (todo.Used, error) {
	return todo.Used{Open: 2, ThisHour: 3}, f.note(c, nil)
}

func (f *fakeTodos) claimed() todo.Claimed {
	return todo.Claimed{TodoID: aTodo, Queue: "reviews", State: todo.Leased, Version: 2, LeaseToken: "fence", LeaseExpiresAt: time.Unix(1700000000, 0), Attempt: 1, Priority: 5,
		FromFriend: &todo.FromFriend{Identity: "alice", CallsItself: "release\u200bbot", Title: "Title", Body: "evil\u202etxt\n  kept", Payload: json.RawMessage("{\"x\":\"a\u202eb\"}")}}
}

func (f *fakeTodos) Claim(_ context.Context, c endpoint.Caller, _ uuid.UUID, lease time.Duration, claimID string) (todo.Claimed, error) {
	return f.claimed(), f.note(c, []any{lease, claimID})
}

func (f *fakeTodos) ClaimNext(_ context.Context, c endpoint.Caller, n todo.ClaimNext) ([]todo.Claimed, error) {
	if err := f.note(c, n); err != nil {
		return nil, err
	}
	if n.Max > 1 {
		return nil, nil
	}
	return []todo.Claimed{f.claimed()}, nil
}

func (f *fakeTodos) Heartbeat(_ context.Context, c endpoint.Caller, items []todo.Beat) ([]todo.Outcome[todo.Beaten], error) {
	out := make([]todo.Outcome[todo.Beaten], len(items))
	for i, b := range items {
		out[i].Value = todo.Beaten{TodoID: b.TodoID, State: todo.Leased, Version: 3, LeaseExpiresAt: time.Unix(1700000000, 0)}
	}
	return out, f.note(c, items)
}

func changed[T any](items []T, fence func(T) string) []todo.Outcome[todo.Changed] {
	out := make([]todo.Outcome[todo.Changed], len(items))
	for i, it := range items {
		if fence(it) != "fence" {
			out[i].Err = refusal.New(refusal.LeaseLost, "the lease is lost")
			continue
		}
		out[i].Value = todo.Changed{TodoID: aTodo, State: todo.Done, Version: 4}
	}
	return out
}

func (f *fakeTodos) Complete(_ context.Context, c endpoint.Caller, items []todo.Completion) ([]todo.Outcome[todo.Changed], error) {
	return changed(items, func(i todo.Completion) string { return i.LeaseToken }), f.note(c, items)
}

func (f *fakeTodos) Fail(_ context.Context, c endpoint.Caller, items []todo.Failure) ([]todo.Outcome[todo.Changed], error) {
	return changed(items, func(i todo.Failure) string { return i.LeaseToken }), f.note(c, items)
}

func (f *fakeTodos) Release(_ context.Context, c endpoint.Caller, items []todo.Return) ([]todo.Outcome[todo.Changed], error) {
	return changed(items, func(i todo.Return) string { return i.LeaseToken }), f.note(c, items)
}

func (f *fakeTodos) Ask(_ context.Context, c endpoint.Caller, id uuid.UUID, _, question string) (todo.Changed, error) {
	return todo.Changed{TodoID: id, State: todo.InputRequired, Version: 4}, f.note(c, question)
}

func (f *fakeTodos) ListForWorker(_ context.Context, c endpoint.Caller, queue string, state todo.State, cursor string, limit int) ([]todo.Detail, string, error) {
	return []todo.Detail{{TodoID: aTodo, Queue: "reviews"}}, "more", f.note(c, []any{queue, state, cursor, limit})
}

func (f *fakeTodos) GetForWorker(_ context.Context, c endpoint.Caller, id uuid.UUID) (todo.Detail, error) {
	return todo.Detail{TodoID: id, Queue: "reviews", State: todo.Ready}, f.note(c, id)
}

// fakePeople is everything about friends.
type fakePeople struct{ mcp.Friends }

func (fakePeople) Get(context.Context, uuid.UUID) (human.Human, error) {
	return human.Human{Identity: []byte("bob")}, nil
}

func (fakePeople) Grants(_ context.Context, _ uuid.UUID, cursor string, _ int) ([]friend.Grant, string, error) {
	if cursor == "" {
		return []friend.Grant{{Persona: "reviewer", EndpointURL: "secret to the friend", State: friend.GrantActive}}, "2", nil
	}
	return []friend.Grant{{Persona: "reviewer", State: friend.GrantPaused}}, "", nil
}

func (fakePeople) GrantsOut(_ context.Context, identity []byte, _ string, _ int) ([]friend.Grant, string, error) {
	return []friend.Grant{{Persona: string(identity) + "-asked", EndpointURL: "https://other.example/mcp/1", State: friend.GrantActive}}, "", nil
}

func (fakePeople) ListOwn(context.Context, friend.Asker, friend.AskerFilter, string, int) ([]friend.Request, string, int, error) {
	return []friend.Request{{ID: aTodo, State: friend.Pending, TodoID: uuid.New()}}, "", 1, nil
}

func (fakePeople) GetOwn(_ context.Context, a friend.Asker, id uuid.UUID) (friend.Request, error) {
	if id != aTodo || string(a.Identity) != "bob" {
		return friend.Request{}, refusal.New(refusal.NotFound, "no such request")
	}
	return friend.Request{ID: aTodo, State: friend.Pending, TodoID: uuid.New()}, nil
}

func (fakePeople) Withdraw(context.Context, friend.Asker, uuid.UUID) (friend.Request, error) {
	return friend.Request{ID: aTodo, State: friend.Withdrawn}, nil
}

type fakeDirectory struct{}

func (fakeDirectory) Search(context.Context, string, string, int) ([]persona.Entry, string, error) {
	return []persona.Entry{{Slug: "reviewer", Name: "Re\u200bviewer", Skills: []persona.EntrySkill{}}}, "", nil
}

type fakeCards struct{}

func (fakeCards) Card(_ context.Context, slug string) (json.RawMessage, error) {
	return json.RawMessage(`{"name":"` + slug + `"}`), nil
}

// bundle is one instance with a peer and a home endpoint.
type bundle struct {
	t         testing.TB
	url       string
	endpoints *fakeEndpoints
	todos     *fakeTodos
	peer      client
	home      client
	log       *bytes.Buffer
	server    *http.Server
}

func setup(t testing.TB, change ...func(*mcp.Deps)) *bundle {
	t.Helper()
	b := &bundle{t: t, log: &bytes.Buffer{}}
	b.endpoints = &fakeEndpoints{callers: map[string]endpoint.Caller{}}
	b.todos = &fakeTodos{endpoints: b.endpoints, ended: make(chan error, 1), status: todo.Status{TodoID: aTodo, Queue: "reviews", Title: "T", State: todo.Ready, Version: 1, CreatedAt: time.Unix(1700000000, 0)}}
	srv := httptest.NewUnstartedServer(nil)
	b.url = "http://" + srv.Listener.Addr().String()
	d := mcp.Deps{PublicURL: b.url, Version: "test", Endpoints: b.endpoints, Todos: b.todos, Directory: fakeDirectory{}, Friends: fakePeople{}, Humans: fakePeople{}, Cards: fakeCards{},
		Log: slog.New(slog.NewTextHandler(b.log, nil))}
	for _, f := range change {
		f(&d)
	}
	h, err := mcp.New(d)
	require.NoError(t, err)
	srv.Config.Handler = h
	b.server = srv.Config
	srv.Start()
	t.Cleanup(srv.Close)

	b.peer = b.vend("peer", endpoint.Peer, scope.Verbs())
	b.home = b.vend("home", endpoint.Home, nil)
	return b
}

// vend makes an endpoint whose one token is name.
func (b *bundle) vend(name string, kind endpoint.Kind, verbs []scope.Verb) client {
	id, err := uuid.NewV7()
	require.NoError(b.t, err)
	b.endpoints.callers[name] = endpoint.Caller{TokenID: []byte(name), Endpoint: endpoint.Endpoint{
		ID: id, Kind: kind, State: endpoint.Active, Persona: "reviewer", Version: 1, ExpiresAt: time.Unix(1900000000, 0),
		Scope: scope.Scope{Queues: []string{"reviews"}, Verbs: verbs, Limits: scope.Defaults()},
	}}
	return client{t: b.t, url: b.url + "/mcp/" + id.String(), token: name, version: modern}
}

// client speaks the wire, and nothing for us.
type client struct {
	t       testing.TB
	url     string
	host    string // sent as Host when it is another than the URL's
	token   string
	version string
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	text   string
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
	ID json.RawMessage
}

func (c client) as(version string) client { c.version = version; return c }

func (c client) message(method string, params map[string]any) map[string]any {
	p := maps.Clone(params)
	if p == nil {
		p = map[string]any{}
	}
	if c.version == modern {
		p["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion": modern, "io.modelcontextprotocol/clientCapabilities": map[string]any{},
			"io.modelcontextprotocol/clientInfo": map[string]any{"name": "test", "version": "1"},
		}
	}
	return map[string]any{"jsonrpc": "2.0", "id": 7, "method": method, "params": p}
}

func (c client) headers(method string, params map[string]any) map[string]string {
	h := map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
	if c.token != "" {
		h["Authorization"] = "Bearer " + c.token
	}
	if method != "initialize" {
		h["MCP-Protocol-Version"] = c.version
	}
	if c.version == modern {
		h["Mcp-Method"] = method
		if name, ok := params["name"].(string); ok {
			h["Mcp-Name"] = name
		}
	}
	return h
}

func (c client) rpc(method string, params map[string]any) reply {
	c.t.Helper()
	body, err := json.Marshal(c.message(method, params))
	require.NoError(c.t, err)
	return c.post(string(body), c.headers(method, params))
}

func (c client) post(body string, headers map[string]string) reply {
	c.t.Helper()
	return c.do(http.MethodPost, body, headers)
}

func (c client) do(method, body string, headers map[string]string) reply {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url, bytes.NewReader([]byte(body)))
	require.NoError(c.t, err)
	if c.host != "" {
		req.Host = c.host
	}
	for k, v := range headers {
		if k == "Host" {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	r := reply{status: resp.StatusCode, header: resp.Header, text: string(b)}
	_ = json.Unmarshal(b, &r)
	require.Empty(c.t, resp.Header.Get("Mcp-Session-Id"), "no session, ever")
	return r
}

// tool calls a tool with arguments as JSON text.
func (c client) tool(name, arguments string) reply {
	c.t.Helper()
	return c.rpc("tools/call", map[string]any{"name": name, "arguments": json.RawMessage(arguments)})
}

// content is the structuredContent of a reply, whose text must be the same.
func (r reply) content(t *testing.T) map[string]any {
	t.Helper()
	var v struct {
		IsError           bool
		StructuredContent map[string]any
		Content           []struct{ Type, Text string }
	}
	require.NoError(t, json.Unmarshal(r.Result, &v), r.text)
	require.NotNil(t, v.StructuredContent, r.text)
	require.Len(t, v.Content, 1)
	require.Equal(t, "text", v.Content[0].Type)
	same, err := json.Marshal(v.StructuredContent)
	require.NoError(t, err)
	require.JSONEq(t, string(same), v.Content[0].Text)
	require.Equal(t, v.StructuredContent["error"] != nil, v.IsError, r.text)
	return v.StructuredContent
}

// refused is the error of a tool's result.
func (r reply) refused(t *testing.T) (code, message string) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.text)
	e, ok := r.content(t)["error"].(map[string]any)
	require.True(t, ok, r.text)
	require.NotEmpty(t, e["request_id"], r.text)
	require.NotEmpty(t, e["message"], r.text)
	return e["code"].(string), e["message"].(string)
}

// refusedToken requires the one answer to whoever has no good token.
func (r reply) refusedToken(t *testing.T) {
	t.Helper()
	if r.status != http.StatusUnauthorized || r.text != unauthorized {
		t.Fatalf("%d %s", r.status, r.text)
	}
}
