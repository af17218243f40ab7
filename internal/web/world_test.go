package web_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/activity"
	"switchboard/internal/devidp"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/notify"
	"switchboard/internal/persona"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
	"switchboard/internal/web"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is what the other packages would know, in memory: pages are tested for
// what they show and call, the packages behind them for what they do.
type world struct {
	mu        sync.Mutex
	requests  []friend.Request
	grants    []friend.Grant
	out       []friend.Grant
	blocks    []friend.Block
	items     []todo.InboxItem
	queues    []todo.Queue
	todos     []todo.Detail
	endpoints []endpoint.Endpoint
	holders   []endpoint.Holder
	agents    []persona.Agent
	personas  []persona.Persona
	events    []activity.Event

	approvals []friend.Approval
	declines  []friend.Refusal
	narrowed  []scope.Asked
	created   []todo.New
	vended    int
	partial   bool
	guests    [][]byte
	refuse    error // the next change is refused with this
}

func (w *world) refused() error {
	err := w.refuse
	w.refuse = nil
	return err
}

func (w *world) KnownRequester(_ context.Context, identity []byte) (bool, error) {
	return slices.ContainsFunc(w.guests, func(g []byte) bool { return bytes.Equal(g, identity) }), nil
}

// wake is what postgres.Wake would be, with one topic for everything.
type wake struct {
	mu     sync.Mutex
	topics [][]string
	woken  chan struct{}
	ended  int
}

func (k *wake) Watch(topics ...string) (<-chan struct{}, func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.topics = append(k.topics, topics)
	if k.woken == nil {
		k.woken = make(chan struct{}, 1)
	}
	return k.woken, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.ended++
	}
}

func (k *wake) Listening() bool { return true }

type friends struct {
	*world
	web.Friends
}

func (f friends) Incoming(_ context.Context, _ uuid.UUID, state friend.RequestState, _ string, _ int) ([]friend.Request, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []friend.Request
	for _, r := range f.requests {
		if state == "" || r.State == state {
			out = append(out, r)
		}
	}
	return out, "", nil
}

func (f friends) GetIncoming(_ context.Context, _, id uuid.UUID) (friend.Request, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if r.ID == id {
			return r, nil
		}
	}
	return friend.Request{}, refusal.New(refusal.NotFound, "no such friend request")
}

func (f friends) Approve(_ context.Context, owner, id uuid.UUID, a friend.Approval) (friend.Grant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.refused(); err != nil {
		return friend.Grant{}, err
	}
	for i := range f.requests {
		r := &f.requests[i]
		if r.ID != id {
			continue
		}
		if r.State != friend.Pending {
			return friend.Grant{}, refusal.New(refusal.Conflict, "this friend request is already %s", r.State)
		}
		granted, err := r.Scope.Narrow(*a.Scope)
		if err != nil {
			return friend.Grant{}, err
		}
		f.approvals = append(f.approvals, a)
		g := friend.Grant{
			ID: newID(), Owner: owner, Persona: r.Persona, Identity: r.Identity, From: r.From, RequestID: id, EndpointID: newID(),
			Requested: r.Scope, Approved: granted, Scope: granted, State: friend.GrantActive, ApprovedAt: time.Now(),
			ExpiresAt: time.Now().Add(90 * 24 * time.Hour), Version: 1,
		}
		r.State, r.GrantID = friend.Approved, g.ID
		f.grants = append(f.grants, g)
		f.items = slices.DeleteFunc(f.items, func(i todo.InboxItem) bool { return i.FriendRequestID != nil && *i.FriendRequestID == id })
		return g, nil
	}
	return friend.Grant{}, refusal.New(refusal.NotFound, "no such friend request")
}

func (f friends) Decline(_ context.Context, _, id uuid.UUID, d friend.Refusal) (friend.Request, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.requests {
		if f.requests[i].ID == id {
			if f.requests[i].State != friend.Pending {
				return friend.Request{}, refusal.New(refusal.Conflict, "already")
			}
			f.declines = append(f.declines, d)
			f.requests[i].State = friend.Declined
			return f.requests[i], nil
		}
	}
	return friend.Request{}, refusal.New(refusal.NotFound, "no such friend request")
}

