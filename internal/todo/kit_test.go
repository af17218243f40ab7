package todo

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// kit is a human with two queues, a worker and a friend, on a database of their own.
type kit struct {
	tb    testing.TB // whose end is the kit's
	t     tester
	url   string
	pool  *pgxpool.Pool
	store *Store
	owner uuid.UUID
	work  endpoint.Caller // home endpoint on reviews and builds
	peer  endpoint.Caller // peer endpoint on reviews and builds
}

// tester is what a kit needs of a test, or of one run of a property.
type tester interface {
	require.TestingT
	Helper()
}

// wide are limits that no test meets by accident.
func wide() scope.Limits {
	return scope.Limits{MaxOpen: 1_000_000, PerHour: 1_000_000, MaxPayloadBytes: 65536, MaxPriority: 9, MaxDelayDays: 7, ExpiresInDays: 90}
}

func newKit(t testing.TB) *kit {
	t.Helper()
	url := pgtest.URL(t)
	k := &kit{tb: t, t: t, url: url, pool: pgtest.Open(t, url), owner: newID()}
	// Whom this package compares with is package endpoint's; a table of the same
	// shape stands in for it, so that tests say what an endpoint is in one line.
	_, err := k.pool.Exec(context.Background(), `
		DROP VIEW IF EXISTS endpoint_authority;
		CREATE TABLE stand_in (owner uuid, id uuid, version bigint NOT NULL, line uuid NOT NULL, PRIMARY KEY (owner, id));
		CREATE VIEW endpoint_authority AS SELECT id, owner, version, line FROM stand_in`)
	require.NoError(t, err)
	k.store = k.replica(Options{})
	k.newQueue("reviews")
	k.newQueue("builds")
	k.work = k.home("reviews", "builds")
	k.peer = k.friend(wide(), "reviews", "builds")
	return k
}

// replica opens another store on the same database.
func (k *kit) replica(o Options) *Store {
	k.t.Helper()
	pool := pgtest.Open(k.tb, k.url)
	wake := postgres.NewWake(k.url, postgres.WakeOptions{})
	s, err := Open(context.Background(), pool, wake, o)
	require.NoError(k.t, err)
	k.tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			k.tb.Errorf("close the store: %v", err)
		}
		wake.Close()
	})
	return s
}

func (k *kit) newQueue(name string) {
	k.t.Helper()
	ctx := context.Background()
	require.NoError(k.t, pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error { return k.store.HumanCreated(ctx, tx, k.owner) }))
	_, err := k.store.CreateQueue(ctx, k.owner, name, "")
	require.NoError(k.t, err)
}

func (k *kit) vend(e endpoint.Endpoint) endpoint.Caller {
	k.t.Helper()
	e.ID, e.Owner, e.Version, e.State = newID(), k.owner, 1, endpoint.Active
	if e.Line == uuid.Nil {
		e.Line = newID()
	}
	k.exec(`INSERT INTO stand_in (owner, id, version, line) VALUES ($1, $2, 1, $3)`, e.Owner, e.ID, e.Line)
	return endpoint.Caller{Endpoint: e, Until: time.Now().Add(time.Hour)}
}

func (k *kit) home(queues ...string) endpoint.Caller {
	return k.vend(endpoint.Endpoint{Kind: endpoint.Home, Scope: scope.Scope{Queues: queues}})
}

func (k *kit) friend(l scope.Limits, queues ...string) endpoint.Caller {
	return k.vend(endpoint.Endpoint{
		Kind: endpoint.Peer, GrantID: newID(), IdentityText: "alice@example.org", CallsItself: "release-bot",
		Scope: scope.Scope{Queues: queues, Verbs: scope.Verbs(), Limits: l},
	})
}

func (k *kit) exec(sql string, args ...any) {
	k.t.Helper()
	_, err := k.pool.Exec(context.Background(), sql, args...)
	require.NoError(k.t, err)
}

// create puts one todo into reviews for the friend.
func (k *kit) create(key string, change ...func(*New)) Created {
	k.t.Helper()
	n := New{Queue: "reviews", Title: "look at " + key, IdempotencyKey: key}
	for _, f := range change {
		f(&n)
	}
	out, err := k.store.Create(context.Background(), k.peer, []New{n})
	require.NoError(k.t, err)
	require.NoError(k.t, out[0].Err)
	return out[0].Value
}

// next claims the next todo of reviews.
func (k *kit) next() Claimed {
	k.t.Helper()
	got := k.claim(1)
	require.Len(k.t, got, 1)
	return got[0]
}

func (k *kit) claim(max int) []Claimed {
	k.t.Helper()
	got, err := k.store.ClaimNext(context.Background(), k.work, ClaimNext{Queues: []string{"reviews"}, Max: max})
	require.NoError(k.t, err)
	return got
}

func (k *kit) status(id uuid.UUID) Status {
	k.t.Helper()
	st, err := k.store.Status(context.Background(), k.peer, id, 0, nil)
	require.NoError(k.t, err)
	return st
}

// lapse makes the leases of a todo as old as they need to be.
func (k *kit) lapse(id uuid.UUID) {
	k.exec(`UPDATE todo_live SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE id = $1`, id)
}

// due makes a todo that backs off due.
func (k *kit) due(id uuid.UUID) {
	k.exec(`UPDATE todo_live SET not_before = clock_timestamp() - interval '1 second' WHERE id = $1 AND not_before IS NOT NULL`, id)
	k.exec(`UPDATE todo_timer SET at = clock_timestamp() - interval '1 second' WHERE todo = $1 AND what = 'due'`, id)
}

func requireCode(t tester, code refusal.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, refusal.CodeOf(err), "%v", err)
}
