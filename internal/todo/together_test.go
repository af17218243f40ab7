package todo

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// Each test here is of a failure that group commit and concurrent claims are prone
// to; see design.md, section 5.

// waitingOn waits until so many sessions of this database wait for a lock.
func (k *kit) waitingOn(n int) {
	k.t.Helper()
	require.Eventually(k.t, func() bool {
		var waiting int
		err := k.pool.QueryRow(context.Background(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting >= n
	}, 10*time.Second, 2*time.Millisecond, "nobody waits for the lock")
}

// changing holds an endpoint's row as a revocation does before its commit.
func (k *kit) changing(c endpoint.Caller) pgx.Tx {
	k.t.Helper()
	ctx := context.Background()
	tx, err := k.pool.Begin(ctx)
	require.NoError(k.t, err)
	_, err = tx.Exec(ctx, `UPDATE stand_in SET version = version + 1 WHERE owner = $1 AND id = $2`, c.Endpoint.Owner, c.Endpoint.ID)
	require.NoError(k.t, err)
	return tx
}

func TestTogether_NothingTakesEffectAfterRevokeHasAnswered(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, few := range []bool{true, false} {
		k := newKit(t)
		n := 1
		if !few {
			n = 20
		}
		id := k.create("before").TodoID
		held := k.next()
		k.create("ready")
		items := make([]New, n)
		for i := range items {
			items[i] = New{Queue: "reviews", Title: "t", IdempotencyKey: fmt.Sprint("late", i)}
		}
		ops := map[string]func() error{
			"create": func() error { _, err := k.store.Create(ctx, k.peer, items); return err },
			"claim":  func() error { _, err := k.store.ClaimNext(ctx, k.work, ClaimNext{}); return err },
			"claim once": func() error {
				_, err := k.store.ClaimNext(ctx, k.work, ClaimNext{ClaimID: "x"})
				return err
			},
			"complete": func() error {
				_, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: id, LeaseToken: held.LeaseToken}})
				return err
			},
			"cancel": func() error { _, err := k.store.Cancel(ctx, k.peer, id, ""); return err },
		}
		for name, op := range ops {
			for _, c := range []endpoint.Caller{k.peer, k.work} {
				if (c.Endpoint.Kind == endpoint.Peer) != (name == "create" || name == "cancel") {
					continue
				}
				tx := k.changing(c)
				done := make(chan error, 1)
				go func() { done <- op() }()
				k.waitingOn(1)
				require.NoError(t, tx.Commit(ctx))
				require.ErrorIs(t, <-done, endpoint.ErrStale, name)
				k.exec(`UPDATE stand_in SET version = 1`)
			}
		}
		var todos, leased, done int
		require.NoError(t, k.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM todo WHERE owner = $1),
			(SELECT count(*) FROM todo_live WHERE owner = $1 AND state = 'leased' AND NOT cancel_requested), (SELECT count(*) FROM todo_outcome WHERE owner = $1)`, k.owner).Scan(&todos, &leased, &done))
		require.Equal(t, []int{2, 1, 0}, []int{todos, leased, done}, "todos, leased, done")
	}
}

func TestTogether_AnExpiredCallerIsStale(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	id := k.create("one").TodoID
	late := k.work
	late.Until = time.Now().Add(-time.Second)
	_, err := k.store.ClaimNext(ctx, late, ClaimNext{})
	require.ErrorIs(t, err, endpoint.ErrStale)
	late = k.peer
	late.Until = time.Now().Add(-time.Second)
	_, err = k.store.Create(ctx, late, []New{{Queue: "reviews", Title: "t", IdempotencyKey: "x"}})
	require.ErrorIs(t, err, endpoint.ErrStale)
	_, err = k.store.Status(ctx, late, id, 0, nil)
	require.ErrorIs(t, err, endpoint.ErrStale)
	_, _, err = k.store.ListCreated(ctx, late, "", "", "", 0)
	require.ErrorIs(t, err, endpoint.ErrStale)
}

// TestTogether_TheClockIsReadAfterTheWaitForTheCaller: who waits for its own row until
// its authority has ended is stale.
func TestTogether_TheClockIsReadAfterTheWaitForTheCaller(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	k.create("one")
	k.create("two")
	held := k.next()
	for name, op := range map[string]func(endpoint.Caller) error{
		"heartbeat": func(c endpoint.Caller) error {
			_, err := k.store.Heartbeat(ctx, c, []Beat{{TodoID: held.TodoID, LeaseToken: held.LeaseToken}})
			return err
		},
		"claim": func(c endpoint.Caller) error {
			_, err := k.store.ClaimNext(ctx, c, ClaimNext{Queues: []string{"reviews"}})
			return err
		},
		"claim of several": func(c endpoint.Caller) error { _, err := k.store.ClaimNext(ctx, c, ClaimNext{}); return err },
		"create": func(c endpoint.Caller) error {
			_, err := k.store.Create(ctx, c, []New{{Queue: "reviews", Title: "t", IdempotencyKey: "x"}})
			return err
		},
	} {
		c := k.work
		if name == "create" {
			c = k.peer
		}
		tx, err := k.pool.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `SELECT FROM stand_in WHERE owner = $1 AND id = $2 FOR UPDATE`, c.Endpoint.Owner, c.Endpoint.ID)
		require.NoError(t, err)
		c.Until = time.Now().Add(2 * time.Second)
		done := make(chan error, 1)
		go func() { done <- op(c) }()
		k.waitingOn(1)
		require.Eventually(t, func() bool { return time.Now().After(c.Until) }, 5*time.Second, 10*time.Millisecond)
		require.NoError(t, tx.Rollback(ctx))
		require.ErrorIs(t, <-done, endpoint.ErrStale, name)
	}
}

// inParallel runs f n times at once and waits.
func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func TestTogether_LimitsAreMetExactly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	other := k.replica(Options{})
	limits := wide()
	limits.MaxOpen = 7
	open := k.friend(limits, "reviews", "builds")
	limits = wide()
	limits.PerHour = 9
	hourly := k.friend(limits, "reviews")
	for _, c := range []struct {
		caller endpoint.Caller
		wanted int
		code   refusal.Code
	}{{open, 7, refusal.QuotaExceeded}, {hourly, 9, refusal.RateLimited}} {
		var mu sync.Mutex
		made := 0
		inParallel(30, func(i int) {
			s := k.store
			if i%2 == 1 {
				s = other
			}
			// Some alone, some in batches that alone are more than the limit.
			n := 1 + i%3*6
			items := make([]New, n)
			for j := range items {
				items[j] = New{Queue: "reviews", Title: "t", IdempotencyKey: fmt.Sprint(i, ".", j)}
			}
			out, err := s.Create(ctx, c.caller, items)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			for _, o := range out {
				if o.Err == nil {
					made++
				} else if refusal.CodeOf(o.Err) != c.code {
					t.Error(o.Err)
				}
			}
		})
		require.Equal(t, c.wanted, made)
		used, err := k.store.Used(ctx, c.caller)
		require.NoError(t, err)
		require.Equal(t, Used{Open: int64(c.wanted), ThisHour: int64(c.wanted)}, used)
	}
	// A slot that becomes free is one.
	got := k.claim(1)
	out, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	mine := open
	if st, err := k.store.Status(ctx, open, got[0].TodoID, 0, nil); err != nil || st.State != Done {
		mine = hourly
	}
	again, err := k.store.Create(ctx, mine, []New{{Queue: "reviews", Title: "t", IdempotencyKey: "again 1"}, {Queue: "reviews", Title: "t", IdempotencyKey: "again 2"}})
	require.NoError(t, err)
	if mine.Endpoint.ID == open.Endpoint.ID {
		require.NoError(t, again[0].Err)
		requireCode(t, refusal.QuotaExceeded, again[1].Err)
	} else {
		requireCode(t, refusal.RateLimited, again[0].Err)
		require.Greater(t, refusal.From(again[0].Err).RetryAfter, 59*time.Minute)
	}
}

func TestTogether_EachTodoIsClaimedOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	// One batch at a time, so that claims meet in batches.
	narrow := Options{Workers: 1, Direct: 1}
	stores := []*Store{k.replica(narrow), k.replica(narrow)}
	const todos = 300
	for i := range todos / 100 {
		items := make([]New, 100)
		for j := range items {
			items[j] = New{Queue: []string{"reviews", "builds"}[j%2], Title: "t", IdempotencyKey: fmt.Sprint(i, ".", j)}
		}
		_, err := k.store.Create(ctx, k.peer, items)
		require.NoError(t, err)
	}
	workers := []endpoint.Caller{
		k.work, k.home("reviews", "builds"), k.home("reviews"), k.home("reviews"), k.home("reviews"), k.home("builds"), k.home("builds"),
	}
	var mu sync.Mutex
	seen, tokens := map[uuid.UUID]int{}, map[string]int{}
	inParallel(42, func(i int) {
		w := workers[i%len(workers)]
		for {
			got, err := stores[i%2].ClaimNext(ctx, w, ClaimNext{Max: 1 + i%3})
			if err != nil {
				t.Error(err)
				return
			}
			if len(got) == 0 {
				return
			}
			mu.Lock()
			for _, c := range got {
				seen[c.TodoID]++
				tokens[c.LeaseToken]++
				if len(w.Endpoint.Scope.Queues) == 1 && c.Queue != w.Endpoint.Scope.Queues[0] {
					t.Errorf("%s was given a todo of %s", w.Endpoint.Scope.Queues, c.Queue)
				}
			}
			mu.Unlock()
		}
	})
	require.Len(t, seen, todos, "claimed")
	require.Len(t, tokens, todos, "leases")
	for id, n := range seen {
		require.Equal(t, 1, n, "claims of %s", id)
	}
}

func TestTogether_OneOfManyCreationsOfAKeyCreates(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	stores := []*Store{k.store, k.replica(Options{})}
	// Home endpoints of one agent: a line that no lock on an endpoint serialises.
	line := newID()
	homes := make([]endpoint.Caller, 4)
	for i := range homes {
		e := k.home("reviews").Endpoint
		e.Line = line
		homes[i] = k.vend(e)
	}
	// Both stores have claimed from the queue, so both insert many in one statement.
	for i, s := range stores {
		_, err := s.Create(ctx, homes[0], []New{{Queue: "reviews", Title: "t", IdempotencyKey: fmt.Sprint("first", i)}})
		require.NoError(t, err)
		got, err := s.ClaimNext(ctx, homes[0], ClaimNext{})
		require.NoError(t, err)
		require.Len(t, got, 1)
	}
	for round := range 30 {
		var mu sync.Mutex
		ids, fresh := map[uuid.UUID]bool{}, 0
		inParallel(8, func(i int) {
			// In one item or in many, forwards or backwards.
			n := 1 + i%2*11
			items := make([]New, n)
			for j := range items {
				at := j
				if i%4 > 1 {
					at = n - 1 - j
				}
				items[j] = New{Queue: "reviews", Title: "t", IdempotencyKey: fmt.Sprint(round, ".", at)}
			}
			out, err := stores[i%2].Create(ctx, homes[i%len(homes)], items)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			for j, o := range out {
				if o.Err != nil {
					t.Error(o.Err)
				} else if items[j].IdempotencyKey == fmt.Sprint(round, ".0") {
					ids[o.Value.TodoID] = true
					if !o.Value.Deduplicated {
						fresh++
					}
				}
			}
		})
		require.Len(t, ids, 1)
		require.Equal(t, 1, fresh)
	}
}

func TestTogether_EqualKeysInOneBatch(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	items := make([]New, 12)
	for i := range items {
		items[i] = New{Queue: "reviews", Title: "t", IdempotencyKey: fmt.Sprint(i % 3)}
	}
	items[11].Title = "other"
	out, err := k.store.Create(ctx, k.peer, items)
	require.NoError(t, err)
	for i, o := range out {
		if i == 11 {
			requireCode(t, refusal.Conflict, o.Err)
			continue
		}
		require.NoError(t, o.Err)
		require.Equal(t, i >= 3, o.Value.Deduplicated)
		require.Equal(t, out[i%3].Value.TodoID, o.Value.TodoID)
	}
}

func TestTogether_BatchesInAnyOrderDoNotDeadlock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	stores := []*Store{k.store, k.replica(Options{})}
	const n = 40
	for i := range n {
		k.create(fmt.Sprint(i))
	}
	got := k.claim(n)
	require.Len(t, got, n)
	inParallel(8, func(i int) {
		for range 12 {
			beats := make([]Beat, n)
			for j := range beats {
				at := j
				if i%2 == 1 {
					at = n - 1 - j
				}
				beats[j] = Beat{TodoID: got[at].TodoID, LeaseToken: got[at].LeaseToken}
			}
			out, err := stores[i/2%2].Heartbeat(ctx, k.work, beats)
			if err != nil {
				t.Error(err)
				return
			}
			for _, o := range out {
				if o.Err != nil {
					t.Error(o.Err)
				}
			}
		}
	})
	for _, s := range stores {
		_, _, reruns := s.batch.Stats()
		require.Zero(t, reruns, "batches were run again: they met in different orders")
	}
}

// TestTogether_WhatWasFoundWithoutALockIsComparedAgain: heartbeats and completions of
// many find their rows without a lock, and one of them changes before it is changed.
func TestTogether_WhatWasFoundWithoutALockIsComparedAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for what, change := range map[string]struct {
		set  string
		lost bool
	}{
		"another's lease":      {set: `token = gen_random_uuid()`, lost: true},
		"the same, moved away": {set: `cancel_requested = true`},
	} {
		for op, act := range map[string]func(k *kit, held []Claimed) []error{
			"heartbeat": func(k *kit, held []Claimed) []error {
				items := make([]Beat, len(held))
				for i, c := range held {
					items[i] = Beat{TodoID: c.TodoID, LeaseToken: c.LeaseToken}
				}
				return errorsOf(k.store.Heartbeat(ctx, k.work, items))
			},
			"complete": func(k *kit, held []Claimed) []error {
				items := make([]Completion, len(held))
				for i, c := range held {
					items[i] = Completion{TodoID: c.TodoID, LeaseToken: c.LeaseToken}
				}
				return errorsOf(k.store.Complete(ctx, k.work, items))
			},
		} {
			k := newKit(t)
			const n = 2 * few // more than are carried out by a statement each
			for i := range n {
				k.create(fmt.Sprint(i))
			}
			held := k.claim(n)
			require.Len(t, held, n)
			tx, err := k.pool.Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, `UPDATE todo_live SET `+change.set+` WHERE owner = $1 AND id = $2`, k.owner, held[1].TodoID)
			require.NoError(t, err)
			done := make(chan []error, 1)
			go func() { done <- act(k, held) }()
			k.waitingOn(1)
			require.NoError(t, tx.Commit(ctx))
			for i, err := range <-done {
				if i == 1 && change.lost {
					requireCode(t, refusal.LeaseLost, err)
				} else {
					require.NoError(t, err, "%s, %s, item %d", op, what, i)
				}
			}
		}
	}
}

// errorsOf are the errors of a call's items.
func errorsOf[V any](out []Outcome[V], err error) []error {
	if err != nil {
		return []error{err}
	}
	errs := make([]error, len(out))
	for i, o := range out {
		errs[i] = o.Err
	}
	return errs
}

// gathered makes calls that are carried out in one batch: the first holds the only
// worker until the others wait.
func (k *kit) gathered(s *Store, calls int, call func(i int)) (release func(), done *sync.WaitGroup) {
	k.t.Helper()
	tx := k.changing(k.peer)
	done = &sync.WaitGroup{}
	done.Go(func() {
		_, _ = s.Create(context.Background(), k.peer, []New{{Queue: "reviews", Title: "first", IdempotencyKey: "first"}})
	})
	k.waitingOn(1)
	for i := range calls {
		done.Go(func() { call(i) })
	}
	require.Eventually(k.t, func() bool { return s.batch.Waiting() == calls }, 10*time.Second, time.Millisecond)
	return func() { require.NoError(k.t, tx.Rollback(context.Background())) }, done
}

func TestTogether_APoisonedItemFailsAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	k.exec(`ALTER TABLE todo ADD CONSTRAINT poison CHECK (title <> 'poison')`)
	s := k.replica(Options{Workers: 1, Direct: 1})
	errs := make([]error, 12)
	release, done := k.gathered(s, len(errs), func(i int) {
		n := New{Queue: "reviews", Title: "fine", IdempotencyKey: fmt.Sprint(i)}
		if i == 5 {
			n.Title = "poison"
		}
		out, err := s.Create(ctx, k.peer, []New{n})
		if err == nil {
			err = out[0].Err
		}
		errs[i] = err
	})
	release()
	done.Wait()
	for i, err := range errs {
		if i == 5 {
			requireCode(t, refusal.Internal, err)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestTogether_AStaleCallerFailsAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	s := k.replica(Options{Workers: 1, Direct: 1})
	stale := k.friend(wide(), "reviews")
	stale.Endpoint.Version = 7
	errs := make([]error, 12)
	release, done := k.gathered(s, len(errs), func(i int) {
		c := k.peer
		if i == 5 {
			c = stale
		}
		out, err := s.Create(ctx, c, []New{{Queue: "reviews", Title: "t", IdempotencyKey: fmt.Sprint(i)}})
		if err == nil {
			err = out[0].Err
		}
		errs[i] = err
	})
	release()
	done.Wait()
	for i, err := range errs {
		if i == 5 {
			require.ErrorIs(t, err, endpoint.ErrStale)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestTogether_ACancelledCallerTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	s := k.replica(Options{Workers: 1, Direct: 1})
	slow := k.friend(wide(), "reviews")
	held := k.changing(slow)
	errs := make([]error, 12)
	gone, leave := context.WithCancel(ctx)
	call := func(ctx context.Context, c endpoint.Caller, i int) {
		out, err := s.Create(ctx, c, []New{{Queue: "reviews", Title: "t", IdempotencyKey: fmt.Sprint(i)}})
		if err == nil {
			err = out[0].Err
		}
		errs[i] = err
	}
	release, done := k.gathered(s, 1, func(int) { call(gone, slow, 0) })
	for i := 1; i < len(errs); i++ {
		done.Go(func() { call(ctx, k.peer, i) })
	}
	require.Eventually(t, func() bool { return s.batch.Waiting() == len(errs) }, 10*time.Second, time.Millisecond)
	release()
	// The batch is on its way and waits for the first one's row; now that one leaves.
	require.Eventually(t, func() bool { return s.batch.Waiting() == 0 }, 10*time.Second, time.Millisecond)
	k.waitingOn(1)
	leave()
	require.Eventually(t, func() bool { return gone.Err() != nil }, time.Second, time.Millisecond)
	require.NoError(t, held.Rollback(ctx))
	done.Wait()
	for i, err := range errs {
		if i == 0 {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, err)
		}
	}
}
