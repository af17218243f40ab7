package main

import (
	"context"
	"fmt"
	"time"

	"switchboard/internal/todo"
)

// fewReady is how many todos are ready in the small database.
const fewReady = 1000

// runGrowth compares single claims in a small and in a large database, turn by
// turn, so that what disturbs the one disturbs the other.
func runGrowth(ctx context.Context, b *bench) error {
	began := time.Now()
	small, err := b.grown(ctx, "small", fewReady, 0)
	if err != nil {
		return err
	}
	defer small.close()
	large, err := b.grown(ctx, "large", b.ready*1000, b.done*1000)
	if err != nil {
		return err
	}
	defer large.close()
	b.number("seconds_to_fill", time.Since(began).Seconds())
	b.sayf("  filled %d + %d thousand todos in %.0f s", b.ready, b.done, time.Since(began).Seconds())
	var samplers [2]*claimSampler
	for i, in := range []*instance{small, large} {
		c, err := in.storeCallers(ctx, 1)
		if err != nil {
			return err
		}
		samplers[i] = &claimSampler{storeCaller: c[0]}
	}
	for round := -1; round < b.rounds; round++ {
		n := b.samples * 3 / 2
		if round < 0 { // both warm
			n = b.samples / 10
		}
		for i := range n {
			for k := range samplers {
				if err := samplers[(k+i)%2].sample(ctx); err != nil {
					return err
				}
			}
		}
		few, many := samplers[0].took, samplers[1].took
		samplers[0].took, samplers[1].took = nil, nil
		if round < 0 {
			continue
		}
		for _, p := range []float64{50, 99} {
			b.number(fmt.Sprintf("claim_p%g_small_ms", p), ms(percentile(few, p)))
			b.number(fmt.Sprintf("claim_p%g_large_ms", p), ms(percentile(many, p)))
		}
		b.sayf("  p50 %.2f and %.2f ms, p99 %.2f and %.2f ms", ms(percentile(few, 50)), ms(percentile(many, 50)), ms(percentile(few, 99)), ms(percentile(many, 99)))
		b.figure("claim_p99_growth", float64(percentile(many, 99))/float64(percentile(few, 99)))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// grown is an instance of one owner with so many todos.
func (b *bench) grown(ctx context.Context, name string, ready, done int) (*instance, error) {
	in, err := newInstance(ctx, b.dev, name, 1, 1)
	if err != nil {
		return nil, err
	}
	f, err := in.newFilling(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.write(ctx, doneTables, done); err != nil {
		return nil, err
	}
	if err := f.write(ctx, readyTables, ready); err != nil {
		return nil, err
	}
	return in, settle(ctx, in.pool, allTables...)
}

// claimSampler measures claims, and keeps the number of ready todos as it is.
type claimSampler struct {
	*storeCaller
	took []time.Duration
}

func (s *claimSampler) sample(ctx context.Context) error {
	began := time.Now()
	list, err := s.todos.ClaimNext(ctx, s.caller, todo.ClaimNext{Max: 1})
	took := time.Since(began)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if len(list) == 0 {
		return errStuck
	}
	s.took = append(s.took, took)
	if err := s.complete(ctx, list[0]); err != nil {
		return err
	}
	if _, err := only(s.todos.Create(ctx, s.caller, []todo.New{newTodo(s.queue, s.keys.next())})); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return nil
}
