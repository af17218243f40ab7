package todo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

// rawTable is that of the opponent in cmd/switchboard-bench.
const rawTable = `
CREATE TABLE raw_todo (
	id               uuid PRIMARY KEY,
	owner            uuid NOT NULL,
	queue            text COLLATE "C" NOT NULL,
	key              text COLLATE "C" NOT NULL,
	title            text NOT NULL,
	body             text NOT NULL,
	payload          text,
	priority         smallint NOT NULL DEFAULT 5,
	state            smallint NOT NULL DEFAULT 0,
	attempt          integer NOT NULL DEFAULT 0,
	not_before       timestamptz NOT NULL DEFAULT now(),
	token            uuid,
	lease_expires_at timestamptz,
	result           text,
	created_at       timestamptz NOT NULL DEFAULT now(),
	finished_at      timestamptz,
	UNIQUE (owner, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000);
CREATE INDEX raw_todo_ready ON raw_todo (owner, queue, priority DESC, id) WHERE state = 0`

type rawSide struct {
	pool   *pgxpool.Pool
	owners []uuid.UUID
}

func (r *rawSide) lifecycle(ctx context.Context, c, i int) error {
	owner, id := r.owners[c%len(r.owners)], newID()
	err := r.pool.QueryRow(ctx, `
		INSERT INTO raw_todo (id, owner, queue, key, title, body, payload) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (owner, key) DO NOTHING RETURNING id`, id, owner, "reviews", fmt.Sprintf("%d-%d-%s", c, i, id), "look at this", benchBody, `{"pr":7}`).Scan(&id)
	if err != nil {
		return err
	}
	var token uuid.UUID
	var expires time.Time
	var attempt int
	var title, body, payload string
	for {
		err = r.pool.QueryRow(ctx, `
			UPDATE raw_todo SET state = 1, attempt = attempt + 1, token = gen_random_uuid(), lease_expires_at = clock_timestamp() + interval '300 s'
			WHERE id = (
				SELECT id FROM raw_todo
				WHERE owner = $1 AND queue = $2 AND state = 0 AND not_before <= clock_timestamp()
				ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED
			)
			RETURNING id, token, lease_expires_at, attempt, title, body, payload`, owner, "reviews").Scan(&id, &token, &expires, &attempt, &title, &body, &payload)
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
	}
	if err != nil {
		return err
	}
	err = r.pool.QueryRow(ctx, `
		UPDATE raw_todo SET lease_expires_at = clock_timestamp() + interval '300 s'
		WHERE id = $1 AND token = $2 AND state = 1 RETURNING lease_expires_at`, id, token).Scan(&expires)
	if err != nil {
		return err
	}
	_, err = r.pool.Exec(ctx, `
		UPDATE raw_todo SET state = 2, result = $3, finished_at = clock_timestamp()
		WHERE id = $1 AND token = $2 AND state = 1`, id, token, `{"ok":true}`)
	return err
}

const benchBody = "Please have a look at the change to billing, in particular at the rounding of amounts in foreign currency."

type storeSide struct {
	store   *Store
	callers []endpoint.Caller
}

func (s *storeSide) lifecycle(ctx context.Context, c, i int) error {
	caller := s.callers[c%len(s.callers)]
	out, err := s.store.Create(ctx, caller, []New{{Queue: "reviews", Title: "look at this", IdempotencyKey: fmt.Sprintf("%d-%d-%s", c, i, newID()), Body: benchBody, Payload: json.RawMessage(`{"pr":7}`)}})
	if err != nil || out[0].Err != nil {
		return fmt.Errorf("create: %w %w", err, out[0].Err)
	}
	var got []Claimed
	for len(got) == 0 {
		if got, err = s.store.ClaimNext(ctx, caller, ClaimNext{}); err != nil {
			return err
		}
	}
	b, err := s.store.Heartbeat(ctx, caller, []Beat{{TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken}})
	if err != nil || b[0].Err != nil {
		return fmt.Errorf("heartbeat: %w %w", err, b[0].Err)
	}
	d, err := s.store.Complete(ctx, caller, []Completion{{TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken, Result: json.RawMessage(`{"ok":true}`)}})
	if err != nil || d[0].Err != nil {
		return fmt.Errorf("complete: %w %w", err, d[0].Err)
	}
	return nil
}

