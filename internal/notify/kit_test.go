package notify_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"switchboard/internal/activity"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/notify"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	publicURL = "https://switchboard.example"
	patience  = 20 * time.Second
	tick      = 10 * time.Millisecond
)

// people stands for package human.
type people struct {
	mu  sync.Mutex
	all []human.Human
}

func (p *people) Get(_ context.Context, id uuid.UUID) (human.Human, error) {
	return p.find(func(h human.Human) bool { return h.ID == id })
}

func (p *people) ByIdentity(_ context.Context, identity []byte) (human.Human, error) {
	return p.find(func(h human.Human) bool { return string(h.Identity) == string(identity) })
}

func (p *people) MailOff(_ context.Context, id uuid.UUID) error {
	p.change(id, func(h *human.Human) { h.Notifications.Email = false })
	return nil
}

func (p *people) find(is func(human.Human) bool) (human.Human, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.all {
		if is(h) {
			return h, nil
		}
	}
	return human.Human{}, refusal.New(refusal.NotFound, "there is no such human")
}

func (p *people) change(id uuid.UUID, f func(*human.Human)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.all {
		if p.all[i].ID == id {
			f(&p.all[i])
		}
	}
}

// requests stands for package friend.
type requests struct {
	mu       sync.Mutex
	requests map[uuid.UUID]friend.Request
	grants   map[uuid.UUID]friend.Grant
}

func (r *requests) GetIncoming(_ context.Context, owner, id uuid.UUID) (friend.Request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q, ok := r.requests[id]; ok && q.Owner == owner {
		return q, nil
	}
	return friend.Request{}, refusal.New(refusal.NotFound, "no such friend request")
}

func (r *requests) Grant(_ context.Context, owner, id uuid.UUID) (friend.Grant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.grants[id]; ok && g.Owner == owner {
		return g, nil
	}
	return friend.Grant{}, refusal.New(refusal.NotFound, "no such grant")
}

func (r *requests) set(q friend.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[q.ID] = q
}

func (r *requests) setGrant(g friend.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants[g.ID] = g
}

// sink is a mail server.
type sink struct {
	address  string
	mu       sync.Mutex
	mails    []mail
	refuse   func(to string) error
	logins   int
	password string
}

type mail struct{ From, To, Text string }

func (s *sink) received() []mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]mail(nil), s.mails...)
}

func newSink(t *testing.T, config *tls.Config) *sink {
	t.Helper()
	s := &sink{}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{sink: s}, nil }))
	server.Domain = "localhost"
	server.TLSConfig = config
	server.ErrorLog = quiet{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = l.Addr().String()
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return s
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

type session struct {
	sink *sink
	mail mail
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }
func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, _, password string) error {
		s.sink.mu.Lock()
		defer s.sink.mu.Unlock()
		s.sink.logins++
		if password != s.sink.password {
			return errors.New("no: " + password)
		}
		return nil
	}), nil
}
func (s *session) Mail(from string, _ *smtp.MailOptions) error { s.mail.From = from; return nil }
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mail.To += to
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	if s.sink.refuse != nil {
		return s.sink.refuse(to)
	}
	return nil
}
func (s *session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.mail.Text = string(text)
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	s.sink.mails = append(s.sink.mails, s.mail)
	return err
}
func (s *session) Reset()        { s.mail = mail{} }
func (s *session) Logout() error { return nil }

// hook is a webhook's receiver.
type hook struct {
	url    string
	mu     sync.Mutex
	calls  []call
	answer func(n int) int // status of the nth call, from 1
}

type call struct {
	Header http.Header
	Body   []byte
}

func (h *hook) received() []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]call(nil), h.calls...)
}

func (h *hook) answers(f func(n int) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = f
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{answer: func(int) int { return http.StatusNoContent }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls = append(h.calls, call{r.Header, body})
		w.WriteHeader(h.answer(len(h.calls)))
	}))
	t.Cleanup(server.Close)
	h.url = server.URL + "/services/token-in-the-path"
	return h
}

// instance is everything that a test needs; alice asks, bob is asked.
type instance struct {
	url        string
	pool       *pgxpool.Pool
	store      *notify.Store
	options    notify.Options
	people     *people
	friends    *requests
	sink       *sink
	hook       *hook
	alice, bob human.Human
}

