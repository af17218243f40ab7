package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// wakeWaiters is how many calls wait.
const wakeWaiters = 1000

// woken is what a client found about wake-ups, in milliseconds.
type woken struct {
	P50, P99         float64 // from sending create until the claim's answer is there
	After50          float64 // from create's answer until then
	After99          float64
	Commit, Commit99 float64 // of a single row
}

// runWakes measures wake-ups within a server process and across two.
func runWakes(ctx context.Context, b *bench) error {
	in, err := newInstance(ctx, b.dev, "wake", 1, 1)
	if err != nil {
		return err
	}
	defer in.close()
	if _, err := in.pool.Exec(ctx, "CREATE TABLE bench_commit (n bigint NOT NULL)"); err != nil {
		return err
	}
	one, other, err := in.twoReplicas(ctx)
	if err != nil {
		return err
	}
	defer one.stop()   //nolint:errcheck // its failure is a failed call's
	defer other.stop() //nolint:errcheck // as above
	h := in.homes[0]
	for round := range b.rounds {
		for _, way := range []struct {
			name    string
			creator *replica
		}{{"same", one}, {"cross", other}} {
			w, err := inClient[woken](ctx, clientJob{
				Kind: "wake", Callers: min(wakeWaiters, 4*b.waiters), Samples: b.samples, Targets: targets(in.homes, one.addr, one.host),
				Creator: h.at(way.creator.addr, way.creator.host), Database: in.url,
			})
			if err != nil {
				return fmt.Errorf("round %d: %w; the server: %s", round, err, one.said())
			}
			for name, v := range map[string]float64{"p50": w.P50, "p99": w.P99, "after_create_p50": w.After50, "after_create_p99": w.After99, "commit_p50": w.Commit, "commit_p99": w.Commit99} {
				b.number("wake_"+way.name+"_"+name+"_ms", v)
			}
			b.sayf("  %s: p50 %.2f ms, p99 %.2f ms, commit p50 %.2f ms", way.name, w.P50, w.P99, w.Commit)
			b.figure("wake_p99_"+way.name, w.P99/w.Commit)
		}
	}
	return nil
}

// twoReplicas starts two server processes of the instance; both answer for the
// address of the first.
func (in *instance) twoReplicas(ctx context.Context) (one, other *replica, err error) {
	host, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	if one, err = serveInstance(ctx, in.url, host, host); err != nil {
		return nil, nil, err
	}
	second, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	other, err = serveInstance(ctx, in.url, host, second)
	return one, other, err
}

// arrival is a claimed todo and when its answer was there.
type arrival struct {
	id string
	at time.Time
}

// waiter claims and waits over one connection, again and again.
type waiter struct {
	*mcpCaller
	conn *lean
}

func newWaiters(ctx context.Context, list []target, n int) ([]*waiter, func(), error) {
	var out []*waiter
	end := func() {
		for _, w := range out {
			w.conn.close()
		}
	}
	for i := range n {
		t := list[i%len(list)]
		l, err := dialLean(ctx, t)
		if err != nil {
			end()
			return nil, nil, err
		}
		out = append(out, &waiter{mcpCaller: &mcpCaller{conn: l, queue: t.Queue, batch: 1}, conn: l})
	}
	return out, end, nil
}

// arming is how long so many calls take until all have looked, and wait.
func arming(calls int) time.Duration {
	return min(300*time.Millisecond+time.Duration(calls)*3*time.Millisecond, 4*time.Second)
}

// longestWait is the longest that a call may wait.
const longestWait = 50 * time.Second

func (w *waiter) work(ctx context.Context, arrivals chan<- arrival) error {
	for ctx.Err() == nil {
		b, err := w.call(ctx, "claim_next", func(b []byte) []byte { return appendClaim(b, 1, longestWait) })
		at := time.Now()
		if err != nil {
			return err
		}
		w.held = claimed(b, w.held[:0])
		if len(w.held) == 0 {
			continue
		}
		arrivals <- arrival{w.held[0].id, at}
		if err := items(ctx, w.mcpCaller, "complete", w.held, appendComplete); err != nil {
			return err
		}
	}
	return nil
}

// runWake is the client: so many waiting calls, and one that creates.
func runWake(ctx context.Context, job clientJob) (woken, error) {
	waiters, end, err := newWaiters(ctx, job.Targets, job.Callers)
	if err != nil {
		return woken{}, err
	}
	defer end()
	db, err := pgx.Connect(ctx, job.Database)
	if err != nil {
		return woken{}, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	l, err := dialLean(ctx, job.Creator)
	if err != nil {
		return woken{}, err
	}
	defer l.close()

	run, stop := context.WithCancelCause(ctx)
	arrivals := make(chan arrival, job.Callers)
	for _, w := range waiters {
		go func() {
			if err := w.work(run, arrivals); err != nil && run.Err() == nil {
				stop(fmt.Errorf("a waiting call: %w", err))
			}
		}()
	}
	pause(run, arming(job.Callers))
	m := wakeMeter{creator: &mcpCaller{conn: l, queue: job.Creator.Queue, keys: newKeys(0), batch: 1}, db: db, arrivals: arrivals}
	w, err := m.measure(run, job.Samples)
	if cause := context.Cause(run); cause != nil {
		err = cause
	}
	stop(nil)
	return w, err
}

type wakeMeter struct {
	creator  *mcpCaller
	db       *pgx.Conn
	arrivals chan arrival

	whole, after, commits []time.Duration
}

func (m *wakeMeter) measure(ctx context.Context, samples int) (woken, error) {
	const warmUp = 20
	for i := range samples + warmUp {
		if i == warmUp {
			m.whole, m.after, m.commits = nil, nil, nil
		}
		if err := m.sample(ctx); err != nil {
			return woken{}, err
		}
	}
	return woken{
		P50: ms(percentile(m.whole, 50)), P99: ms(percentile(m.whole, 99)),
		After50: ms(percentile(m.after, 50)), After99: ms(percentile(m.after, 99)),
		Commit: ms(percentile(m.commits, 50)), Commit99: ms(percentile(m.commits, 99)),
	}, nil
}

func (m *wakeMeter) sample(ctx context.Context) error {
	key := m.creator.keys.next()
	began := time.Now()
	b, err := m.creator.call(ctx, "create", func(b []byte) []byte { return appendCreate(b, m.creator.queue, key) })
	answered := time.Now()
	if err != nil {
		return err
	}
	id, _ := member(structured(b), "todo_id")
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case a := <-m.arrivals:
		if a.id != id {
			return fmt.Errorf("todo %s arrived, %s was created", a.id, id)
		}
		m.whole, m.after = append(m.whole, a.at.Sub(began)), append(m.after, a.at.Sub(answered))
	case <-limit.C:
		return errors.New("nobody was woken in 20 seconds")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	pause(ctx, 2*time.Millisecond) // its completion is out of the way, and the call waits again
	began = time.Now()
	if _, err := m.db.Exec(ctx, "INSERT INTO bench_commit (n) VALUES ($1)", len(m.commits)); err != nil {
		return fmt.Errorf("commit a row: %w", err)
	}
	m.commits = append(m.commits, time.Since(began))
	return nil
}
