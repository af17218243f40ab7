package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// runSnapshot measures throughput before and while a session holds a snapshot
// that keeps vacuum from removing anything that died after it.
func runSnapshot(ctx context.Context, b *bench) error {
	in, err := newInstance(ctx, b.dev, "snapshot", owners, 1)
	if err != nil {
		return err
	}
	defer in.close()
	list, err := in.storeCallers(ctx, most)
	if err != nil {
		return err
	}
	var done atomic.Int64
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- together(run, most, func(ctx context.Context, i int) error {
			for ctx.Err() == nil {
				n, err := list[i].lifecycle(ctx)
				if err != nil {
					return ignoreEnd(run, err)
				}
				done.Add(int64(n))
			}
			return nil
		})
	}()
	err = b.holdSnapshots(run, in, &done)
	stop()
	if e := <-ended; e != nil {
		return e
	}
	return err
}

// ignoreEnd drops the failures that come of ctx having ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // see above
	}
	return err
}

func (b *bench) holdSnapshots(ctx context.Context, in *instance, done *atomic.Int64) error {
	rate := func(d time.Duration) float64 {
		began, before := time.Now(), done.Load()
		pause(ctx, d)
		return float64(done.Load()-before) / time.Since(began).Seconds()
	}
	hold := time.Duration(b.hold * float64(time.Second))
	pause(ctx, 2*time.Second)
	for range b.rounds {
		before := rate(max(hold/6, time.Second))
		held, tail, err := in.whileHeld(ctx, func() (float64, float64) {
			mean := rate(hold * 5 / 6)
			last := rate(hold / 6)
			return (mean*5 + last) / 6, last
		})
		if err != nil {
			return err
		}
		b.number("before_snapshot", before)
		b.number("during_snapshot", held)
		b.number("during_snapshot_last_sixth", tail)
		b.sayf("  before %.0f/s, held %.0f/s, in the last sixth %.0f/s", before, held, tail)
		b.figure("held_snapshot", held/before)
		pause(ctx, max(hold/12, time.Second)) // vacuum catches up
	}
	return ctx.Err()
}

// whileHeld calls f while a session of its own holds a snapshot.
func (in *instance) whileHeld(ctx context.Context, f func() (float64, float64)) (mean, last float64, err error) {
	conn, err := pgx.Connect(ctx, in.url)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return 0, 0, err
	}
	// A transaction that wrote keeps its xid as the horizon; a reader keeps its
	// snapshot, which is what a backup or a long report does.
	if _, err := tx.Exec(ctx, "SELECT count(*) FROM queue"); err != nil {
		return 0, 0, err
	}
	mean, last = f()
	if err := tx.Rollback(ctx); err != nil {
		return 0, 0, fmt.Errorf("the snapshot was not held to the end: %w", err)
	}
	return mean, last, nil
}
