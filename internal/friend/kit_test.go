package friend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	publicURL = "https://bob.example"
	slug      = "reviewer"
)

// neighbours stands in for packages todo and endpoint: what they are told within
// a transaction they keep in tables, so that a rollback takes it back.
type neighbours struct{ failVend error }

func (n *neighbours) OpenConsent(ctx context.Context, tx pgx.Tx, owner, request uuid.UUID, title string) (uuid.UUID, error) {
	id := uuid.Must(uuid.NewV7())
	_, err := tx.Exec(ctx, `INSERT INTO test_todo (id, owner, request, title, state) VALUES ($1, $2, $3, $4, 'ready')`, id, owner, request, title)
	return id, err
}

func (n *neighbours) FinishConsent(ctx context.Context, tx pgx.Tx, owner, request uuid.UUID, outcome todo.State, _ json.RawMessage) error {
	tag, err := tx.Exec(ctx, `UPDATE test_todo SET state = $3 WHERE owner = $1 AND request = $2 AND state = 'ready'`, owner, request, string(outcome))
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("consent todo of %s is not open", request)
	}
	return err
}

func (n *neighbours) CancelByEndpoint(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID, reason string) (int, error) {
	_, err := tx.Exec(ctx, `UPDATE test_endpoint SET canceled = $3 WHERE owner = $1 AND id = $2`, owner, id, reason)
	return 1, err
}

func (n *neighbours) RetitleConsent(context.Context, pgx.Tx, uuid.UUID, uuid.UUID, string) error {
	return nil
}
func (n *neighbours) Woken(uuid.UUID) {}

func (n *neighbours) VendPeer(ctx context.Context, tx pgx.Tx, e endpoint.PeerSpec) error {
	if n.failVend != nil {
		return n.failVend
	}
	_, err := tx.Exec(ctx, `INSERT INTO test_endpoint (id, owner, scope, state, expires_at, line, key) VALUES ($1, $2, $3, 'active', $4, $5, $6)`,
		e.ID, e.Owner, e.Scope, e.ExpiresAt, e.Line, e.KeyThumbprint)
	return err
}

func (n *neighbours) ChangePeer(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID, c endpoint.Change) error {
	var state *string
	if c.State != nil {
		s := string(*c.State)
		state = &s
	}
	tag, err := tx.Exec(ctx, `
		UPDATE test_endpoint
		SET scope = coalesce($3, scope), expires_at = coalesce($4, expires_at), state = coalesce($5, state), version = version + 1
		WHERE owner = $1 AND id = $2 AND state IN ('active', 'paused')`, owner, id, c.Scope, c.ExpiresAt, state)
	if err == nil && tag.RowsAffected() != 1 {
		err = refusal.New(refusal.Conflict, "endpoint %s is over", id)
	}
	return err
}

func (n *neighbours) Changed(uuid.UUID) {}