func (f friends) Grants(context.Context, uuid.UUID, string, int) ([]friend.Grant, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.grants), "", nil
}

func (f friends) Grant(_ context.Context, _, id uuid.UUID) (friend.Grant, error) {
	for _, g := range f.grants {
		if g.ID == id {
			return g, nil
		}
	}
	return friend.Grant{}, refusal.New(refusal.NotFound, "no such grant")
}

func (f friends) change(id uuid.UUID, to friend.GrantState) (friend.Grant, error) {
	if err := f.refused(); err != nil {
		return friend.Grant{}, err
	}
	for i := range f.grants {
		if f.grants[i].ID == id {
			if f.grants[i].State == to {
				return friend.Grant{}, refusal.New(refusal.Conflict, "already %s", to)
			}
			f.grants[i].State = to
			return f.grants[i], nil
		}
	}
	return friend.Grant{}, refusal.New(refusal.NotFound, "no such grant")
}

func (f friends) Pause(_ context.Context, _, id uuid.UUID) (friend.Grant, error) {
	return f.change(id, friend.GrantPaused)
}
func (f friends) Resume(_ context.Context, _, id uuid.UUID) (friend.Grant, error) {
	return f.change(id, friend.GrantActive)
}
func (f friends) Revoke(_ context.Context, _, id uuid.UUID, _ bool) (friend.Grant, error) {
	return f.change(id, friend.GrantRevoked)
}
func (f friends) Narrow(_ context.Context, _, id uuid.UUID, a scope.Asked, _ *int64) (friend.Grant, error) {
	if err := f.refused(); err != nil {
		return friend.Grant{}, err
	}
	f.narrowed = append(f.narrowed, a)
	return f.Grant(context.Background(), uuid.Nil, id)
}
func (f friends) PauseAll(context.Context, uuid.UUID) (int, error) { return 1, nil }
func (f friends) ListOwn(context.Context, friend.Asker, friend.AskerFilter, string, int) ([]friend.Request, string, int, error) {
	return nil, "", 0, nil
}
func (f friends) GrantsOut(context.Context, []byte, string, int) ([]friend.Grant, string, error) {
	return f.out, "", nil
}
func (f friends) GrantOut(_ context.Context, _ []byte, id uuid.UUID) (friend.Grant, error) {
	for _, g := range f.out {
		if g.ID == id {
			return g, nil
		}
	}
	return friend.Grant{}, refusal.New(refusal.NotFound, "no such grant")
}
func (f friends) Blocks(context.Context, uuid.UUID, string, int) ([]friend.Block, string, error) {
	return f.blocks, "", nil
}
func (f friends) Unblock(context.Context, uuid.UUID, uuid.UUID) error { f.blocks = nil; return nil }

type todos struct {
	*world
	web.Todos
}

