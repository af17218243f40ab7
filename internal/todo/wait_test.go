package todo

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// waiting waits until so many calls wait in the store.
func (k *kit) waiting(s *Store, n int) {
	k.t.Helper()
	require.Eventually(k.t, func() bool {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		calls := map[*readyWait]bool{}
		for _, wl := range s.hub.lanes {
			for _, c := range wl.calls {
				calls[c] = true
			}
		}
		watches := 0
		for _, wl := range s.hub.watches {
			watches += len(wl.watches)
		}
		return len(calls)+watches >= n
	}, 20*time.Second, time.Millisecond, "they do not wait")
}

func TestWait_EveryTodoFindsAWorkerThoughOneWakeServesOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	// No poll helps here.
	s := k.replica(Options{PollEvery: time.Hour})
	const workers, todos = 300, 200
	var got sync.Map
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			c, err := s.ClaimNext(ctx, k.work, ClaimNext{Wait: 30 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			for _, c := range c {
				if _, twice := got.LoadOrStore(c.TodoID, true); twice {
					t.Error("claimed twice")
				}
			}
		})
	}
	k.waiting(s, workers)
	inParallel(todos, func(i int) {
		n := New{Queue: []string{"reviews", "builds"}[i%2], Title: "t", IdempotencyKey: fmt.Sprint(i)}
		if _, err := s.Create(ctx, k.peer, []New{n}); err != nil {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool {
		n := 0
		got.Range(func(any, any) bool { n++; return true })
		return n == todos
	}, 20*time.Second, 5*time.Millisecond, "some were not claimed")
	s.hub.close() // lets the others go
	wg.Wait()
}

func TestWait_AWokenCallThatLeavesPassesTheWakeOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	s := k.replica(Options{PollEvery: time.Hour})
	gone, leave := context.WithCancel(ctx)
	first := make(chan struct{})
	go func() {
		defer close(first)
		_, _ = s.ClaimNext(gone, k.work, ClaimNext{Wait: 30 * time.Second})
	}()
	k.waiting(s, 1)
	second := make(chan []Claimed, 1)
	go func() {
		c, err := s.ClaimNext(ctx, k.work, ClaimNext{Wait: 30 * time.Second})
		if err != nil {
			t.Error(err)
		}
		second <- c
	}()
	k.waiting(s, 2)
	// It is woken and gone at the same moment; whichever it does, the todo is claimed.
	leave()
	k.exec(`SELECT 1`)
	out, err := s.Create(ctx, k.peer, []New{{Queue: "reviews", Title: "t", IdempotencyKey: "k"}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	<-first
	select {
	case c := <-second:
		require.Len(t, c, 1)
	case <-time.After(10 * time.Second):
		// The first may have claimed it before it left.
		require.Empty(t, k.claim(1))
	}
}

func TestWait_EndsWithTheAuthority(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	s := k.replica(Options{PollEvery: 50 * time.Millisecond})
	id := k.create("k").TodoID
	errs := make(chan error, 2)
	go func() {
		_, err := s.ClaimNext(ctx, k.work, ClaimNext{Queues: []string{"builds"}, Wait: 50 * time.Second})
		errs <- err
	}()
	go func() {
		_, err := s.Status(ctx, k.peer, id, 50*time.Second, nil)
		errs <- err
	}()
	k.waiting(s, 2)
	k.exec(`UPDATE stand_in SET version = version + 1`)
	for range 2 {
		require.ErrorIs(t, <-errs, endpoint.ErrStale)
	}
}

func TestWait_IsBoundedAndEndsWithTheStore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	_, err := k.store.ClaimNext(ctx, k.work, ClaimNext{Wait: 51 * time.Second})
	requireCode(t, refusal.InvalidArgument, err)
	id := k.create("k").TodoID
	_, err = k.store.Status(ctx, k.peer, id, 51*time.Second, nil)
	requireCode(t, refusal.InvalidArgument, err)

	begin := time.Now()
	got, err := k.store.ClaimNext(ctx, k.work, ClaimNext{Queues: []string{"builds"}, Wait: 200 * time.Millisecond})
	require.NoError(t, err)
	require.Empty(t, got)
	require.NotNil(t, got)
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
	st, err := k.store.Status(ctx, k.peer, id, 200*time.Millisecond, new(int64(1)))
	require.NoError(t, err)
	require.Equal(t, int64(1), st.Version)
	// An older version is news at once.
	st, err = k.store.Status(ctx, k.peer, id, 50*time.Second, new(int64(0)))
	require.NoError(t, err)
	require.Equal(t, int64(1), st.Version)
}

func TestWait_ALapsedLeaseWakesAWaitingWorker(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	id := k.create("k").TodoID
	k.next()
	s := k.replica(Options{PollEvery: 20 * time.Millisecond})
	got := make(chan []Claimed, 1)
	go func() {
		c, err := s.ClaimNext(ctx, k.work, ClaimNext{Wait: 30 * time.Second})
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	k.waiting(s, 1)
	k.lapse(id)
	c := <-got
	require.Len(t, c, 1)
	require.Equal(t, 2, c[0].Attempt)
	require.Equal(t, "lapsed", c[0].PriorAttempts[0].Outcome)
}

func TestWait_ABackedOffTodoIsClaimedWhenDue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	id := k.create("k").TodoID
	c := k.next()
	out, err := k.store.Fail(ctx, k.work, []Failure{{TodoID: id, LeaseToken: c.LeaseToken, Error: "x", RetryAfter: new(time.Second)}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	require.Empty(t, k.claim(1))
	s := k.replica(Options{PollEvery: 50 * time.Millisecond})
	begin := time.Now()
	got, err := s.ClaimNext(ctx, k.work, ClaimNext{Wait: 30 * time.Second})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Less(t, time.Since(begin), 10*time.Second)
}
