package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"switchboard/internal/todo"
)

// drainWorkers claim and complete at once, 100 todos a call.
const drainWorkers = 16

// runDrain lets River burn down no-op jobs, and ours claim and complete todos.
func runDrain(ctx context.Context, b *bench) error {
	river, err := newRiverQueue(ctx, b.dev)
	if err != nil {
		return err
	}
	defer river.pool.Close()
	in, err := newInstance(ctx, b.dev, "drain", 1, 1)
	if err != nil {
		return err
	}
	defer in.close()
	f, err := in.newFilling(ctx)
	if err != nil {
		return err
	}
	for round := range b.rounds {
		theirs, ours, err := inTurn(round, func() (float64, error) {
			m, err := river.burnDown(ctx, b.drain)
			return m.rate(), err
		}, func() (float64, error) {
			m, err := in.drain(ctx, f, b.drain)
			return m.rate(), err
		})
		if err != nil {
			return err
		}
		b.number("river_burn_down", theirs)
		b.number("drain", ours)
		b.sayf("  River %.0f/s, drain %.0f/s", theirs, ours)
		b.figure("drain_over_river", ours/theirs)
	}
	return nil
}

// drain fills the queue with n todos and works them off.
func (in *instance) drain(ctx context.Context, f *filling, n int) (measured, error) {
	c, err := in.caller(ctx, in.homes[0])
	if err != nil {
		return measured{}, err
	}
	if err := f.write(ctx, readyTables, n); err != nil {
		return measured{}, err
	}
	if err := settle(ctx, in.pool, allTables...); err != nil {
		return measured{}, err
	}
	var left atomic.Int64
	left.Store(int64(n))
	began := time.Now()
	err = together(ctx, drainWorkers, func(ctx context.Context, _ int) error {
		for left.Load() > 0 {
			if err := drainSome(ctx, in.todos, storeCaller{todos: in.todos, caller: c}, &left); err != nil {
				return err
			}
		}
		return nil
	})
	return measured{Count: int64(n), Seconds: time.Since(began).Seconds()}, err
}

var errStuck = errors.New("there is nothing to claim, though todos are left")

// drainSome claims up to 100 and completes them.
func drainSome(ctx context.Context, todos *todo.Store, c storeCaller, left *atomic.Int64) error {
	list, err := todos.ClaimNext(ctx, c.caller, todo.ClaimNext{Max: 100})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if len(list) == 0 {
		return ctx.Err() // the last ones are being completed by others
	}
	items := make([]todo.Completion, len(list))
	for i, t := range list {
		items[i] = todo.Completion{TodoID: t.TodoID, LeaseToken: t.LeaseToken, Result: json.RawMessage(result)}
	}
	out, err := todos.Complete(ctx, c.caller, items)
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	for _, o := range out {
		if o.Err != nil {
			return fmt.Errorf("complete: %w", o.Err)
		}
	}
	left.Add(-int64(len(list)))
	return nil
}
