package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are this process's own counts.
type metrics struct{ outcomes *prometheus.CounterVec }

func newMetrics() metrics {
	return metrics{outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "switchboard_notifications_total",
		Help: "Attempts to deliver notifications by this process, by channel (email, digest, webhook) and outcome (sent, retried, failed, dropped).",
	}, []string{"channel", "outcome"})}
}

func (m metrics) count(c channel, outcome string, n int) {
	m.outcomes.WithLabelValues(string(c), outcome).Add(float64(n))
}

var (
	jobsDescription = prometheus.NewDesc("switchboard_notification_jobs",
		"Jobs of the outbox by state; available and retryable ones wait, discarded ones were given up within the last week.", []string{"state"}, nil)
	ageDescription = prometheus.NewDesc("switchboard_notification_oldest_seconds",
		"How long the oldest job that is due has been waiting.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	s.metrics.outcomes.Describe(ch)
	ch <- jobsDescription
	ch <- ageDescription
}

// collectTimeout keeps a scrape short when the database is slow; the counters
// are told all the same.
const collectTimeout = time.Second

// Collect implements prometheus.Collector.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	s.metrics.outcomes.Collect(ch)
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	jobs, oldest, err := s.Depth(ctx)
	if err != nil {
		s.o.Log.WarnContext(ctx, "notify: count the jobs", "error", err)
		return
	}
	for state, n := range jobs {
		ch <- prometheus.MustNewConstMetric(jobsDescription, prometheus.GaugeValue, float64(n), state)
	}
	ch <- prometheus.MustNewConstMetric(ageDescription, prometheus.GaugeValue, oldest.Seconds())
}

// Depth tells how many jobs of the outbox are in each state that is not a good
// end, and how long the oldest one that is due has been waiting.
func (s *Store) Depth(ctx context.Context) (jobs map[string]int, oldest time.Duration, err error) {
	jobs = map[string]int{"available": 0, "scheduled": 0, "retryable": 0, "running": 0, "discarded": 0}
	rows, _ := s.pool.Query(ctx, `
		SELECT state::text, count(*), coalesce(extract(epoch FROM clock_timestamp() - min(scheduled_at)), 0)::float8
		FROM river_job
		WHERE queue = $1 AND state IN ('available', 'scheduled', 'retryable', 'running', 'discarded')
		GROUP BY state`, queue) // ForEachRow has the error
	var state string
	var n int
	var waiting float64
	_, err = pgx.ForEachRow(rows, []any{&state, &n, &waiting}, func() error {
		jobs[state] = n
		if state == "available" {
			oldest = max(0, time.Duration(waiting*float64(time.Second)))
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("count the jobs: %w", err)
	}
	return jobs, oldest, nil
}
