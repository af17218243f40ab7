package todo

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
)

// idle waits until so many claiming calls have looked and wait.
func (k *kit) idle(s *Store, n int) {
	k.t.Helper()
	require.Eventually(k.t, func() bool {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		calls := map[*readyWait]bool{}
		for _, wl := range s.hub.lanes {
			for _, c := range wl.calls {
				if c.idle {
					calls[c] = true
				}
			}
		}
		return len(calls) == n
	}, 20*time.Second, time.Millisecond, "they do not wait")
}

// claimed is what a waiting call came to.
type claimed struct {
	todos []Claimed
	err   error
}

func (k *kit) await(ctx context.Context, s *Store, c endpoint.Caller, n ClaimNext) chan claimed {
	done := make(chan claimed, 1)
	n.Wait = 30 * time.Second
	go func() {
		todos, err := s.ClaimNext(ctx, c, n)
		done <- claimed{todos, err}
	}()
	return done
}

func (k *kit) createIn(s *Store, c endpoint.Caller, key string) Created {
	k.t.Helper()
	out, err := s.Create(context.Background(), c, []New{{Queue: "reviews", Title: "look at " + key, IdempotencyKey: key, Body: "b", Payload: []byte(`{"pr":7}`)}})
	require.NoError(k.t, err)
	require.NoError(k.t, out[0].Err)
	return out[0].Value
}

func TestGuest_AWaitingCallClaimsInTheTransactionOfTheCreation(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	s := k.replica(Options{PollEvery: time.Hour})
	for _, n := range []ClaimNext{{Queues: []string{"reviews"}}, {Max: 50}} { // of one queue, and across several
		done := k.await(t.Context(), s, k.work, n)
		k.idle(s, 1)
		before, _, _ := s.batch.Stats()
		made := k.createIn(s, k.peer, newID().String())
		got := <-done
		require.NoError(t, got.err)
		require.Len(t, got.todos, 1)
		c := got.todos[0]
		require.Equal(t, made.TodoID, c.TodoID)
		require.Equal(t, 1, c.Attempt)
		require.Equal(t, "b", c.FromFriend.Body)
		require.JSONEq(t, `{"pr":7}`, string(c.FromFriend.Payload))
		after, _, _ := s.batch.Stats()
		require.EqualValues(t, 1, after-before, "one transaction")
		out, err := s.Complete(t.Context(), k.work, []Completion{{TodoID: c.TodoID, LeaseToken: c.LeaseToken}})
		require.NoError(t, err)
		require.NoError(t, out[0].Err, "and the lease holds")
	}
}

func TestGuest_IsNotServedWithWhatComesLaterOrIsPaused(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	s := k.replica(Options{PollEvery: time.Hour})
	done := k.await(t.Context(), s, k.work, ClaimNext{Queues: []string{"reviews"}})
	k.idle(s, 1)
	later := time.Now().Add(time.Hour)
	_, err := s.Create(t.Context(), k.peer, []New{{Queue: "reviews", Title: "t", IdempotencyKey: "later", NotBefore: &later}})
	require.NoError(t, err)
	k.exec(`UPDATE queue SET paused = true WHERE owner = $1 AND name = 'reviews'`, k.owner)
	paused := k.createIn(s, k.peer, "paused")
	k.idle(s, 1)
	k.exec(`UPDATE queue SET paused = false WHERE owner = $1 AND name = 'reviews'`, k.owner)
	k.createIn(s, k.peer, "next")
	got := <-done
	require.NoError(t, got.err)
	require.Len(t, got.todos, 1)
	require.Equal(t, paused.TodoID, got.todos[0].TodoID, "the first in order, whichever woke the call")
}

func TestGuest_AStaleOneDoesNotHinderTheCreation(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	s := k.replica(Options{PollEvery: time.Hour})
	worker := k.home("reviews")
	done := k.await(t.Context(), s, worker, ClaimNext{})
	k.idle(s, 1)
	k.exec(`UPDATE stand_in SET version = 2 WHERE id = $1`, worker.Endpoint.ID)
	k.createIn(s, k.peer, "k")
	require.ErrorIs(t, (<-done).err, endpoint.ErrStale)
	require.Len(t, k.claim(1), 1, "it is there for another")
}

func TestGuest_AStaleCreationLeavesItWaiting(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	s := k.replica(Options{PollEvery: time.Hour})
	done := k.await(t.Context(), s, k.work, ClaimNext{Queues: []string{"reviews"}})
	k.idle(s, 1)
	stale := k.friend(wide(), "reviews")
	stale.Endpoint.Version = 7
	_, err := s.Create(t.Context(), stale, []New{{Queue: "reviews", Title: "t", IdempotencyKey: "k"}})
	require.ErrorIs(t, err, endpoint.ErrStale)
	k.idle(s, 1)
	made := k.createIn(s, k.peer, "k")
	require.Equal(t, made.TodoID, (<-done).todos[0].TodoID)
}