func (t todos) Inbox(context.Context, uuid.UUID, string, int) ([]todo.InboxItem, string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.items), "", nil
}
func (t todos) Queues(context.Context, uuid.UUID, string, int) ([]todo.Queue, string, error) {
	return t.queues, "", nil
}
func (t todos) CreateQueue(_ context.Context, _ uuid.UUID, name, description string) (todo.Queue, error) {
	if !scope.QueueName(name) {
		return todo.Queue{}, refusal.Invalid("name", "name must be of [a-z0-9-]{1,63}")
	}
	q := todo.Queue{Name: name, Description: description, MaxAttempts: 5, RetentionDays: 30}
	t.queues = append(t.queues, q)
	return q, nil
}
func (t todos) QueuesExist(_ context.Context, _ uuid.UUID, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(t.queues, func(q todo.Queue) bool { return q.Name == name }) {
			return refusal.Invalid("queues", "there is no queue %s", name)
		}
	}
	return nil
}
func (t todos) UpdateQueue(context.Context, uuid.UUID, string, todo.QueuePatch) (todo.Queue, error) {
	return todo.Queue{}, t.refused()
}
func (t todos) List(_ context.Context, _ uuid.UUID, f todo.Filter, _ string, limit int) ([]todo.Detail, string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []todo.Detail
	for _, d := range t.todos {
		if (f.Queue == "" || d.Queue == f.Queue) && (f.State == "" || d.State == f.State) && len(out) < limit &&
			(f.GrantID == uuid.Nil || d.GrantID != nil && *d.GrantID == f.GrantID) {
			out = append(out, d)
		}
	}
	return out, "", nil
}
func (t todos) Get(_ context.Context, _, id uuid.UUID) (todo.Detail, error) {
	for _, d := range t.todos {
		if d.TodoID == id {
			return d, nil
		}
	}
	return todo.Detail{}, refusal.New(refusal.NotFound, "no such todo")
}
func (t todos) Day(context.Context, uuid.UUID, string) (todo.Day, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.partial {
		return todo.Day{Partial: true, Hours: [24]todo.DayHour{23: {Created: 5120, Finished: 4880}}}, nil
	}
	d := todo.Day{From: time.Now().UTC().Truncate(time.Hour).Add(-23 * time.Hour)}
	for _, x := range t.todos {
		for _, at := range []*time.Time{&x.CreatedAt, x.FinishedAt} {
			if at == nil || at.Before(d.From) {
				continue
			}
			h := &d.Hours[min(int(at.Sub(d.From)/time.Hour), 23)]
			if at == x.FinishedAt {
				h.Finished++
			} else {
				h.Created++
			}
		}
	}
	return d, nil
}
func (t todos) CreateOwn(_ context.Context, _ uuid.UUID, n todo.New) (todo.Created, error) {
	if n.Title == "" {
		return todo.Created{}, refusal.Invalid("title", "title must not be empty")
	}
	for _, c := range t.created {
		if c.IdempotencyKey == n.IdempotencyKey {
			return todo.Created{TodoID: t.todos[0].TodoID, Deduplicated: true}, nil
		}
	}
	t.created = append(t.created, n)
	return todo.Created{TodoID: t.todos[0].TodoID}, nil
}
func (t todos) AnswerOwn(context.Context, uuid.UUID, todo.Reply) (todo.Changed, error) {
	return todo.Changed{}, t.refused()
}
func (t todos) Retry(context.Context, uuid.UUID, uuid.UUID) (todo.Changed, error) {
	return todo.Changed{}, t.refused()
}
func (t todos) Used(context.Context, endpoint.Caller) (todo.Used, error) {
	return todo.Used{Open: 7, ThisHour: 51}, nil
}

type endpoints struct {
	*world
	web.Endpoints
}

func (e endpoints) List(context.Context, uuid.UUID, string, int) ([]endpoint.Endpoint, string, error) {
	return e.endpoints, "", nil
}
func (e endpoints) Get(_ context.Context, _, id uuid.UUID) (endpoint.Endpoint, error) {
	for _, x := range e.endpoints {
		if x.ID == id {
			return x, nil
		}
	}
	return endpoint.Endpoint{}, refusal.New(refusal.NotFound, "there is no such endpoint")
}
func (e endpoints) CreateHome(_ context.Context, _ uuid.UUID, s endpoint.HomeSpec) (endpoint.Endpoint, string, error) {
	if err := e.refused(); err != nil {
		return endpoint.Endpoint{}, "", err
	}
	e.vended++
	return endpoint.Endpoint{ID: newID(), Kind: endpoint.Home, Persona: "reviewer", Scope: scope.Scope{Queues: s.Queues}, ExpiresAt: time.Now().Add(90 * 24 * time.Hour)}, "sbe_7fJ2kQ9xW3mN8vB4tR6yL1pZ5cD0gHs2aE", nil
}
func (e endpoints) Holders(context.Context, uuid.UUID, uuid.UUID) ([]endpoint.Holder, error) {
	return e.holders, nil
}

type personas struct {
	*world
	web.Personas
}

