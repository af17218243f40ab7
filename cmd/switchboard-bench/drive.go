package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// measured is what a contender reached.
type measured struct {
	Count   int64   `json:"count"`
	Seconds float64 `json:"seconds"`
}

func (m measured) rate() float64 { return float64(m.Count) / m.Seconds }

// drive lets so many callers repeat step, and counts what step says it did
// between the end of the warm-up and the end. The first failure ends it.
func drive(ctx context.Context, callers int, warm, length time.Duration, step func(ctx context.Context, caller int) (int, error)) (measured, error) {
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var count atomic.Int64
	var ending atomic.Bool
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for !ending.Load() && run.Err() == nil {
				n, err := step(run, c)
				if err != nil {
					stop(err)
					return
				}
				count.Add(int64(n))
			}
		})
	}
	pause(run, warm)
	began, before := time.Now(), count.Load()
	pause(run, length)
	for limit := time.Now().Add(time.Minute); count.Load() == before && run.Err() == nil && time.Now().Before(limit); {
		pause(run, 10*time.Millisecond) // a step takes longer than that
	}
	m := measured{Count: count.Load() - before, Seconds: time.Since(began).Seconds()}
	ending.Store(true)
	wg.Wait()
	if err := context.Cause(run); err != nil {
		return measured{}, err
	}
	if m.Count == 0 {
		return measured{}, errors.New("nothing was done in time")
	}
	return m, nil
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