func (n *neighbours) RegisterKey(ctx context.Context, tx pgx.Tx, jkt string, _ json.RawMessage, persona string, _ []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO test_key (jkt, persona) VALUES ($1, $2) ON CONFLICT DO NOTHING`, jkt, persona)
	return err
}

func (n *neighbours) QueuesExist(context.Context, uuid.UUID, []string) error { return nil }

func (n *neighbours) Notify(ctx context.Context, tx pgx.Tx, notice friend.Notice) error {
	_, err := tx.Exec(ctx, `INSERT INTO test_notice (kind, state) VALUES ($1, $2)`, notice.Kind, notice.State)
	return err
}

// bundle is an instance with a persona of bob's, and issuers around it.
type bundle struct {
	t          *testing.T
	pool       *pgxpool.Pool
	options    friend.Options
	store      *friend.Store
	personas   *persona.Store
	idp        *provenancetest.World
	neighbours *neighbours
	bob        uuid.UUID
	persona    persona.Persona
	sent       int
}

type tweak func(*setupOptions)

type setupOptions struct {
	entries func([]provenance.Issuer) []provenance.Issuer
}

// onlyPlain leaves one issuer; ramped makes it a new one.
func onlyPlain(o *setupOptions) {
	o.entries = func(all []provenance.Issuer) []provenance.Issuer { return all[:1] }
}

func ramped(o *setupOptions) {
	o.entries = func(all []provenance.Issuer) []provenance.Issuer { all[0].Ramp = true; return all }
}

func setup(t *testing.T, tweaks ...tweak) *bundle {
	t.Helper()
	so := setupOptions{entries: func(all []provenance.Issuer) []provenance.Issuer { return all }}
	for _, tw := range tweaks {
		tw(&so)
	}
	b := &bundle{t: t, pool: pgtest.Pool(t), neighbours: &neighbours{}, bob: uuid.Must(uuid.NewV7())}
	_, err := b.pool.Exec(t.Context(), `
		CREATE TABLE test_todo (id uuid PRIMARY KEY, owner uuid, request uuid UNIQUE, title text, state text);
		CREATE TABLE test_endpoint (id uuid PRIMARY KEY, owner uuid, scope jsonb, state text, expires_at timestamptz, line uuid, key text, version int DEFAULT 1, canceled text);
		CREATE TABLE test_key (jkt text, persona text, PRIMARY KEY (jkt, persona));
		CREATE TABLE test_notice (kind text, state text)`)
	require.NoError(t, err)

	b.idp = provenancetest.NewWorld(t, publicURL, slug, time.Now())
	seal, err := provenance.NewSealer(make([]byte, 32))
	require.NoError(t, err)
	b.personas = persona.New(b.pool, persona.Options{Queues: b.neighbours, Record: activity.Record})
	b.options = friend.Options{
		PublicURL: publicURL, Dev: true,
		Verifier: provenance.NewVerifier(so.entries(b.idp.Entries()), provenance.NewKeys(provenance.GuardedClient(true))),
		Sealer:   seal, Personas: b.personas, Endpoints: b.neighbours, Todos: b.neighbours, Notify: b.neighbours, Record: activity.Record,
	}
	b.store = friend.New(b.pool, b.options)
	b.persona = b.newPersona(b.bob, slug)
	return b
}

// offers are what every persona of the tests offers.
func offers() []scope.Offer {
	n := func(v int64) *int64 { return &v }
	return []scope.Offer{
		{Queue: "reviews", Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.ListCreated}, Limits: scope.Partial{MaxOpen: n(30), ExpiresInDays: n(180)}},
		{Queue: "triage", Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Partial{MaxOpen: n(10)}},
	}
}

func (b *bundle) newPersona(owner uuid.UUID, slug string) persona.Persona {
	b.t.Helper()
	agent, err := b.personas.CreateAgent(b.t.Context(), owner, "agent of "+slug, "")
	require.NoError(b.t, err)
	p, err := b.personas.Create(b.t.Context(), owner, persona.Spec{
		AgentID: agent.ID, Slug: slug, Name: slug, Queues: []string{"reviews", "triage"}, Offers: offers(), Visibility: persona.Listed,
	})
	require.NoError(b.t, err)
	return p
}

// from is who sends a request and what it says; the zero value is alice, with a
// new key, asking the reviewer to review.
type from struct {
	sub, issuer string
	key         *provenance.Key
	persona     string
	messageID   string
	reason      string
	scope       *scope.Asked
	supersedes  uuid.UUID
	token       provenancetest.JWS
}

func newKey(t testing.TB) *provenance.Key {
	t.Helper()
	k, err := provenance.NewKey()
	require.NoError(t, err)
	return k
}

func reviewScope() *scope.Asked {
	return &scope.Asked{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}}
}

func (b *bundle) fill(f from) from {
	or := func(s *string, otherwise string) {
		if *s == "" {
			*s = otherwise
		}
	}
	b.sent++
	or(&f.sub, "alice")
	or(&f.issuer, "plain")
	or(&f.persona, slug)
	or(&f.messageID, fmt.Sprintf("m-%d-%s", b.sent, uuid.NewString()))
	or(&f.reason, "Hand you pull requests that touch billing for review.")
	if f.key == nil {
		f.key = newKey(b.t)
	}
	if f.scope == nil {
		f.scope = reviewScope()
	}
	return f
}

// sign makes a submission that is good unless f says otherwise.
func (b *bundle) sign(f from) friend.Submission {
	b.t.Helper()
	f = b.fill(f)
	obtain := func(_ context.Context, nonce string) (string, error) {
		token := f.token
		claims := map[string]any{"sub": f.sub, "name": f.sub, "email": f.sub + "@alice.example"}
		for k, v := range token.Claims {
			claims[k] = v
		}
		token.Claims = claims
		return b.idp.IDToken(b.t, f.issuer, nonce, token), nil
	}
	part, err := provenance.Build(b.t.Context(), f.key, b.wish(f), provenance.To{Aud: publicURL, Persona: f.persona}, time.Now, obtain)
	require.NoError(b.t, err)
	return friend.Submission{Persona: f.persona, MessageID: f.messageID, Part: part, Address: netip.MustParseAddr("127.0.0.1")}
}

func (b *bundle) wish(f from) provenance.Request {
	supersedes := ""
	if f.supersedes != uuid.Nil {
		supersedes = f.supersedes.String()
	}
	return provenance.Request{From: provenance.From{Name: "release-bot"}, Reason: f.reason, Scope: *f.scope, Supersedes: supersedes}
}

func (b *bundle) submit(f from) (friend.Request, error) {
	b.t.Helper()
	r, _, err := b.store.Submit(b.t.Context(), b.sign(f))
	return r, err
}

// pending submits and requires success.
func (b *bundle) pending(f from) friend.Request {
	b.t.Helper()
	r, err := b.submit(f)
	require.NoError(b.t, err)
	require.Equal(b.t, friend.Pending, r.State)
	return r
}

// granted submits and approves as requested.
func (b *bundle) granted(f from) friend.Grant {
	b.t.Helper()
	r := b.pending(f)
	g, err := b.store.Approve(b.t.Context(), r.Owner, r.ID, friend.Approval{})
	require.NoError(b.t, err)
	return g
}

type txn = pgx.Tx

func (b *bundle) inTx(f func(context.Context, txn) error) error {
	ctx := b.t.Context()
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return f(ctx, tx) })
}

// rows counts the rows of every table.
func (b *bundle) rows() map[string]int {
	b.t.Helper()
	names, err := b.pool.Query(b.t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename`)
	require.NoError(b.t, err)
	tables, err := pgx.CollectRows(names, pgx.RowTo[string])
	require.NoError(b.t, err)
	counts := map[string]int{}
	for _, name := range tables {
		counts[name] = b.count(`SELECT count(*) FROM ` + pgx.Identifier{name}.Sanitize())
	}
	return counts
}

func (b *bundle) count(sql string, args ...any) int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

func (b *bundle) text(sql string, args ...any) string {
	b.t.Helper()
	var s string
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&s))
	return s
}

// age moves a time into the past, which is how the tests let days go by.
func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

func refused(t testing.TB, want refusal.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, refusal.CodeOf(err), "%v", err)
}

// refusedStoringNothing requires the refusal and that no row came or went.
func (b *bundle) refusedStoringNothing(want refusal.Code, do func() error) {
	b.t.Helper()
	before := b.rows()
	refused(b.t, want, do())
	require.Equal(b.t, before, b.rows())
}

// pgtestOpen is a second replica's pool on the same database.
func pgtestOpen(b *bundle) *pgxpool.Pool {
	b.t.Helper()
	return pgtest.Open(b.t, b.pool.Config().ConnString())
}
