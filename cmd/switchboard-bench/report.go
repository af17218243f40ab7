package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// target of a figure: what it should reach, at least or at most.
type goal struct {
	name   string
	value  float64
	atMost bool
	unit   string
}

// goals are the figures, in the order in which they are shown.
var goals = []goal{
	{name: "mcp_over_raw", value: 1.3},
	{name: "mcp_lean_over_raw", value: 1.6},
	{name: "store_over_raw_c1", value: 0.95},
	{name: "store_over_raw_c4", value: 0.95},
	{name: "store_over_raw_c64", value: 2.5},
	{name: "mcp_batch_over_raw", value: 5},
	{name: "drain_over_river", value: 2},
	{name: "claim_p99_growth", value: 1.25, atMost: true},
	{name: "wake_p99_same", value: 5, atMost: true},
	{name: "wake_p99_cross", value: 8, atMost: true},
	{name: "bytes_per_waiter", value: 20 << 10, atMost: true, unit: "bytes"},
	{name: "held_snapshot", value: 0.7},
}

func (g goal) reached(v float64) bool {
	if g.atMost {
		return v <= g.value
	}
	return v >= g.value
}

// report gathers what the rounds found.
type report struct {
	Began   time.Time
	figures map[string][]float64 // of each round
	context map[string][]float64 // absolute numbers, of each round
	facts   map[string]any
	out     io.Writer
}

func newReport(out io.Writer) *report {
	return &report{Began: time.Now(), figures: map[string][]float64{}, context: map[string][]float64{}, facts: map[string]any{}, out: out}
}

func (r *report) figure(name string, v float64) {
	if !slices.ContainsFunc(goals, func(g goal) bool { return g.name == name }) {
		r.number(name, v)
		return
	}
	r.figures[name] = append(r.figures[name], v)
	fmt.Fprintf(r.out, "    %-22s %8.3f\n", name, v)
}

func (r *report) number(name string, v float64) {
	r.context[name] = append(r.context[name], v)
}

func (r *report) sayf(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	if n == 0 {
		return math.NaN()
	}
	return (list[(n-1)/2] + list[n/2]) / 2
}

// percentile of a list, nearest rank.
func percentile(list []time.Duration, p float64) time.Duration {
	list = slices.Sorted(slices.Values(list))
	if len(list) == 0 {
		return 0
	}
	return list[max(0, int(math.Ceil(p/100*float64(len(list))))-1)]
}

func (r *report) describe(ctx context.Context, pool *pgxpool.Pool) error {
	var version string
	if err := pool.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	settings := map[string]string{}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "max_connections"} {
		var v string
		if err := pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&v); err != nil {
			return err
		}
		settings[name] = v
	}
	r.facts["postgres"], r.facts["postgres_settings"] = version, settings
	r.facts["go"], r.facts["cpus"] = runtime.Version(), runtime.GOMAXPROCS(0)
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/riverqueue/river", "github.com/jackc/pgx/v5", "github.com/mark3labs/mcp-go":
				versions[m.Path] = m.Version
			}
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				versions["switchboard"] = s.Value
			}
		}
	}
	r.facts["versions"] = versions
	return nil
}

// table prints the figures beside their goals, and then the absolute numbers.
func (r *report) table() {
	t := tabwriter.NewWriter(r.out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "figure\tmedian\tlowest\thighest\tgoal\t\t")
	for _, g := range goals {
		list := r.figures[g.name]
		if len(list) == 0 {
			continue
		}
		v, sign, mark := median(list), "≥", "reached"
		if g.atMost {
			sign = "≤"
		}
		if !g.reached(v) {
			mark = "MISSED"
		}
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%s %g\t%s\t\n", g.name, v, slices.Min(list), slices.Max(list), sign, g.value, mark)
	}
	fmt.Fprintln(t, "\t\t\t\t\t\t")
	for _, name := range slices.Sorted(mapKeys(r.context)) {
		list := r.context[name]
		fmt.Fprintf(t, "%s\t%.4g\t%.4g\t%.4g\t\t\t\n", name, median(list), slices.Min(list), slices.Max(list))
	}
	_ = t.Flush()
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// write stores the figures under their names, and beside them what explains them.
func (r *report) write(path string) error {
	out := map[string]any{}
	for _, g := range goals {
		if list := r.figures[g.name]; len(list) > 0 {
			out[g.name] = round(median(list))
		}
	}
	rounds, numbers := map[string][]float64{}, map[string]any{}
	for name, list := range r.figures {
		for _, v := range list {
			rounds[name] = append(rounds[name], round(v))
		}
	}
	for name, list := range r.context {
		numbers[name] = round(median(list))
	}
	out["rounds"], out["absolute"] = rounds, numbers
	for k, v := range r.facts {
		out[k] = v
	}
	out["began"], out["seconds"] = r.Began.UTC().Format(time.RFC3339), round(time.Since(r.Began).Seconds())
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644) //nolint:gosec // a report is for everybody
}

func round(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return math.Round(v*10000) / 10000
}
