package todo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
)

// Options adjusts a [Store]; the zero value is usable.
type Options struct {
	Logger *slog.Logger
	// Workers and Direct bound what is on its way to the database at once; see
	// [postgres.BatchOptions].
	Workers, Direct int
	// PollEvery is how often waiting calls are looked after though nothing woke
	// them; default 1 s.
	PollEvery time.Duration
	// ReapEvery is how often [Store.Run] looks for what has lapsed; default 1 s.
	ReapEvery time.Duration
}

// Store is the queue on one database. Any number of them may share it.
type Store struct {
	pool    *pgxpool.Pool // for reading and for what is not in batches
	writers *pgxpool.Pool // for batches: few connections, planned for look-ups
	batch   *postgres.Batcher[*work, struct{}]
	wake    *postgres.Wake
	hub     *hub
	lanes   *lanes
	glances chan struct{} // holds those on their way
	known   *contents
	log     *slog.Logger
	o       Options
}

// Open returns a store on the pool's database. wake carries hints between
// replicas. The caller closes the store before the pool and the wake.
func Open(ctx context.Context, pool *pgxpool.Pool, wake *postgres.Wake, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Workers == 0 {
		o.Workers = 2
	}
	if o.Direct == 0 {
		o.Direct = 4
	}
	if o.PollEvery == 0 {
		o.PollEvery = time.Second
	}
	if o.ReapEvery == 0 {
		o.ReapEvery = time.Second
	}
	s := &Store{pool: pool, wake: wake, lanes: newLanes(), glances: make(chan struct{}, 2), known: newContents(), log: o.Logger, o: o}
	writers, err := writerPool(ctx, pool, int32(max(o.Workers, o.Direct)+2))
	if err != nil {
		return nil, err
	}
	s.writers = writers
	s.batch = postgres.NewBatcher(s.execute, postgres.BatchOptions[*work]{
		Workers:  o.Workers,
		Direct:   o.Direct,
		MaxItems: 256,
		Spread:   20 * itemSize,
		Size:     func(w *work) int { return w.size },
		Owner:    func(w *work) string { return string(w.auth.owner[:]) },
		// A tenant with a thousand calls waiting leaves room for the others.
		MaxPerOwner: 192,
	})
	s.hub = newHub(s)
	return s, nil
}

// writerPool opens the connections of the batches. Their statements are planned
// once, without knowledge of the parameters, and never by a scan of a table or a
// hash of one: each looks single rows up, whatever the statistics say.
func writerPool(ctx context.Context, pool *pgxpool.Pool, conns int32) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MaxConns = conns
	config.MinIdleConns = 0
	if config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheDescribe {
		for _, p := range []struct{ name, value string }{
			{"plan_cache_mode", "force_generic_plan"},
			{"enable_seqscan", "off"},
			{"enable_bitmapscan", "off"},
			{"enable_hashjoin", "off"},
			{"enable_mergejoin", "off"},
			{"enable_memoize", "off"},
			{"enable_sort", "off"}, // where an index has the order, it is to be used
			{"enable_incremental_sort", "off"},
			{"jit", "off"},
		} {
			config.ConnConfig.RuntimeParams[p.name] = p.value
		}
	}
	writers, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("make the pool of the todo queue: %w", err)
	}
	return writers, nil
}

// Close waits for what is on its way and ends the store's goroutines. Waiting
// calls return. When ctx ends first, what is still on its way is cancelled.
func (s *Store) Close(ctx context.Context) error {
	s.hub.close()
	err := s.batch.Close(ctx)
	s.writers.Close()
	return err
}

// newID makes a UUIDv7.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// unavailable turns a fault between us and the database into something that a
// caller can act upon.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	var r *refusal.Error
	if errors.As(err, &r) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if code := postgres.SQLState(err); code != "" && code[:2] != "57" && code[:2] != "53" && code[:2] != "08" && code[:2] != "40" {
		return err // a fault of ours
	}
	return refusal.New(refusal.Unavailable, "the database did not answer; repeat the call").After(time.Second).Because(err)
}

var errNoTodo = refusal.New(refusal.NotFound, "no such todo")
var errNoQueue = refusal.New(refusal.NotFound, "no such queue")
var errLeaseLost = refusal.New(refusal.LeaseLost, "this lease is no longer held: the lease token is not the current one")