func rate(t testing.TB, callers int, length time.Duration, step func(ctx context.Context, c, i int) error) float64 {
	var n atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for c := range callers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := step(context.Background(), c, i); err != nil {
					t.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	time.Sleep(length / 5)
	a, begin := n.Load(), time.Now()
	time.Sleep(length)
	b, took := n.Load(), time.Since(begin)
	close(stop)
	wg.Wait()
	return float64(b-a) / took.Seconds()
}

// TestCompare prints the store's rate against raw SQL's; set TODO_COMPARE=1.
func TestCompare(t *testing.T) {
	if os.Getenv("TODO_COMPARE") == "" {
		t.Skip("set TODO_COMPARE=1")
	}
	ctx := context.Background()
	k := newKit(t)
	url := pgtest.URL(t)
	pool, err := postgres.Open(ctx, url, postgres.Options{MaxConns: 64})
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, rawTable)
	require.NoError(t, err)
	raw := &rawSide{pool: pool}
	_, _ = fmt.Sscan(os.Getenv("TODO_FEW"), &few)
	o := Options{}
	_, _ = fmt.Sscan(os.Getenv("TODO_WORKERS"), &o.Workers, &o.Direct)
	st := &storeSide{store: k.store}
	if o.Workers > 0 {
		st.store = k.replica(o)
	}
	for range 8 {
		h := k.human(t)
		raw.owners = append(raw.owners, h.owner)
		st.callers = append(st.callers, h.home("reviews"))
	}
	rounds, length := 3, 2*time.Second
	counts := []int{1, 4, 64}
	if s := os.Getenv("TODO_CALLERS"); s != "" {
		counts = nil
		require.NoError(t, json.Unmarshal([]byte(s), &counts))
	}
	if f := os.Getenv("TODO_PROFILE"); f != "" {
		w, err := os.Create(f)
		require.NoError(t, err)
		if os.Getenv("TODO_SIDE") == "raw" {
			fmt.Printf("profiled: %.0f/s\n", rate(t, counts[0], 6*length, raw.lifecycle))
			return
		}
		rate(t, counts[0], length, st.lifecycle)
		require.NoError(t, pprof.StartCPUProfile(w))
		fmt.Printf("profiled: %.0f/s\n", rate(t, counts[0], 6*length, st.lifecycle))
		pprof.StopCPUProfile()
		return
	}
	meter := newCPU(t, pool)
	measure := func(c int, step func(context.Context, int, int) error) (perSecond float64, cost string, total float64) {
		wal := func() (n float64) {
			require.NoError(t, pool.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn`).Scan(&n))
			return n
		}
		s0, c0 := meter.used()
		w0 := wal()
		var n atomic.Int64
		perSecond = rate(t, c, length, func(ctx context.Context, c, i int) error { n.Add(1); return step(ctx, c, i) })
		s1, c1 := meter.used()
		server, client := float64((s1-s0).Microseconds())/float64(n.Load()), float64((c1-c0).Microseconds())/float64(n.Load())
		return perSecond, fmt.Sprintf("%4.0f+%4.0f %4.0fB", server, client, (wal()-w0)/float64(n.Load())), server + client
	}
	for _, c := range counts {
		var ratios, costs []float64
		for range rounds {
			r, rc, rt := measure(c, raw.lifecycle)
			b0, i0, _ := st.store.batch.Stats()
			s, sc, stt := measure(c, st.lifecycle)
			b1, i1, re := st.store.batch.Stats()
			ratios, costs = append(ratios, s/r), append(costs, rt/stt)
			fmt.Printf("callers %2d: raw %6.0f  store %6.0f  ratio %.2f   µs server+client: raw %s store %s ratio %.2f  batch %.1f reruns %d\n", c, r, s, s/r, rc, sc, rt/stt, float64(i1-i0)/float64(b1-b0), re)
		}
		sort.Float64s(ratios)
		sort.Float64s(costs)
		fmt.Printf("callers %2d: median ratio %.2f by cpu %.2f\n", c, ratios[len(ratios)/2], costs[len(costs)/2])
	}
}