func (p personas) Agents(context.Context, uuid.UUID, string, int) ([]persona.Agent, string, error) {
	return p.agents, "", nil
}
func (p personas) CreateAgent(_ context.Context, owner uuid.UUID, name, description string) (persona.Agent, error) {
	a := persona.Agent{ID: newID(), Owner: owner, Name: name, Description: description}
	p.agents = append(p.agents, a)
	return a, nil
}
func (p personas) List(context.Context, uuid.UUID, string, int) ([]persona.Persona, string, error) {
	return p.personas, "", nil
}
func (p personas) Get(_ context.Context, _, id uuid.UUID) (persona.Persona, error) {
	for _, x := range p.personas {
		if x.ID == id {
			return x, nil
		}
	}
	return persona.Persona{}, refusal.New(refusal.NotFound, "there is no such persona")
}
func (p personas) Create(_ context.Context, owner uuid.UUID, s persona.Spec) (persona.Persona, error) {
	if err := p.refused(); err != nil {
		return persona.Persona{}, err
	}
	x := persona.Persona{ID: newID(), Owner: owner, AgentID: s.AgentID, Slug: s.Slug, Name: s.Name, Queues: s.Queues, Offers: s.Offers, Visibility: s.Visibility, WhoMayAsk: s.WhoMayAsk}
	p.personas = append(p.personas, x)
	return x, nil
}
func (p personas) CreateWithAgent(ctx context.Context, owner uuid.UUID, s persona.Spec, name string) (persona.Persona, error) {
	s.AgentID = newID()
	x, err := p.Create(ctx, owner, s)
	if err == nil {
		p.agents = append(p.agents, persona.Agent{ID: s.AgentID, Owner: owner, Name: name})
	}
	return x, err
}
func (p personas) SlugTaken(_ context.Context, _ uuid.UUID, slug string) (bool, error) {
	return slug == "taken", nil
}
func (p personas) Update(context.Context, uuid.UUID, uuid.UUID, persona.Patch) (persona.Persona, error) {
	return persona.Persona{}, p.refused()
}

type record struct{ *world }

func (r record) List(context.Context, uuid.UUID, activity.Filter, string, int) ([]activity.Event, string, error) {
	return r.events, "", nil
}

type notices struct{ off *[]string }

func (n notices) MailOff(_ context.Context, of string) error {
	*n.off = append(*n.off, of)
	return nil
}

func (notices) SendTest(context.Context, uuid.UUID) error { return nil }
func (notices) Status(context.Context, uuid.UUID) ([]notify.Status, error) {
	return []notify.Status{{Channel: "email", Why: "you have not turned e-mail on"}, {Channel: "webhook", On: true, LastError: "the webhook answered 500", LastFailure: time.Now().Add(-time.Hour), Failures: 3}}, nil
}
func (notices) RotateSecret(context.Context, uuid.UUID) (string, error) { return "whsec_x", nil }

type nobody struct{}

func (nobody) HumanCreated(context.Context, pgx.Tx, uuid.UUID) error { return nil }

// bundle is an instance with pages, and a browser.
type bundle struct {
	*world
	t      *testing.T
	server *httptest.Server
	pool   *pgxpool.Pool
	issuer string
	client *http.Client
}

func setup(t *testing.T, residents ...string) *bundle {
	t.Helper()
	return setupWith(t, func(*web.Deps, *human.Config) {}, residents...)
}

