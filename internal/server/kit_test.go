package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/human"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is one instance over real HTTP and PostgreSQL, with its issuer.
type world struct {
	url      string
	database string
	config   Config
	issuer   *devidp.Provider
}

func newWorld(t *testing.T) *world {
	t.Helper()
	idp, err := devidp.Start(t.Context(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256})
	require.NoError(t, err)
	t.Cleanup(func() { _ = idp.Close() })
	issuers, err := provenance.ParseIssuers([]byte(`
- issuer: `+idp.Issuer()+`
  algs: [ES256]
  email_authoritative_for: [example.com]
  login: {client_id: switchboard-login}
  provenance:
    max_auth_age: 3600
    published_client: {client_id: switchboard-friend, redirect_uris: ["http://127.0.0.1/callback"], scope: openid email}
`), true)
	require.NoError(t, err)
	residents, err := human.NewResidents([]string{"*"}, true)
	require.NoError(t, err)
	w := &world{issuer: idp, database: pgtest.URL(t)}
	w.config = Config{
		DatabaseURL: w.database, Issuers: issuers, SealKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Residents: residents, Dev: true,
	}
	l := listen(t)
	w.url = "http://" + l.Addr().String()
	w.config.PublicURL = w.url
	w.replica(t, l)
	return w
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// replica starts a process of the instance on l; it ends with the test.
func (w *world) replica(t *testing.T, l net.Listener) {
	t.Helper()
	out := io.Discard
	if testing.Verbose() {
		out = os.Stderr
	}
	s, err := New(t.Context(), w.config, "test", slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	require.NoError(t, err)
	s.publicListener = l
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

// person is somebody's browser.
type person struct {
	t    *testing.T
	base string
	http *http.Client
}

func (w *world) signIn(t *testing.T, name string) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	p := &person{t: t, base: w.url, http: &http.Client{Jar: jar, Timeout: time.Minute}}
	p.get("/login?prompt=none&login_hint="+url.QueryEscape(name), nil)
	var me struct{ Name string }
	p.get("/v1/me", &me)
	require.True(t, strings.EqualFold(name, me.Name), me.Name)
	return p
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (p *person) do(method, path string, body any, header ...string) reply {
	p.t.Helper()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		require.NoError(p.t, err)
		content = bytes.NewReader(b)
	}
	target := path
	if strings.HasPrefix(path, "/") {
		target = p.base + path
	}
	r, err := http.NewRequestWithContext(p.t.Context(), method, target, content)
	require.NoError(p.t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for n := 0; n+1 < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	resp, err := p.http.Do(r)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return reply{resp.StatusCode, resp.Header, string(b)}
}

func (p *person) must(method, path string, body, into any) {
	p.t.Helper()
	r := p.do(method, path, body)
	require.Less(p.t, r.status, 300, "%s %s: %s", method, path, r.body)
	if into != nil {
		require.NoError(p.t, json.Unmarshal([]byte(r.body), into), r.body)
	}
}

func (p *person) get(path string, into any) { p.t.Helper(); p.must(http.MethodGet, path, nil, into) }
func (p *person) post(path string, body, into any) {
	p.t.Helper()
	p.must(http.MethodPost, path, body, into)
}

// stranger is a client without any session.
func (w *world) stranger(t *testing.T) *person {
	return &person{t: t, base: w.url, http: &http.Client{Timeout: time.Minute}}
}

// home is what a person publishes to be asked for: one agent, one queue, one
// persona, one home endpoint.
type home struct {
	queue, slug, personaID, url, credential string
}

var offerLimits = map[string]any{"max_open": 50, "per_hour": 500}

func (p *person) publish(slug string) home {
	p.t.Helper()
	var agent, persona struct{ ID string }
	p.post("/v1/agents", map[string]any{"name": slug}, &agent)
	h := home{queue: slug + "-work", slug: slug}
	p.post("/v1/queues", map[string]any{"name": h.queue}, nil)
	p.post("/v1/personas", map[string]any{
		"agent_id": agent.ID, "slug": slug, "name": slug, "prompt": "Work.", "queues": []string{h.queue}, "visibility": "listed",
		"offers": []any{map[string]any{"queue": h.queue, "verbs": scope.Verbs(), "limits": offerLimits}},
	}, &persona)
	h.personaID = persona.ID
	var e struct{ URL, Credential string }
	p.post("/v1/endpoints", map[string]any{"kind": "home", "agent_id": agent.ID, "persona_id": persona.ID, "queues": []string{h.queue}}, &e)
	h.url, h.credential = e.URL, e.Credential
	return h
}

// friendship is a request on its way to a grant.
type friendship struct {
	q        *requester.Requester
	store    *requester.Store
	request  *requester.Request
	endpoint *requester.Endpoint
}

// ask sends a friend request to h as the named person's agent.
func (w *world) ask(t *testing.T, name string, h home, asked scope.Asked) *friendship {
	t.Helper()
	f := &friendship{q: requester.New(30 * time.Second)}
	var err error
	f.store, err = requester.Open(t.TempDir())
	require.NoError(t, err)
	card, err := f.q.Find(t.Context(), w.url+"/a2a/"+h.slug)
	require.NoError(t, err)
	ask, err := requester.Ask{Card: card, Name: name + "-bot", Reason: "Because.", Scope: asked}.Prepare()
	require.NoError(t, err)
	f.request, err = f.q.Send(t.Context(), f.store, ask, requester.SignIn{Headless: name})
	require.NoError(t, err)
	return f
}

// approved waits for the decision and opens the endpoint.
func (f *friendship) approved(t *testing.T) *friendship {
	t.Helper()
	require.NoError(t, f.q.Update(t.Context(), f.store, f.request))
	var err error
	f.endpoint, err = f.q.Endpoint(f.request)
	require.NoError(t, err)
	return f
}

func (f *friendship) call(t *testing.T, tool string, arguments, into any) *requester.Result {
	t.Helper()
	r, err := f.endpoint.Call(t.Context(), tool, arguments)
	require.NoError(t, err)
	if into != nil {
		require.False(t, r.IsError, "%s: %s", tool, r.Text)
		require.NoError(t, json.Unmarshal(r.Structured, into))
	}
	return r
}

// work calls a tool of a home endpoint.
func (w *world) work(t *testing.T, h home, tool string, arguments, into any) reply {
	t.Helper()
	r := w.stranger(t).do(http.MethodPost, h.url, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}},
		"Authorization", "Bearer "+h.credential, "Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2025-11-25")
	if into != nil {
		var a struct {
			Result struct {
				StructuredContent json.RawMessage `json:"structuredContent"`
				IsError           bool            `json:"isError"`
			} `json:"result"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &a), r.body)
		require.False(t, a.Result.IsError, r.body)
		require.NoError(t, json.Unmarshal(a.Result.StructuredContent, into), r.body)
	}
	return r
}
