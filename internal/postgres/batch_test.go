package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
)

// The tests below run in a bubble (testing/synctest): synctest.Wait returns when
// every goroutine of the bubble waits, so nothing sleeps, and a goroutine that
// never ends fails the test.

// gate is an exec whose batches stop until they are let through.
type gate struct {
	mu      sync.Mutex
	batches [][]string
	through chan struct{}
	fail    func([]string) error
}

func newGate() *gate { return &gate{through: make(chan struct{})} }

func (g *gate) exec(_ context.Context, items []string) ([]Result[string], error) {
	g.mu.Lock()
	g.batches = append(g.batches, slices.Clone(items))
	g.mu.Unlock()
	<-g.through
	if g.fail != nil {
		if err := g.fail(items); err != nil {
			return nil, err
		}
	}
	results := make([]Result[string], len(items))
	for i, item := range items {
		results[i].Value = "done " + item
	}
	return results, nil
}

func (g *gate) seen() [][]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.batches)
}

// one makes gathering begin with the second call.
func one() BatchOptions[string] { return BatchOptions[string]{Workers: 1, Direct: 1} }

// outcome of a call made in the background.
type outcome struct {
	value string
	err   error
}

func start(ctx context.Context, b *Batcher[string, string], item string) <-chan outcome {
	c := make(chan outcome, 1)
	go func() {
		v, err := b.Do(ctx, item)
		c <- outcome{v, err}
	}()
	synctest.Wait() // so that items queue in the order of the test
	return c
}

func TestBatcher_AloneRunsOnCallersGoroutine(t *testing.T) {
	t.Parallel()
	var stack string
	b := NewBatcher(func(_ context.Context, items []string) ([]Result[string], error) {
		stack = string(debug.Stack())
		return []Result[string]{{Value: items[0]}}, nil
	}, BatchOptions[string]{})
	v, err := b.Do(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "a", v)
	require.Contains(t, stack, "TestBatcher_AloneRunsOnCallersGoroutine")
}

func TestBatcher_FewCallersAreNotGathered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := NewBatcher(g.exec, BatchOptions[string]{Workers: 2, Direct: 4})
		for i := range 4 {
			start(t.Context(), b, fmt.Sprint(i))
		}
		require.Len(t, g.seen(), 4)
		close(g.through)
	})
}

func TestBatcher_GathersWhileOneIsOnItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := NewBatcher(g.exec, one())
		var calls []<-chan outcome
		for i := range 50 {
			calls = append(calls, start(t.Context(), b, fmt.Sprint(i)))
		}
		require.Len(t, g.seen(), 1)
		close(g.through)
		for i, c := range calls {
			require.Equal(t, outcome{value: fmt.Sprint("done ", i)}, <-c)
		}
		require.Len(t, g.seen(), 2)
		require.Len(t, g.seen()[1], 49)
	})
}

func TestBatcher_ASecondWorkerStartsOnceEnoughWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := NewBatcher(g.exec, BatchOptions[string]{Workers: 2, Direct: 1, Spread: 3, Size: func(s string) int { return len(s) }})
		for _, item := range []string{"1", "a", "b"} {
			start(t.Context(), b, item)
		}
		require.Equal(t, [][]string{{"1"}}, g.seen(), "two are better gathered")
		start(t.Context(), b, "c")
		synctest.Wait()
		require.Equal(t, [][]string{{"1"}, {"a", "b", "c"}}, g.seen(), "while the first is on its way")
		close(g.through)
	})
}

func TestBatcher_BoundsItemsAndBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := one()
		o.MaxItems, o.MaxBytes, o.Size = 3, 10, func(s string) int { return len(s) }
		b := NewBatcher(g.exec, o)
		for _, item := range []string{"first", "a", "b", "c", "d", "123456789", "larger than a batch", "e"} {
			start(t.Context(), b, item)
		}
		close(g.through)
		synctest.Wait()
		require.Equal(t, [][]string{{"first"}, {"a", "b", "c"}, {"d", "123456789"}, {"larger than a batch"}, {"e"}}, g.seen())
	})
}

func TestBatcher_OwnersTakeTurnsUnderACap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := one()
		o.MaxItems, o.MaxPerOwner, o.Owner = 6, 3, func(s string) string { return s[:1] }
		b := NewBatcher(g.exec, o)
		for _, item := range []string{"-", "a1", "a2", "a3", "a4", "a5", "b1", "c1", "c2"} {
			start(t.Context(), b, item)
		}
		close(g.through)
		synctest.Wait()
		require.Equal(t, [][]string{{"-"}, {"a1", "b1", "c1", "a2", "c2", "a3"}, {"a4", "a5"}}, g.seen())
	})
}