func setupWith(t *testing.T, change func(*web.Deps, *human.Config), residents ...string) *bundle {
	t.Helper()
	if residents == nil {
		residents = []string{"bob@example.com"}
	}
	p, err := devidp.Start(t.Context(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	b := &bundle{world: &world{}, t: t, pool: pgtest.Pool(t), issuer: p.Issuer()}
	b.server = httptest.NewUnstartedServer(nil)
	public := "http://" + b.server.Listener.Addr().String()
	client := provenance.GuardedClient(true)
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	sealer, err := provenance.NewSealer(key)
	require.NoError(t, err)
	list, err := human.NewResidents(residents, true)
	require.NoError(t, err)
	humans := human.Config{
		PublicURL: public, IDTokens: provenance.NewKeys(client), Client: client, Sealer: sealer, Residents: list,
		Arrivals: nobody{}, Requesters: b.world, Dev: true,
		Issuers: []provenance.Issuer{{
			Issuer: p.Issuer(), Name: "Development", Algs: []string{"ES256"}, Login: &provenance.LoginClient{ClientID: devidp.LoginClient},
			Identity: []string{"iss", "sub"}, EmailAuthoritativeFor: []string{"example.com"},
		}},
	}
	deps := web.Deps{
		PublicURL: public, Friends: friends{world: b.world}, Todos: todos{world: b.world}, Endpoints: endpoints{world: b.world},
		Personas: personas{world: b.world}, Activity: record{b.world}, Issuers: []web.Issuer{{p.Issuer(), "Development"}, {"https://accounts.example", ""}},
		PollEvery: 10 * time.Millisecond, Notices: notices{off: new([]string)},
	}
	change(&deps, &humans)
	deps.Humans, err = human.New(b.pool, humans)
	require.NoError(t, err)
	b.server.Config.Handler = web.New(deps)
	b.server.Start()
	t.Cleanup(b.server.Close)
	b.forget()
	return b
}

// forget starts with a new browser.
func (b *bundle) forget() {
	jar, err := cookiejar.New(nil)
	require.NoError(b.t, err)
	b.client = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) to() string { return a.header.Get("Location") }

func (b *bundle) do(method, path string, form url.Values, headers ...string) answer {
	b.t.Helper()
	address := path
	if strings.HasPrefix(path, "/") {
		address = b.server.URL + path
	}
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, body)
	require.NoError(b.t, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.server.URL)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := b.client.Do(r)
	require.NoError(b.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	return answer{res.StatusCode, res.Header, string(text)}
}

func (b *bundle) get(path string, headers ...string) answer {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil, headers...)
}

// signIn walks the redirects as a browser would, and returns where they end.
func (b *bundle) signIn(person, returnTo string) answer {
	b.t.Helper()
	next := "/login?prompt=none&login_hint=" + person + "&return_to=" + url.QueryEscape(returnTo)
	for range 10 {
		a := b.get(next)
		if a.status < 300 || a.status >= 400 {
			return a
		}
		next = a.to()
	}
	b.t.Fatal("sign-in did not end")
	return answer{}
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// post sends a form of a page, with the page's own hidden fields left to the caller.
func (b *bundle) post(path string, form url.Values, headers ...string) answer {
	b.t.Helper()
	m := csrfField.FindStringSubmatch(b.get("/friends").body)
	require.NotNil(b.t, m, "a page with a form")
	if form == nil {
		form = url.Values{}
	}
	form.Set("csrf", m[1])
	return b.do(http.MethodPost, path, form, headers...)
}

func newID() uuid.UUID {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err)
	}
	return id
}

func ref[T any](v T) *T { return &v }

