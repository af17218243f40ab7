//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/human"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
	"switchboard/internal/server"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is one instance with its issuer, a mail server and a webhook's receiver.
type world struct {
	url    string
	issuer string
	mails  *mails
	hooks  *hooks
}

func newWorld(t *testing.T) *world {
	t.Helper()
	idp, err := devidp.Start(t.Context(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256})
	require.NoError(t, err)
	t.Cleanup(func() { _ = idp.Close() })
	issuers, err := provenance.ParseIssuers([]byte(`
- issuer: `+idp.Issuer()+`
  name: Example People
  algs: [ES256]
  email_authoritative_for: [example.com]
  login: {client_id: switchboard-login}
  provenance:
    max_auth_age: 3600
    published_client: {client_id: switchboard-friend, redirect_uris: ["http://127.0.0.1/callback"], scope: openid email}
`), true)
	require.NoError(t, err)
	residents, err := human.NewResidents([]string{"bob@example.com"}, true)
	require.NoError(t, err)
	w := &world{issuer: idp.Issuer(), mails: newMails(t), hooks: newHooks(t)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	w.url = "http://" + address
	level := slog.LevelError
	if testing.Verbose() {
		level = slog.LevelInfo
	}
	s, err := server.New(t.Context(), server.Config{
		PublicURL: w.url, Listen: address, PrivateListen: "127.0.0.1:0", DatabaseURL: pgtest.URL(t), Issuers: issuers,
		SealKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Residents: residents, Dev: true,
		SMTP: "smtp://" + w.mails.address, MailFrom: "switchboard@example.com",
	}, "test", slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	require.NoError(t, err)
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return w
}

// agent is a human's agent that asks for friendship and then hands work over.
type agent struct {
	t      *testing.T
	q      *requester.Requester
	store  *requester.Store
	person string
}

func (w *world) agent(t *testing.T, person string) *agent {
	t.Helper()
	store, err := requester.Open(t.TempDir())
	require.NoError(t, err)
	return &agent{t: t, q: requester.New(time.Minute), store: store, person: person}
}

// ask sends a friend request to a persona of the instance.
func (a *agent) ask(w *world, slug, name, reason string, asked scope.Asked) *requester.Request {
	a.t.Helper()
	card, err := a.q.Find(a.t.Context(), w.url+"/a2a/"+slug)
	require.NoError(a.t, err)
	prepared, err := requester.Ask{Card: card, Name: name, Reason: reason, Scope: asked}.Prepare()
	require.NoError(a.t, err)
	r, err := a.q.Send(a.t.Context(), a.store, prepared, requester.SignIn{Headless: a.person})
	require.NoError(a.t, err)
	return r
}

// endpoint is what the agent holds once the request is approved.
func (a *agent) endpoint(r *requester.Request) *requester.Endpoint {
	a.t.Helper()
	require.NoError(a.t, a.q.Update(a.t.Context(), a.store, r))
	e, err := a.q.Endpoint(r)
	require.NoError(a.t, err)
	return e
}

// worker calls the tools of a home endpoint with its static credential.
type worker struct {
	t               *testing.T
	url, credential string
}

func (k worker) call(tool string, arguments map[string]any, into any) {
	k.t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	require.NoError(k.t, err)
	r, err := http.NewRequestWithContext(k.t.Context(), http.MethodPost, k.url, bytes.NewReader(body))
	require.NoError(k.t, err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + k.credential, "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25",
	} {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(k.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(k.t, err)
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		for line := range strings.Lines(string(text)) {
			if data, ok := strings.CutPrefix(line, "data:"); ok {
				text = []byte(data)
			}
		}
	}
	var answer struct {
		Result struct {
			StructuredContent json.RawMessage `json:"structuredContent"`
			IsError           bool            `json:"isError"`
		} `json:"result"`
	}
	require.NoError(k.t, json.Unmarshal(text, &answer), "%d %s", res.StatusCode, text)
	require.False(k.t, answer.Result.IsError, "%s: %s", tool, text)
	if into != nil {
		require.NoError(k.t, json.Unmarshal(answer.Result.StructuredContent, into), string(text))
	}
}

// mails is a mail server that keeps what it is given.
type mails struct {
	address string
	arrived chan string
}

func newMails(t *testing.T) *mails {
	t.Helper()
	m := &mails{arrived: make(chan string, 100)}
	s := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &delivery{m}, nil }))
	s.Domain = "localhost"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m.address = l.Addr().String()
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return m
}

type delivery struct{ *mails }

func (d *delivery) Mail(string, *smtp.MailOptions) error { return nil }
func (d *delivery) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (d *delivery) Reset()                               {}
func (d *delivery) Logout() error                        { return nil }
func (d *delivery) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	d.arrived <- string(text)
	return err
}

// hooks receives webhooks.
type hooks struct {
	url     string
	arrived chan hook
}

type hook struct {
	header http.Header
	body   string
}

func newHooks(t *testing.T) *hooks {
	t.Helper()
	h := &hooks{arrived: make(chan hook, 100)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.arrived <- hook{r.Header, string(body)}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	h.url = s.URL + "/hook"
	return h
}

// within returns what arrives that is wanted, or fails.
func within[T any](t *testing.T, from <-chan T, wanted func(T) bool) T {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case v := <-from:
			if wanted(v) {
				return v
			}
		case <-timeout:
			require.FailNow(t, "nothing of the kind arrived")
		}
	}
}