func TestBatcher_CancelledCallerDisturbsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := NewBatcher(g.exec, one())
		start(t.Context(), b, "first")
		early, cancelEarly := context.WithCancel(t.Context())
		late, cancelLate := context.WithCancel(t.Context())
		a, c, d := start(early, b, "withdrawn"), start(late, b, "cancelled"), start(t.Context(), b, "other")

		cancelEarly()
		require.ErrorIs(t, (<-a).err, context.Canceled, "before its batch")
		g.through <- struct{}{}
		synctest.Wait()
		require.Equal(t, []string{"cancelled", "other"}, g.seen()[1])
		cancelLate()
		require.ErrorIs(t, (<-c).err, context.Canceled, "at once, though its batch is on its way")
		g.through <- struct{}{}
		require.Equal(t, outcome{value: "done other"}, <-d)
	})
}

func TestBatcher_PoisonItemFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.fail = func(items []string) error {
			if slices.Contains(items, "poison") {
				return fmt.Errorf("create: %w", &pgconn.PgError{Severity: "ERROR", Code: "22P05"})
			}
			return nil
		}
		b := NewBatcher(g.exec, one())
		first, a, p, z := start(t.Context(), b, "first"), start(t.Context(), b, "a"), start(t.Context(), b, "poison"), start(t.Context(), b, "z")
		close(g.through)
		require.NoError(t, (<-first).err)
		require.Equal(t, outcome{value: "done a"}, <-a)
		require.Equal(t, "22P05", SQLState((<-p).err))
		require.Equal(t, outcome{value: "done z"}, <-z)
		require.Equal(t, [][]string{{"first"}, {"a", "poison", "z"}, {"a"}, {"poison"}, {"z"}}, g.seen())
	})
}

func TestBatcher_UnknownOutcomeIsNotRunAgain(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{
		errors.New("unexpected EOF"),
		&pgconn.PgError{Severity: "FATAL", Code: "57P01"},
		&pgconn.PgError{Severity: "ERROR", Code: "40003"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			g.fail = func(items []string) error {
				if len(items) > 1 {
					return failure
				}
				return nil
			}
			b := NewBatcher(g.exec, one())
			start(t.Context(), b, "first")
			a, z := start(t.Context(), b, "a"), start(t.Context(), b, "z")
			close(g.through)
			require.ErrorIs(t, (<-a).err, failure)
			require.ErrorIs(t, (<-z).err, failure)
			require.Len(t, g.seen(), 2)
		})
	}
}

func TestBatcher_CollisionIsRunAgainAFewTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		collisions := 3
		runs := 0
		b := NewBatcher(func(_ context.Context, items []string) ([]Result[string], error) {
			runs++
			if runs <= collisions {
				return nil, &pgconn.PgError{Severity: "ERROR", Code: "40P01"}
			}
			return make([]Result[string], len(items)), nil
		}, BatchOptions[string]{Retries: 3})
		_, err := b.Do(t.Context(), "a")
		require.NoError(t, err)

		runs, collisions = 0, 100
		_, err = b.Do(t.Context(), "a")
		require.Equal(t, "40P01", SQLState(err))
		require.Equal(t, 4, runs)
	})
}

func TestBatcher_PanicAndWrongCountReachEveryCaller(t *testing.T) {
	t.Parallel()
	for _, broken := range []func([]string) []Result[string]{
		func([]string) []Result[string] { panic("boom") },
		func([]string) []Result[string] { return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			through := make(chan struct{})
			b := NewBatcher(func(_ context.Context, items []string) ([]Result[string], error) {
				<-through
				return broken(items), nil
			}, one())
			a, c, d := start(t.Context(), b, "a"), start(t.Context(), b, "c"), start(t.Context(), b, "d")
			close(through)
			for _, o := range []<-chan outcome{a, c, d} {
				require.Error(t, (<-o).err)
			}
			require.NoError(t, b.Close(t.Context()))
		})
	}
}

func TestBatcher_CloseDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := NewBatcher(g.exec, one())
		a, c := start(t.Context(), b, "a"), start(t.Context(), b, "c")
		closed := make(chan error, 1)
		go func() { closed <- b.Close(t.Context()) }()
		synctest.Wait()
		_, err := b.Do(t.Context(), "late")
		require.Equal(t, refusal.Unavailable, refusal.CodeOf(err))
		require.Empty(t, closed)
		close(g.through)
		require.NoError(t, (<-a).err)
		require.NoError(t, (<-c).err)
		require.NoError(t, <-closed)
		require.NoError(t, b.Close(t.Context()), "twice")
	})
}

func TestBatcher_CloseGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBatcher(func(ctx context.Context, _ []string) ([]Result[string], error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, one())
		a, c := start(t.Context(), b, "a"), start(t.Context(), b, "c")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Close(ctx), context.Canceled)
		require.ErrorIs(t, (<-a).err, context.Canceled)
		require.ErrorIs(t, (<-c).err, context.Canceled)
	})
}

func TestBatcher_RefusesWhatCannotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := one()
		o.MaxWaiting = 1
		b := NewBatcher(g.exec, o)
		start(t.Context(), b, "a")
		start(t.Context(), b, "b")
		_, err := b.Do(t.Context(), "c")
		require.Equal(t, refusal.Unavailable, refusal.CodeOf(err))
		close(g.through)
	})
}