// TestGuest_WhoLeavesGivesBack: the client goes away while the creation that claims
// for it is on its way.
func TestGuest_WhoLeavesGivesBack(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	s := k.replica(Options{PollEvery: time.Hour})
	gone, leave := context.WithCancel(t.Context())
	done := k.await(gone, s, k.work, ClaimNext{Queues: []string{"reviews"}})
	k.idle(s, 1)
	held := k.changing(k.peer) // the creation waits for this
	made := make(chan Created, 1)
	go func() { made <- k.createIn(s, k.peer, "k") }()
	k.waitingOn(1)
	leave()
	require.NoError(t, held.Rollback(t.Context()))
	require.ErrorIs(t, (<-done).err, context.Canceled)
	require.Equal(t, (<-made).TodoID, k.next().TodoID, "ready again at once")
}

// TestClaim_ARepeatKeepsWhatTheFirstCallWasCutOff: the first call's client goes away and
// calls again while the first is still on its way. The lease is the repeat's then.
func TestClaim_ARepeatKeepsWhatTheFirstCallWasCutOff(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	s := k.replica(Options{PollEvery: time.Hour})
	k.create("k")
	n := ClaimNext{Queues: []string{"reviews"}, ClaimID: "once"}
	gone, leave := context.WithCancel(t.Context())
	held := k.changing(k.work) // the claim waits for this
	first := k.await(gone, s, k.work, n)
	k.waitingOn(1)
	leave()
	second := k.await(t.Context(), s, k.work, n)
	k.waitingOn(2)
	require.NoError(t, held.Rollback(t.Context()))
	<-first
	got := <-second
	require.NoError(t, got.err)
	require.Len(t, got.todos, 1)
	out, err := s.Complete(t.Context(), k.work, []Completion{{TodoID: got.todos[0].TodoID, LeaseToken: got.todos[0].LeaseToken}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err, "the lease is the repeat's")
}

// TestExecute_WhatAnAbortedTransactionReturnedIsForgotten: a statement that acted, in a
// transaction that a later statement ended.
func TestExecute_WhatAnAbortedTransactionReturnedIsForgotten(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	s := k.store
	k.create("a")
	held := k.next()
	k.create("b")
	// The claim, which comes last, ends the transaction.
	k.exec(`CREATE FUNCTION fall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'over' USING ERRCODE = '40001'; END $$`)
	k.exec(`CREATE TRIGGER fall BEFORE UPDATE ON todo_live FOR EACH ROW WHEN (NEW.attempt > OLD.attempt) EXECUTE FUNCTION fall()`)
	made, err := newCreation(New{Queue: "reviews", Title: "t", IdempotencyKey: "c"}, nil)
	require.NoError(t, err)
	w := &work{auth: authorityOf(k.work)}
	made.auth, made.line = &w.auth, k.work.Endpoint.Line
	w.add(made)
	w.demand = &demand{auth: &w.auth, queues: []string{"reviews"}, max: 1, lease: time.Minute}
	token, err := parseToken(held.LeaseToken)
	require.NoError(t, err)
	done := &completion{auth: &w.auth, id: held.TodoID, token: token, hash: []byte("h")}
	w.completions = []*completion{done}
	_, err = s.execute(t.Context(), []*work{w})
	require.Error(t, err)
	require.False(t, made.fresh || made.decided, "the creation")
	require.False(t, done.acted || done.decided, "the completion")
	require.False(t, w.demand.decided, "the claim")
	require.Empty(t, w.demand.taken)
	k.exec(`DROP TRIGGER fall ON todo_live`)
	_, err = s.execute(t.Context(), []*work{w})
	require.NoError(t, err)
	require.True(t, made.fresh && done.acted && len(w.demand.taken) == 1, "and carried out when it is tried again")
}

// TestGuest_KeepsWhatItClaimedThoughTheCreationFailsAfterwards: of a creation whose
// first transaction has committed, with a claim, an item is left undecided; the
// creator is stale by the next.
func TestGuest_KeepsWhatItClaimedThoughTheCreationFailsAfterwards(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	s := k.replica(Options{PollEvery: time.Hour})
	done := k.await(t.Context(), s, k.work, ClaimNext{Queues: []string{"reviews"}})
	k.idle(s, 1)
	// The key of a todo that is long gone is forgotten after the first transaction, so
	// that its item can be created in the next; the creator is revoked in between.
	k.exec(`INSERT INTO todo_key (owner, name, id, digest, line, created_at) VALUES ($1, $2, $3, $3, $4, clock_timestamp())`,
		k.owner, keyName(k.peer.Endpoint.Line, "old"), newID(), k.peer.Endpoint.Line)
	k.exec(`CREATE FUNCTION revoke() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE stand_in SET version = 2 WHERE line = OLD.line; RETURN NULL; END $$`)
	k.exec(`CREATE TRIGGER revoke AFTER DELETE ON todo_key FOR EACH ROW EXECUTE FUNCTION revoke()`)
	_, err := s.Create(t.Context(), k.peer, []New{
		{Queue: "reviews", Title: "t", IdempotencyKey: "new"}, {Queue: "reviews", Title: "t", IdempotencyKey: "old"},
	})
	require.ErrorIs(t, err, endpoint.ErrStale)
	got := <-done
	require.NoError(t, got.err)
	require.Len(t, got.todos, 1, "it is leased, and its worker is told")
}
