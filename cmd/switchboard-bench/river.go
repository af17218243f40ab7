package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"switchboard/internal/postgres"
)

type noop struct{}

// Kind names the job.
func (noop) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[noop]
}

// Work does nothing.
func (*noopWorker) Work(context.Context, *river.Job[noop]) error { return nil }

// riverQueue is River in a database of its own.
type riverQueue struct {
	pool *pgxpool.Pool
}

func newRiverQueue(ctx context.Context, dev *postgres.DevServer) (*riverQueue, error) {
	conn, err := pgx.Connect(ctx, dev.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE river"); err != nil {
		return nil, err
	}
	q := &riverQueue{}
	// As many connections as River's benchmark command has by default in pgx, or
	// more on larger machines.
	if q.pool, err = postgres.Open(ctx, dev.URL("river"), postgres.Options{ApplicationName: "bench river"}); err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(q.pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrate River: %w", err)
	}
	return q, nil
}

// burnDown works off n jobs, inserted beforehand, as `river bench` does.
func (q *riverQueue) burnDown(ctx context.Context, n int) (measured, error) {
	if _, err := q.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return measured{}, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{})
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		// The settings of cmd/river/riverbench, which are River's own choice for the
		// highest throughput.
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            slog.New(slog.DiscardHandler),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2_000}},
		Workers:           workers,
	})
	if err != nil {
		return measured{}, err
	}
	const insertBatch = 5_000
	for left := n; left > 0; left -= insertBatch {
		params := make([]river.InsertManyParams, min(left, insertBatch))
		for i := range params {
			params[i] = river.InsertManyParams{Args: noop{}}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return measured{}, fmt.Errorf("insert jobs: %w", err)
		}
	}
	// Vacuumed and flushed before the clock runs, as the todos of the other side.
	if err := settle(ctx, q.pool, "river_job"); err != nil {
		return measured{}, err
	}
	// The subscription counts a job once its completion is stored.
	finished, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled},
	})
	defer cancel()
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return measured{}, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = client.Stop(end)
	}()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for range n {
		select {
		case e := <-finished:
			if e == nil || e.Kind != river.EventKindJobCompleted {
				return measured{}, errors.New("a job of River did not complete")
			}
		case <-limit.C:
			return measured{}, errors.New("jobs of River were left after two minutes")
		case <-ctx.Done():
			return measured{}, ctx.Err()
		}
	}
	return measured{Count: int64(n), Seconds: time.Since(began).Seconds()}, nil
}

// settle vacuums the tables and writes everything out, so that what went before
// does not burden what is measured next.
func settle(ctx context.Context, pool *pgxpool.Pool, tables ...string) error {
	for _, t := range tables {
		if _, err := pool.Exec(ctx, "VACUUM ANALYZE "+pgx.Identifier{t}.Sanitize()); err != nil {
			return fmt.Errorf("vacuum %s: %w", t, err)
		}
	}
	if _, err := pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