// fill puts a lived-in instance into the world: what pages look like in use.
func (b *bundle) fill() {
	now := time.Now()
	alice := friend.Identity{Hash: []byte("alice"), Issuer: b.issuer, Subject: "q1w2e3r4t5y6", Email: "alice@example.com", Name: "Alice"}
	carol := friend.Identity{Hash: []byte("carol"), Issuer: "https://accounts.example", Subject: "10987654321", Name: "Carol"}
	asked := scope.Scope{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.ListCreated, scope.CancelTodo}, Limits: scope.Defaults()}
	offers := []scope.Offer{{Queue: "reviews", Verbs: scope.Verbs(), Limits: scope.Partial{MaxOpen: ref[int64](50), PerHour: ref[int64](120)}}}
	ask := friend.Request{
		ID: newID(), Persona: "reviewer", Identity: alice, Key: "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs", From: friend.From{Name: "release-bot", Card: "https://alice.example/a2a/release-bot/.well-known/agent-card.json"},
		Reason: "Hand you pull requests that touch billing for review. We release on Tuesdays, so expect a handful on Mondays and next to nothing in between.",
		Scope:  asked, Offered: offers, OfferVersion: 3, State: friend.Pending, TodoID: newID(), CreatedAt: now.Add(-4 * time.Minute), ExpiresAt: now.Add(14 * 24 * time.Hour), FirstSeen: now.Add(-4 * time.Minute),
	}
	hostile := ask
	hostile.ID, hostile.Identity, hostile.From = newID(), carol, friend.From{Name: "admin\u202Egnp.exe"}
	hostile.Reason = "Verified by Switchboard\u200B\n\n\n\n\nApprove </blockquote><script>alert(1)</script> " + strings.Repeat("W", 300) + " z" + strings.Repeat("\u0336", 40)
	hostile.CreatedAt, hostile.Earlier = now.Add(-50*time.Hour), 1
	earlier := ask
	earlier.ID, earlier.Identity, earlier.State, earlier.CreatedAt, earlier.DecidedAt = newID(), carol, friend.Declined, now.Add(-70*24*time.Hour), ref(now.Add(-69*24*time.Hour))
	earlier.Note = "Not now."
	b.requests = []friend.Request{ask, hostile, earlier}
	b.items = []todo.InboxItem{
		{ID: ask.TodoID, Kind: "friend_request", FriendRequestID: &b.requests[0].ID, Queue: "inbox", CreatedAt: ask.CreatedAt},
		{ID: newID(), Kind: "friend_request", FriendRequestID: &b.requests[1].ID, Queue: "inbox", CreatedAt: hostile.CreatedAt},
		{ID: newID(), Kind: "question", Queue: "reviews", Title: "Review PR 7", Question: &todo.Question{ID: newID(), Text: "The migration drops a column that the old release still reads. Shall I approve it all the same?", AskedAt: now}, CreatedAt: now.Add(-time.Hour)},
	}
	grant := friend.Grant{
		ID: newID(), Persona: "reviewer", Identity: friend.Identity{Hash: []byte("dora"), Issuer: b.issuer, Subject: "s3", Email: "dora@example.com"}, From: friend.From{Name: "ci"}, EndpointID: newID(), EndpointURL: b.server.URL + "/mcp/019",
		Requested: asked, Approved: asked, Scope: asked, State: friend.GrantActive, ApprovedAt: now.Add(-20 * 24 * time.Hour), ExpiresAt: now.Add(70 * 24 * time.Hour), Version: 4,
	}
	paused, gone := grant, grant
	paused.ID, paused.State, paused.Identity.Email, paused.From.Name = newID(), friend.GrantPaused, "", "nightly"
	paused.Identity.Name = "Erin"
	gone.ID, gone.State, gone.EndedAt, gone.Identity.Email = newID(), friend.GrantRevoked, ref(now.Add(-2*24*time.Hour)), "frank@example.com"
	b.grants = []friend.Grant{grant, paused, gone}
	b.queues = []todo.Queue{{Name: "inbox"}, {Name: "reviews", Description: "Pull requests that want a second pair of eyes.", MaxAttempts: 5, RetentionDays: 30, Ready: 3, Leased: 1, InputRequired: 1}, {Name: "translations", Paused: true, Ready: 12}}
	agent := persona.Agent{ID: newID(), Name: "laptop", Description: "In the study"}
	b.agents = []persona.Agent{agent}
	b.personas = []persona.Persona{
		{ID: newID(), AgentID: agent.ID, Slug: "reviewer", Name: "Reviewer", Description: "Reviews pull requests for correctness and for what they do to operations.", Queues: []string{"reviews"}, Offers: offers, OfferVersion: 3, Visibility: persona.Listed, Version: 2},
		{ID: newID(), AgentID: agent.ID, Slug: "translator", Name: "Translator", Queues: []string{"translations"}, Visibility: persona.Off},
	}
	b.endpoints = []endpoint.Endpoint{
		{ID: newID(), Kind: endpoint.Home, AgentID: agent.ID, Persona: "reviewer", Scope: scope.Scope{Queues: []string{"reviews"}}, State: endpoint.Active, CreatedAt: now.Add(-30 * 24 * time.Hour), ExpiresAt: now.Add(60 * 24 * time.Hour)},
		{ID: grant.EndpointID, Kind: endpoint.Peer, GrantID: grant.ID, Persona: "reviewer", CallsItself: "ci", Scope: asked, State: endpoint.Active, CreatedAt: grant.ApprovedAt, ExpiresAt: grant.ExpiresAt},
	}
	b.holders = []endpoint.Holder{{ID: newID(), Client: "urn:ietf:params:oauth:jwk-thumbprint:sha-256:NzbLsXh8uDCcd", Kind: "key", CreatedAt: now, ExpiresAt: now.Add(15 * time.Minute), LastUsed: ref(now.Add(-2 * time.Minute))}}
	states := []todo.State{todo.Ready, todo.Ready, todo.Leased, todo.InputRequired, todo.Done, todo.Done, todo.Done, todo.Failed, todo.Canceled, todo.Ready}
	for i := range 40 {
		d := todo.Detail{TodoID: newID(), Queue: "reviews", Kind: "work", State: states[i%len(states)], Version: 3, Priority: 5, Attempt: 1 + i%3, MaxAttempts: 5, CreatedAt: now.Add(-time.Duration(i*i) * time.Minute), Artifacts: nil, GrantID: &b.grants[0].ID}
		d.FromFriend = &todo.FromFriend{Identity: "dora@example.com", CallsItself: "ci", Title: fmt.Sprintf("Review PR %d: %s", 400-i, []string{"retry the payment webhook", "drop the legacy invoice table", "bump the client library"}[i%3]), Body: "It touches the billing path.\nPlease look at the migration first."}
		switch d.State {
		case todo.Done, todo.Failed, todo.Canceled:
			d.FinishedAt = ref(d.CreatedAt.Add(time.Duration(20+i) * time.Minute))
			d.Result = json.RawMessage(`{"verdict":"approve","comments":2}`)
		case todo.Leased:
			d.LeaseExpiresAt = ref(now.Add(4 * time.Minute))
			d.Progress = &todo.Progress{Percent: ref(62.0), Note: "Reading the migration"}
		case todo.InputRequired:
			d.Question = &todo.Question{ID: newID(), Text: "Which of the two indexes may go?", AskedAt: now.Add(-time.Minute)}
		}
		d.Attempts = []todo.PriorAttempt{{Attempt: 1, Worker: b.endpoints[0].ID, StartedAt: d.CreatedAt, EndedAt: ref(d.CreatedAt.Add(time.Minute)), Outcome: "lapsed"}, {Attempt: 2, Worker: b.endpoints[0].ID, StartedAt: d.CreatedAt.Add(2 * time.Minute)}}
		b.todos = append(b.todos, d)
	}
	for i, kind := range []string{"friend_request.received", "grant.narrowed", "friend_request.approved", "endpoint.vended", "session.started", "persona.updated", "friend_request.declined"} {
		b.events = append(b.events, activity.Event{ID: newID(), Kind: kind, Actor: "human:x", Object: "grant", ObjectID: grant.ID, GrantID: grant.ID, At: now.Add(-time.Duration(i) * 5 * time.Hour), Personal: map[string]string{"calls_itself": "ci"}})
	}
	b.blocks = []friend.Block{{ID: newID(), Identity: carol, CreatedAt: now.Add(-3 * 24 * time.Hour)}}
}

func personIdentity(t *testing.T, issuer, person string) []byte {
	t.Helper()
	p, ok := devidp.PersonNamed(person)
	require.True(t, ok)
	entry := provenance.Issuer{Issuer: issuer, Identity: []string{"iss", "sub"}}
	who, err := entry.Person([]byte(`{"iss":"` + issuer + `","sub":"` + p.Subject + `"}`))
	require.NoError(t, err)
	return who.Identity
}
