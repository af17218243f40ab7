package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"switchboard/internal/postgres"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	json    string
	only    []string
	rounds  int
	seconds float64 // of one measurement of throughput
	hold    float64 // seconds that a snapshot is held
	ready   int     // of claim_p99_growth, in thousands
	done    int
	drain   int // todos and jobs of one drain
	waiters int
	samples int    // of wake-ups, and of claims, in a round
	callers []int  // at which raw and store are compared
	profile string // directory for profiles of the server process
	costs   bool   // tell what each statement costs the database
}

// experiment is one part of a run.
type experiment struct {
	name  string
	about string
	run   func(ctx context.Context, b *bench) error
}

func experiments() []experiment {
	return []experiment{
		{"raw", "lifecycles at 1, 4, 16 and 64 callers, raw and store", runAlone},
		{"mcp", "lifecycles at 64 callers over MCP, beside raw and store", runOverMCP},
		{"drain", "drain beside River's burn-down", runDrain},
		{"wake", "create until a waiting claim returns", runWakes},
		{"waiters", "memory of a waiting call", runWaiters},
		{"snapshot", "throughput while a snapshot is held", runSnapshot},
		{"growth", "claims with millions of todos", runGrowth},
	}
}

func newBenchCommand() *cobra.Command {
	var o benchOptions
	var names []string
	for _, e := range experiments() {
		names = append(names, e.name)
	}
	c := &cobra.Command{
		Use: "bench", Short: "Compare the todo queue with raw SQL and River", Args: cobra.NoArgs,
		Long: "Compare the todo queue with raw SQL and River. How each figure is measured stands in the package's documentation\n(go doc ./cmd/switchboard-bench).",
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range o.only {
				if !slices.Contains(names, name) {
					return fmt.Errorf("--only: no experiment %q; there are %s", name, strings.Join(names, ", "))
				}
			}
			return runBench(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.json, "json", "bench.json", "where the figures are written")
	f.StringSliceVar(&o.only, "only", nil, "only these experiments: "+strings.Join(names, ", "))
	f.IntVar(&o.rounds, "rounds", 3, "rounds of each experiment")
	f.Float64Var(&o.seconds, "seconds", 4, "length of one measurement of throughput")
	f.Float64Var(&o.hold, "hold", 60, "seconds that a snapshot is held")
	f.IntVar(&o.ready, "ready", 1000, "thousands of ready todos in the large database")
	f.IntVar(&o.done, "done", 5000, "thousands of finished todos in the large database")
	f.IntVar(&o.drain, "drain", 60_000, "todos, and jobs, of one drain")
	f.IntVar(&o.waiters, "waiters", 2500, "waiting calls of bytes_per_waiter")
	f.IntSliceVar(&o.callers, "callers", []int{1, 4, 16, most}, "numbers of callers at which raw and store are compared")
	f.IntVar(&o.samples, "samples", 1000, "wake-ups of each kind in a round; of claims as many and half again")
	f.StringVar(&o.profile, "profile", "", "write CPU profiles of the server process under MCP load into this directory")
	f.BoolVar(&o.costs, "costs", false, "tell what each statement costs, by pg_stat_statements (slows the database down a little)")
	return c
}

// bench is one run.
type bench struct {
	benchOptions
	dev *postgres.DevServer
	*report
	seconds time.Duration
	raw     *rawQueue
	store   *instance // for throughput, at store level
	meter   *meter
}

// owners are those over whom callers are spread.
const owners = 8

// most is the largest number of callers.
const most = 64

// learnsItIsAlone is after how long a process that hears no other one on its database
// stops sending hints to others. Instances serve for longer than that.
const learnsItIsAlone = 16 * time.Second

// warm is how long each measurement of throughput runs before it counts.
const warm = 800 * time.Millisecond

func runBench(ctx context.Context, o benchOptions, out io.Writer) (err error) {
	b := &bench{benchOptions: o, report: newReport(out), seconds: time.Duration(o.seconds * float64(time.Second))}
	settings := map[string]string{
		// The same for every contender. Large enough that what is measured is not
		// a checkpoint of what was measured before.
		"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
	}
	if o.costs {
		settings["shared_preload_libraries"], settings["pg_stat_statements.track_planning"] = "pg_stat_statements", "on"
	}
	b.dev, err = postgres.StartThrowaway(ctx, postgres.DevOptions{Settings: settings})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.dev.Stop()) }()
	if b.raw, err = newRawQueue(ctx, b.dev, owners, most); err != nil {
		return err
	}
	defer b.raw.pool.Close()
	if b.store, err = newInstance(ctx, b.dev, "store", owners, 1); err != nil {
		return err
	}
	defer b.store.close()
	if b.meter, err = newMeter(ctx, b.store.url); err != nil {
		return err
	}
	if err := b.describe(ctx, b.store.pool); err != nil {
		return err
	}
	var failed []error
	for _, e := range experiments() {
		if len(o.only) > 0 && !slices.Contains(o.only, e.name) {
			continue
		}
		began := time.Now()
		b.sayf("%s: %s", e.name, e.about)
		if err := e.run(ctx, b); err != nil {
			// The others still say something.
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
			b.sayf("  failed: %v", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.number("seconds_"+e.name, time.Since(began).Seconds())
	}
	b.sayf("")
	b.table()
	if o.costs {
		if err := b.showCosts(ctx); err != nil {
			return err
		}
	}
	if o.json != "" {
		if err := b.write(o.json); err != nil {
			return err
		}
		fmt.Fprintln(out, "written to", o.json)
	}
	return errors.Join(failed...)
}

// rate measures what callers reach, and what a lifecycle costs in processor time.
// children are processes of ours that take part.
func (b *bench) rate(ctx context.Context, name string, f func() (measured, error), children ...int) (float64, error) {
	before, err := b.meter.read(children...)
	if err != nil {
		return 0, err
	}
	m, err := f()
	if err != nil {
		return 0, err
	}
	after, err := b.meter.read(children...)
	if err != nil {
		return 0, err
	}
	// The warm-up is paid for too, and counted here as if it were as fast.
	n := m.rate() * (m.Seconds + warm.Seconds())
	cost := after.minus(before)
	b.number(name, m.rate())
	database, ours := float64(cost.database.Microseconds())/n, float64(cost.ours.Microseconds())/n
	b.number(name+"_cpu_us_database", database)
	b.number(name+"_cpu_us_ours", ours)
	b.sayf("    %-10s %6.0f/s; each %4.0f µs of the database's processor time, %4.0f µs of ours", name, m.rate(), database, ours)
	return m.rate(), ctx.Err()
}

// rawRate is what raw reaches with so many callers.
func (b *bench) rawRate(ctx context.Context, callers int) (float64, error) {
	list, release, err := b.raw.callers(ctx, callers)
	if err != nil {
		return 0, err
	}
	defer release()
	return b.rate(ctx, fmt.Sprintf("raw_c%d", callers), func() (measured, error) {
		return drive(ctx, callers, warm, b.seconds, func(ctx context.Context, i int) (int, error) { return list[i].lifecycle(ctx) })
	})
}

// storeRate is what store reaches with so many callers.
func (b *bench) storeRate(ctx context.Context, callers int) (float64, error) {
	list, err := b.store.storeCallers(ctx, callers)
	if err != nil {
		return 0, err
	}
	return b.rate(ctx, fmt.Sprintf("store_c%d", callers), func() (measured, error) {
		return drive(ctx, callers, warm, b.seconds, func(ctx context.Context, i int) (int, error) { return list[i].lifecycle(ctx) })
	})
}

// runAlone compares raw and store at each number of callers. Who begins changes
// from round to round.
func runAlone(ctx context.Context, b *bench) error {
	pause(ctx, learnsItIsAlone)
	for round := range b.rounds {
		for _, callers := range b.callers {
			raw, store, err := inTurn(round, func() (float64, error) { return b.rawRate(ctx, callers) }, func() (float64, error) { return b.storeRate(ctx, callers) })
			if err != nil {
				return err
			}
			b.figure(fmt.Sprintf("store_over_raw_c%d", callers), store/raw)
		}
	}
	return nil
}

// inTurn runs both, in the order that the round says.
func inTurn(round int, first, second func() (float64, error)) (one, two float64, err error) {
	if round%2 == 1 {
		two, one, err = inTurn(0, second, first)
		return one, two, err
	}
	if one, err = first(); err != nil {
		return 0, 0, err
	}
	two, err = second()
	return one, two, err
}

// runOverMCP compares raw and the whole product over MCP at 64 callers.
func runOverMCP(ctx context.Context, b *bench) error {
	in, err := newInstance(ctx, b.dev, "mcp", owners, 1)
	if err != nil {
		return err
	}
	in.close() // the server is alone on its database
	addr, err := freeAddress()
	if err != nil {
		return err
	}
	srv, err := serveInstance(ctx, in.url, addr, addr)
	if err != nil {
		return err
	}
	defer srv.stop() //nolint:errcheck // its failure is a failed call's
	pause(ctx, learnsItIsAlone)
	ways := []struct {
		name, figure string
		lean         bool
		batch        int
	}{
		{"mcp", "mcp_over_raw", false, 1},
		{"mcp_lean", "mcp_lean_over_raw", true, 1},
		{"mcp_batch", "mcp_batch_over_raw", false, 50},
	}
	for round := range b.rounds {
		for _, w := range ways {
			raw, ours, err := inTurn(round, func() (float64, error) { return b.rawRate(ctx, most) }, func() (float64, error) {
				stop := b.profiled(srv, fmt.Sprintf("%s-%d", w.name, round))
				defer stop()
				return b.rate(ctx, w.name, func() (measured, error) {
					m, err := inClient[measured](ctx, clientJob{
						Kind: "lifecycle", Lean: w.lean, Batch: w.batch, Callers: most, Targets: targets(in.homes, addr, addr), Warm: warm, Length: b.seconds,
					})
					if err != nil {
						return m, fmt.Errorf("%w; the server: %s", err, srv.said())
					}
					return m, nil
				}, srv.cmd.Process.Pid)
			})
			if err != nil {
				return err
			}
			b.figure(w.figure, ours/raw)
		}
	}
	return nil
}

// profiled writes a CPU profile of the server while something runs, if asked to.
func (b *bench) profiled(srv *replica, name string) func() {
	if b.profile == "" {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		pause(context.Background(), warm)
		content, err := srv.fetch("/debug/pprof/profile?seconds=" + fmt.Sprint(int(b.seconds.Seconds())))
		if err == nil {
			err = os.WriteFile(b.profile+"/"+name+".pprof", content, 0o600)
		}
		if err != nil {
			b.sayf("  no profile: %v", err)
		}
	}()
	return func() { <-done }
}

// showCosts prints the statements that took the database longest.
func (b *bench) showCosts(ctx context.Context) error {
	if _, err := b.store.pool.Exec(ctx, "CREATE EXTENSION pg_stat_statements"); err != nil {
		return fmt.Errorf("make pg_stat_statements: %w", err)
	}
	rows, err := b.store.pool.Query(ctx, `
		SELECT d.datname, s.calls, s.rows, s.total_exec_time, s.mean_exec_time, s.total_plan_time, regexp_replace(left(s.query, 400), '\s+', ' ', 'g')
		FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		ORDER BY s.total_exec_time + s.total_plan_time DESC LIMIT 25`)
	if err != nil {
		return err
	}
	defer rows.Close()
	b.sayf("\n%-9s %8s %9s %9s %8s %8s  statement", "database", "calls", "rows", "total ms", "mean us", "plan ms")
	for rows.Next() {
		var db, query string
		var calls, n int64
		var total, mean, plan float64
		if err := rows.Scan(&db, &calls, &n, &total, &mean, &plan, &query); err != nil {
			return err
		}
		b.sayf("%-9s %8d %9d %9.0f %8.0f %8.0f  %.150s", db, calls, n, total, mean*1000, plan, query)
	}
	return rows.Err()
}
