package mcp_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/mcp"
	"switchboard/internal/persona"
	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const public = "https://bob.example"

// instance is bob's, real from the handler down to PostgreSQL.
type instance struct {
	t       *testing.T
	url     string
	persona persona.Persona
	first   replica
	alice   *provenance.Key
}

// replica is one process of it.
type replica struct {
	address   string
	pool      *pgxpool.Pool
	endpoints *endpoint.Store
}

// Hold is what package endpoint asks package persona.
func (i *instance) Hold(_ context.Context, _ pgx.Tx, owner, id uuid.UUID) (persona.Persona, error) {
	if owner != i.persona.Owner || id != i.persona.ID {
		return persona.Persona{}, refusal.New(refusal.NotFound, "there is no such persona")
	}
	return i.persona, nil
}

func newInstance(t *testing.T) *instance {
	t.Helper()
	i := &instance{t: t, url: pgtest.URL(t), persona: persona.Persona{ID: newID(), Owner: newID(), AgentID: newID(), Slug: "reviewer", Queues: []string{"reviews", "builds"}}}
	var err error
	i.alice, err = provenance.NewKey()
	require.NoError(t, err)
	var todos *todo.Store
	i.first, todos = i.replica()
	require.NoError(t, pgx.BeginFunc(t.Context(), i.first.pool, func(tx pgx.Tx) error { return todos.HumanCreated(t.Context(), tx, i.persona.Owner) }))
	for _, q := range i.persona.Queues {
		_, err := todos.CreateQueue(t.Context(), i.persona.Owner, q, "")
		require.NoError(t, err)
	}
	return i
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

func (i *instance) replica() (replica, *todo.Store) {
	pool := pgtest.Open(i.t, i.url)
	wake := postgres.NewWake(i.url, postgres.WakeOptions{})
	todos, err := todo.Open(context.Background(), pool, wake, todo.Options{})
	require.NoError(i.t, err)
	endpoints := endpoint.New(pool, endpoint.Options{
		PublicURL: public, Personas: i, OnChange: func(owner, _ uuid.UUID) { todos.Woken(owner) },
		Record: func(context.Context, pgx.Tx, ...activity.Event) error { return nil },
	})
	h, err := mcp.New(mcp.Deps{PublicURL: public, Version: "test", Endpoints: endpoints, Todos: todos,
		Directory: fakeDirectory{}, Friends: fakePeople{}, Humans: fakePeople{}, Cards: fakeCards{}})
	require.NoError(i.t, err)
	srv := httptest.NewServer(h)
	i.t.Cleanup(func() {
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(i.t, todos.Close(ctx))
		wake.Close()
	})
	return replica{address: srv.URL, pool: pool, endpoints: endpoints}, todos
}

// id is that of the client's endpoint.
func (c client) id(t *testing.T) uuid.UUID {
	t.Helper()
	id, err := uuid.Parse(c.url[strings.LastIndex(c.url, "/")+1:])
	require.NoError(t, err)
	return id
}

// at is the client of an endpoint, talking to one replica.
func (i *instance) at(r replica, id uuid.UUID, token string) client {
	return client{t: i.t, url: r.address + "/mcp/" + id.String(), host: "bob.example", token: token, version: modern}
}

func (i *instance) worker() client {
	i.t.Helper()
	e, credential, err := i.first.endpoints.CreateHome(i.t.Context(), i.persona.Owner, endpoint.HomeSpec{AgentID: i.persona.AgentID, PersonaID: i.persona.ID})
	require.NoError(i.t, err)
	return i.at(i.first, e.ID, credential)
}

// friend vends a peer endpoint to alice's key, as an approval does, and takes a
// token for it.
func (i *instance) friend(s scope.Scope) (uuid.UUID, client) {
	i.t.Helper()
	id, identity := newID(), []byte("alice's identity, thirty-two byte")
	err := pgx.BeginFunc(i.t.Context(), i.first.pool, func(tx pgx.Tx) error {
		if err := i.first.endpoints.RegisterKey(i.t.Context(), tx, i.alice.Thumbprint(), i.alice.Public().JWK(), i.persona.Slug, identity); err != nil {
			return err
		}
		return i.first.endpoints.VendPeer(i.t.Context(), tx, endpoint.PeerSpec{
			ID: id, Owner: i.persona.Owner, AgentID: i.persona.AgentID, PersonaID: i.persona.ID, Persona: i.persona.Slug, GrantID: newID(), Line: newID(),
			Scope: s, Identity: identity, CallsItself: "release-bot", KeyThumbprint: i.alice.Thumbprint(), ExpiresAt: time.Now().Add(time.Hour),
		})
	})
	require.NoError(i.t, err)
	return id, i.at(i.first, id, i.token(id))
}

// token takes one for alice's endpoint.
func (i *instance) token(id uuid.UUID, scope ...string) string {
	i.t.Helper()
	client := endpoint.ClientIDPrefix + i.alice.Thumbprint()
	assertion, err := i.alice.SignJWT(map[string]any{"typ": "JWT"}, map[string]any{
		"iss": client, "sub": client, "aud": public, "jti": rand.Text(), "iat": time.Now().Unix(), "exp": time.Now().Unix() + 60,
	})
	require.NoError(i.t, err)
	token, err := i.first.endpoints.IssueForKey(i.t.Context(), endpoint.KeyGrant{Assertion: assertion, Resource: public + "/mcp/" + id.String(), Scope: scope})
	require.NoError(i.t, err)
	return token.Access
}

func (i *instance) change(id uuid.UUID, c endpoint.Change) {
	i.t.Helper()
	require.NoError(i.t, pgx.BeginFunc(i.t.Context(), i.first.pool, func(tx pgx.Tx) error {
		return i.first.endpoints.ChangePeer(i.t.Context(), tx, i.persona.Owner, id, c)
	}))
	i.first.endpoints.Changed(id)
}

func wide() scope.Scope {
	return scope.Scope{Queues: []string{"reviews"}, Verbs: scope.Verbs(), Limits: scope.Defaults()}
}

// TestWork_OverTheWire: a todo's life between a friend and a worker, with every
// tool, one lost lease, one question and one answer.
func TestWork_OverTheWire(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	_, alice := i.friend(wide())
	bob := i.worker()
	must := func(r reply) map[string]any {
		t.Helper()
		require.Equal(t, http.StatusOK, r.status, r.text)
		require.Nil(t, r.Error, r.text)
		v := r.content(t)
		require.Nil(t, v["error"], r.text)
		return v
	}
	code := func(r reply) string { t.Helper(); c, _ := r.refused(t); return c }
	js := func(s string, args ...string) string {
		for _, a := range args {
			s = strings.Replace(s, "?", a, 1)
		}
		return s
	}

	const work = `{"queue":"reviews","title":"Review 7","idempotency_key":"pr-7","body":"It touches billing.","payload":{"pr":7}}`
	made := must(alice.tool("create_for", work))
	id := made["todo_id"].(string)
	require.Equal(t, []any{"ready", false}, []any{made["state"], made["deduplicated"]})
	require.Equal(t, true, must(alice.as("2025-03-26").tool("create_for", work))["deduplicated"])
	require.Equal(t, "conflict", code(alice.tool("create_for", js(`{"queue":"reviews","title":"?","idempotency_key":"pr-7"}`, "Other"))))
	outside, none := alice.tool("create_for", `{"queue":"builds","title":"T","idempotency_key":"k"}`), alice.tool("create_for", `{"queue":"Not a name","title":"T","idempotency_key":"k"}`)
	require.Equal(t, "not_found", code(outside))
	require.Equal(t, outside.content(t)["error"].(map[string]any)["message"], none.content(t)["error"].(map[string]any)["message"])

	one := must(bob.tool("claim_next", `{"queues":["reviews"],"lease_seconds":60}`))["todos"].([]any)[0].(map[string]any)
	require.Equal(t, id, one["todo_id"])
	require.Equal(t, "It touches billing.", one["from_friend"].(map[string]any)["body"])
	require.NotContains(t, one, "title", "a friend's words stand in from_friend and nowhere else")
	require.Empty(t, must(bob.tool("claim_next", `{}`))["todos"])
	fence := one["lease_token"].(string)
	require.NotContains(t, alice.tool("todo_status", js(`{"todo_id":"?"}`, id)).text, fence)
	must(bob.tool("heartbeat", js(`{"todo_id":"?","lease_token":"?","progress":{"percent":40,"note":"Reading."}}`, id, fence)))
	require.EqualValues(t, 40, must(alice.tool("todo_status", js(`{"todo_id":"?"}`, id)))["progress"].(map[string]any)["percent"])
	require.Equal(t, "ready", must(bob.tool("release", js(`{"todo_id":"?","lease_token":"?","reason":"lunch"}`, id, fence)))["state"])

	two := must(bob.tool("claim", js(`{"todo_id":"?","claim_id":"c"}`, id)))["lease_token"].(string)
	require.Equal(t, "lease_lost", code(bob.tool("complete", js(`{"todo_id":"?","lease_token":"?","result":{}}`, id, fence))))
	require.Equal(t, "input_required", must(bob.tool("ask", js(`{"todo_id":"?","lease_token":"?","question":"Which file?"}`, id, two)))["state"])
	seen := must(alice.tool("todo_status", js(`{"todo_id":"?"}`, id)))
	question := seen["question"].(map[string]any)
	require.Equal(t, "conflict", code(alice.tool("answer", js(`{"todo_id":"?","text":"b.go","question_id":"?"}`, id, newID().String()))))
	must(alice.tool("answer", js(`{"todo_id":"?","text":"b.go","question_id":"?"}`, id, question["id"].(string))))

	three := must(bob.tool("claim_next", `{"wait_seconds":10}`))["todos"].([]any)[0].(map[string]any)
	require.Equal(t, "b.go", three["exchanges"].([]any)[0].(map[string]any)["answer"].(map[string]any)["text"])
	waited := make(chan reply, 1)
	since := must(alice.tool("todo_status", js(`{"todo_id":"?"}`, id)))["version"].(float64)
	go func() {
		waited <- alice.tool("todo_status", js(`{"todo_id":"?","wait_seconds":30,"since_version":?}`, id, strconv.FormatFloat(since, 'f', 0, 64)))
	}()
	must(bob.tool("complete", js(`{"items":[{"todo_id":"?","lease_token":"?","result":{"verdict":"approved"}}]}`, id, three["lease_token"].(string))))
	final := must(<-waited)
	require.Equal(t, "done", final["state"])
	require.Equal(t, "approved", final["result"].(map[string]any)["verdict"])
	require.Len(t, must(alice.tool("list_created", `{"state":"done"}`))["todos"], 1)
	whole := must(bob.tool("get_todo", js(`{"todo_id":"?"}`, id)))
	require.Len(t, whole["attempts"], 3)
	require.Len(t, whole["exchanges"], 1)
	require.Len(t, must(bob.tool("list_todos", `{"queue":"reviews"}`))["todos"], 1)

	next := must(alice.tool("create_for", `{"items":[{"queue":"reviews","title":"A","idempotency_key":"a"},{"queue":"reviews","title":"B","idempotency_key":"b"},{"queue":"builds","title":"C","idempotency_key":"c"}]}`))["results"].([]any)
	require.Equal(t, "not_found", next[2].(map[string]any)["error"].(map[string]any)["code"])
	require.Equal(t, "canceled", must(alice.tool("cancel_todo", js(`{"todo_id":"?"}`, next[0].(map[string]any)["todo_id"].(string))))["state"])
	own := must(bob.tool("create", `{"queue":"builds","title":"Mine","idempotency_key":"m"}`))["todo_id"].(string)
	mine, unknown := alice.tool("todo_status", js(`{"todo_id":"?"}`, own)), alice.tool("todo_status", js(`{"todo_id":"?"}`, newID().String()))
	require.Equal(t, "not_found", code(mine))
	require.Equal(t, mine.content(t)["error"].(map[string]any)["message"], unknown.content(t)["error"].(map[string]any)["message"])
	me := must(alice.tool("whoami", `{}`))
	require.Equal(t, map[string]any{"open": 1.0, "this_hour": 3.0}, me["used"])
	require.Equal(t, "in", me["direction"])
	require.Equal(t, "home", must(bob.tool("whoami", `{}`))["direction"])
}

// TestAnotherReplica_InTheMiddleOfAClientsLife: nothing of a client is kept in
// a process, so a restart and a move go unnoticed.
func TestAnotherReplica_InTheMiddleOfAClientsLife(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	id, alice := i.friend(wide())
	require.Equal(t, http.StatusOK, alice.as("2025-11-25").rpc("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}).status)
	second, _ := i.replica()
	moved := i.at(second, id, alice.token)
	require.Equal(t, "ready", moved.as("2025-11-25").tool("create_for", `{"queue":"reviews","title":"T","idempotency_key":"k"}`).content(t)["state"])

	waiting := make(chan reply, 1)
	todoID := moved.tool("list_created", `{}`).content(t)["todos"].([]any)[0].(map[string]any)["todo_id"].(string)
	go func() { waiting <- moved.tool("todo_status", `{"todo_id":"`+todoID+`","wait_seconds":40}`) }()
	narrow := scope.Scope{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor}, Limits: scope.Defaults()}
	i.change(id, endpoint.Change{Scope: &narrow})
	_, names, _ := moved.list()
	require.Equal(t, "create_for,whoami", names, "narrowed on one replica is narrowed on the other")
	select {
	case r := <-waiting:
		require.NotNil(t, r.Error, r.text)
		require.Equal(t, -32602, r.Error.Code, "a wait whose authority ended answers as a new call would")
	case <-time.After(10 * time.Second):
		t.Fatal("the waiting call did not notice")
	}
}

// TestChanged_NothingTakesEffectAfterwards: callers on three replicas hammer an
// endpoint while its owner takes something away. Once that has answered, no
// call that needs it takes effect on any replica. SWITCHBOARD_TEST_REPETITIONS
// has each done more than once.
func TestChanged_NothingTakesEffectAfterwards(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	second, _ := i.replica()
	third, _ := i.replica()
	revoked, paused, past := endpoint.Revoked, endpoint.Paused, time.Now().Add(-time.Second)
	limits := scope.Defaults()
	limits.MaxOpen, limits.PerHour = 1_000_000, 1_000_000
	all := scope.Scope{Queues: []string{"builds", "reviews"}, Verbs: scope.Verbs(), Limits: limits}
	otherQueue, otherVerb := all, all
	otherQueue.Queues = []string{"builds"}
	otherVerb.Verbs = []scope.Verb{scope.TodoStatus}
	for name, change := range map[string]endpoint.Change{
		"revoke": {State: &revoked}, "pause": {State: &paused}, "expire": {ExpiresAt: &past}, "narrow to another queue": {Scope: &otherQueue}, "narrow to another verb": {Scope: &otherVerb},
	} {
		t.Run(name, func(t *testing.T) {
			for range repetitions(t) {
				nothingAfter(t, i, []replica{i.first, second, third}, all, change)
			}
		})
	}
	id, alice := i.friend(all)
	i.change(id, endpoint.Change{State: &revoked})
	gone, unknown := alice.rpc("tools/list", nil), i.at(i.first, newID(), alice.token).rpc("tools/list", nil)
	gone.refusedToken(t)
	unknown.refusedToken(t)
}

// nothingAfter has many callers hammer a new endpoint on three replicas while it
// is changed.
func nothingAfter(t *testing.T, i *instance, at []replica, granted scope.Scope, change endpoint.Change) {
	t.Helper()
	id, alice := i.friend(granted)
	clients := []client{i.at(at[0], id, alice.token), i.at(at[1], id, alice.token), i.at(at[2], id, alice.token)}
	var changed atomic.Bool
	var acknowledged, after atomic.Int64
	var wg sync.WaitGroup
	for n := range 64 {
		c := clients[n%3]
		wg.Go(func() {
			for k := 0; ; k++ {
				late := changed.Load()
				r := c.tool("create_for", `{"queue":"reviews","title":"T","idempotency_key":"`+strconv.Itoa(n)+`-`+strconv.Itoa(k)+`"}`)
				if !strings.Contains(r.text, `"structuredContent":{"todo_id"`) {
					return
				}
				acknowledged.Add(1)
				if late {
					after.Add(1)
					return
				}
			}
		})
	}
	time.AfterFunc(100*time.Millisecond, func() {
		i.change(id, change)
		changed.Store(true)
	})
	wg.Wait()
	require.True(t, changed.Load())
	require.Zero(t, after.Load())
	var stored int64
	require.NoError(t, i.first.pool.QueryRow(t.Context(), `SELECT count(*) FROM todo_live l JOIN endpoint e ON e.owner = l.owner AND e.line = l.line WHERE e.id = $1`, id).Scan(&stored))
	require.Equal(t, acknowledged.Load(), stored, "what was acknowledged is there, and nothing else")
}

// repetitions is how often a race is run.
func repetitions(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SWITCHBOARD_TEST_REPETITIONS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}