func newInstance(t *testing.T, change ...func(*notify.Options)) *instance {
	t.Helper()
	i := &instance{
		url: pgtest.URL(t), people: &people{},
		friends: &requests{requests: map[uuid.UUID]friend.Request{}, grants: map[uuid.UUID]friend.Grant{}},
		sink:    newSink(t, nil), hook: newHook(t),
	}
	i.pool = pgtest.Open(t, i.url)
	i.alice = human.Human{ID: newID(t), Name: "Alice", Email: "alice@example.com", Identity: []byte("alice's identity")}
	i.bob = human.Human{ID: newID(t), Name: "Bob", Email: "bob@example.com", Identity: []byte("bob's identity")}
	i.alice.Notifications.Email = true
	i.bob.Notifications = human.Notifications{Email: true, Webhook: i.hook.url}
	i.people.all = []human.Human{i.alice, i.bob}
	sealer, err := provenance.NewSealer(make([]byte, provenance.SealKeySize))
	require.NoError(t, err)
	i.options = notify.Options{
		PublicURL: publicURL, Dev: true, SMTP: "smtp://" + i.sink.address, MailFrom: "switchboard@example.com", Sealer: sealer,
		Record: activity.Record, PollEvery: tick, Retry: func(int) time.Duration { return tick },
	}
	for _, f := range change {
		f(&i.options)
	}
	i.store = i.replica(t, i.pool)
	return i
}

// replica is another process of the same instance.
func (i *instance) replica(t *testing.T, pool *pgxpool.Pool) *notify.Store {
	t.Helper()
	s, err := notify.New(pool, i.options)
	require.NoError(t, err)
	s.Join(i.people, i.friends)
	return s
}

// run starts a replica and returns how to end it.
func run(t *testing.T, s *notify.Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Error("Run did not end with its context")
		}
	})
	t.Cleanup(stop)
	return stop
}

// request is one from alice's agent to bob's persona, pending.
func (i *instance) request(t *testing.T) friend.Request {
	t.Helper()
	r := friend.Request{
		ID: newID(t), Owner: i.bob.ID, Persona: "review-bot",
		Identity: friend.Identity{Hash: i.alice.Identity, Issuer: "https://issuer.example", Subject: "alice", Email: "alice@example.com"},
		From:     friend.From{Name: "release-bot"}, Reason: "Hand you pull requests that touch billing for review.",
		Scope: scope.Scope{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Defaults()},
		State: friend.Pending, ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	i.friends.set(r)
	return r
}

func (i *instance) grant(t *testing.T) friend.Grant {
	t.Helper()
	r := i.request(t)
	g := friend.Grant{
		ID: newID(t), Owner: r.Owner, Persona: r.Persona, Identity: r.Identity, From: r.From, RequestID: r.ID,
		Requested: r.Scope, Approved: r.Scope, Scope: r.Scope, State: friend.GrantActive, ExpiresAt: r.ExpiresAt,
	}
	i.friends.setGrant(g)
	return g
}

func received(r friend.Request) friend.Notice {
	return friend.Notice{
		Kind: "friend_request.received", Owner: r.Owner, Identity: r.Identity.Hash, Persona: r.Persona, RequestID: r.ID,
		State: string(r.State), ExpiresAt: r.ExpiresAt,
	}
}

func changed(g friend.Grant, event string) friend.Notice {
	return friend.Notice{
		Kind: "grant.changed", Owner: g.Owner, Identity: g.Identity.Hash, Persona: g.Persona, RequestID: g.RequestID, GrantID: g.ID,
		State: string(g.State), Event: event, ExpiresAt: g.ExpiresAt,
	}
}

// commit writes notices in one transaction.
func (i *instance) commit(t *testing.T, notices ...friend.Notice) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(context.Background(), i.pool, func(tx pgx.Tx) error {
		for _, n := range notices {
			if err := i.store.Notify(context.Background(), tx, n); err != nil {
				return err
			}
		}
		return nil
	}))
}

// settled waits until no job is left to do.
func (i *instance) settled(t *testing.T) {
	t.Helper()
	done := func() bool {
		return i.count(t, `SELECT count(*) FROM river_job WHERE state IN ('available', 'running', 'retryable')`) == 0
	}
	if !assert.Eventually(t, done, patience, tick) {
		t.Fatal("jobs are left: ", i.text(t, `SELECT json_agg(j)::text FROM river_job j WHERE state IN ('available', 'running', 'retryable')`))
	}
}

func (i *instance) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, i.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func (i *instance) text(t *testing.T, sql string, args ...any) string {
	t.Helper()
	var s string
	require.NoError(t, i.pool.QueryRow(context.Background(), sql, args...).Scan(&s))
	return s
}

func (i *instance) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := i.pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

func newID(t *testing.T) uuid.UUID {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return id
}

// header returns the header block of a mail, unfolded.
func header(m mail) string {
	head, _, _ := strings.Cut(m.Text, "\r\n\r\n")
	return strings.NewReplacer("\r\n ", " ", "\r\n\t", " ").Replace(head)
}
