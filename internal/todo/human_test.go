package todo

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

func TestConsent_IsForTheHumanAloneAndEndedByTheDecision(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	request := newID()
	var id uuid.UUID
	require.NoError(t, pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) (err error) {
		if err := k.store.HumanCreated(ctx, tx, k.owner); err != nil {
			return err
		}
		id, err = k.store.OpenConsent(ctx, tx, k.owner, request, "release-bot asks")
		return err
	}))
	k.store.Woken(k.owner)

	// Not even an endpoint that says it has inbox sees or touches it.
	forged := k.vend(endpoint.Endpoint{Kind: endpoint.Home, Scope: scope.Scope{Queues: []string{"inbox", "reviews"}}})
	got, err := k.store.ClaimNext(ctx, forged, ClaimNext{Queues: []string{"inbox"}})
	require.NoError(t, err)
	require.Empty(t, got)
	list, _, err := k.store.ListForWorker(ctx, forged, "", "", "", 0)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = k.store.Claim(ctx, forged, id, 0, "")
	requireCode(t, refusal.NotFound, err)
	_, err = k.store.GetForWorker(ctx, forged, id)
	requireCode(t, refusal.NotFound, err)
	for _, c := range []endpoint.Caller{forged, k.peer} {
		_, err = k.store.Cancel(ctx, c, id, "")
		requireCode(t, refusal.NotFound, err)
		_, err = k.store.Status(ctx, c, id, 0, nil)
		requireCode(t, refusal.NotFound, err)
	}
	done, err := k.store.Complete(ctx, forged, []Completion{{TodoID: id, LeaseToken: uuid.NewString()}})
	require.NoError(t, err)
	requireCode(t, refusal.NotFound, done[0].Err)
	// Nor does the human end it but by deciding.
	_, err = k.store.CancelOwn(ctx, k.owner, id, "")
	requireCode(t, refusal.Conflict, err)
	_, err = k.store.ReleaseOwn(ctx, k.owner, id)
	requireCode(t, refusal.Conflict, err)
	require.NoError(t, k.store.reap(ctx))
	require.NoError(t, k.store.reapLapsed(ctx))

	own, err := k.store.CreateOwn(ctx, k.owner, New{Queue: "inbox", Title: "call back", IdempotencyKey: "x"})
	require.NoError(t, err)
	items, _, err := k.store.Inbox(ctx, k.owner, "", 0)
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.Equal(t, "friend_request", items[0].Kind)
	require.Equal(t, &request, items[0].FriendRequestID)
	require.Equal(t, own.TodoID, items[1].ID)

	finish := func() error {
		return pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
			return k.store.FinishConsent(ctx, tx, k.owner, request, Done, json.RawMessage(`{"decision":"approved"}`))
		})
	}
	require.NoError(t, finish())
	requireCode(t, refusal.Conflict, finish())
	d, err := k.store.Get(ctx, k.owner, id)
	require.NoError(t, err)
	require.Equal(t, Done, d.State)
	require.Equal(t, "friend_request", d.Kind)
	require.JSONEq(t, `{"decision":"approved"}`, string(d.Result))
}

func TestInbox_ShowsApprovalsThenTodosAndQuestionsOfOwnLinesPageByPage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	require.NoError(t, pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
		if err := k.store.HumanCreated(ctx, tx, k.owner); err != nil {
			return err
		}
		for i := range 3 {
			if _, err := k.store.OpenConsent(ctx, tx, k.owner, newID(), fmt.Sprint(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	for i := range 2 {
		_, err := k.store.CreateOwn(ctx, k.owner, New{Queue: "inbox", Title: "t", IdempotencyKey: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	// A question about a todo of the human's own agents is for the human, one about a
	// friend's todo for the friend.
	out, err := k.store.Create(ctx, k.work, []New{{Queue: "reviews", Title: "own", IdempotencyKey: "own"}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	k.create("friend's")
	for _, c := range k.claim(2) {
		_, err := k.store.Ask(ctx, k.work, c.TodoID, c.LeaseToken, "which?")
		require.NoError(t, err)
	}
	var kinds []string
	seen := map[uuid.UUID]bool{}
	for cursor := ""; ; {
		items, next, err := k.store.Inbox(ctx, k.owner, cursor, 2)
		require.NoError(t, err)
		for _, i := range items {
			kinds = append(kinds, i.Kind)
			require.False(t, seen[i.ID])
			seen[i.ID] = true
			if i.Kind == "question" {
				require.Equal(t, out[0].Value.TodoID, i.ID)
				require.Equal(t, "which?", i.Question.Text)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"friend_request", "friend_request", "friend_request"}, kinds[:3])
	require.ElementsMatch(t, []string{"todo", "todo", "question"}, kinds[3:])
}

func TestQueue_IsKeptByItsHuman(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	_, err := k.store.CreateQueue(ctx, k.owner, "reviews", "")
	requireCode(t, refusal.Conflict, err)
	_, err = k.store.CreateQueue(ctx, k.owner, "No", "")
	requireCode(t, refusal.InvalidArgument, err)
	q, err := k.store.UpdateQueue(ctx, k.owner, "reviews", QueuePatch{Paused: new(true), MaxAttempts: new(2)})
	require.NoError(t, err)
	require.True(t, q.Paused)
	_, err = k.store.UpdateQueue(ctx, k.owner, "reviews", QueuePatch{Description: new("x"), IfVersion: new(q.Version - 1)})
	requireCode(t, refusal.PreconditionFailed, err)
	_, err = k.store.UpdateQueue(ctx, newID(), "reviews", QueuePatch{Description: new("x")})
	requireCode(t, refusal.NotFound, err)

	a := k.create("a").TodoID
	require.Empty(t, k.claim(1), "paused")
	_, err = k.store.Claim(ctx, k.work, a, 0, "")
	requireCode(t, refusal.Conflict, err)
	_, err = k.store.UpdateQueue(ctx, k.owner, "reviews", QueuePatch{Paused: new(false)})
	require.NoError(t, err)
	c := k.next()
	_, err = k.store.UpdateQueue(ctx, k.owner, "reviews", QueuePatch{Paused: new(true)})
	require.NoError(t, err)
	out, err := k.store.Fail(ctx, k.work, []Failure{{TodoID: a, LeaseToken: c.LeaseToken, Error: "x"}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err, "what is leased goes on")
	k.create("b")
	qs, _, err := k.store.Queues(ctx, k.owner, "", 0)
	require.NoError(t, err)
	require.Len(t, qs, 3)
	require.Equal(t, "reviews", qs[2].Name)
	require.Equal(t, []int64{2, 0, 0}, []int64{qs[2].Ready, qs[2].Leased, qs[2].InputRequired})

	require.NoError(t, k.store.QueuesExist(ctx, k.owner, []string{"reviews", "builds"}))
	err = k.store.QueuesExist(ctx, k.owner, []string{"reviews", "elsewhere", "nowhere"})
	requireCode(t, refusal.InvalidArgument, err)
	require.Contains(t, err.Error(), "elsewhere")
	require.NoError(t, pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error { return k.store.HumanCreated(ctx, tx, k.owner) }))
	requireCode(t, refusal.InvalidArgument, k.store.QueuesExist(ctx, k.owner, []string{"inbox"}))
}

func TestList_PagesAreBoundToCallerAndFilter(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	for i := range 5 {
		k.create(fmt.Sprint(i))
	}
	c := k.next()
	_, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: c.TodoID, LeaseToken: c.LeaseToken}})
	require.NoError(t, err)

	var titles []string
	first := ""
	for cursor := ""; ; {
		page, next, err := k.store.ListCreated(ctx, k.peer, "", "", cursor, 2)
		require.NoError(t, err)
		for _, s := range page {
			titles = append(titles, s.Title)
		}
		if first == "" {
			first = next
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"look at 4", "look at 3", "look at 2", "look at 1", "look at 0"}, titles)
	_, _, err = k.store.ListCreated(ctx, k.peer, "reviews", "", first, 2)
	requireCode(t, refusal.InvalidArgument, err)
	_, _, err = k.store.ListCreated(ctx, k.friend(wide(), "reviews"), "", "", first, 2)
	requireCode(t, refusal.InvalidArgument, err)
	_, _, err = k.store.ListCreated(ctx, k.peer, "", "", "", 101)
	requireCode(t, refusal.InvalidArgument, err)
	_, _, err = k.store.ListCreated(ctx, k.peer, "", "gone", "", 0)
	requireCode(t, refusal.InvalidArgument, err)
	_, _, err = k.store.ListCreated(ctx, k.peer, "nowhere", "", "", 0)
	requireCode(t, refusal.NotFound, err)
	mine, _, err := k.store.ListCreated(ctx, k.friend(wide(), "reviews"), "", "", "", 0)
	require.NoError(t, err)
	require.Empty(t, mine)

	for state, n := range map[State]int{"": 5, Ready: 4, Done: 1, Leased: 0} {
		worker, _, err := k.store.ListForWorker(ctx, k.work, "reviews", state, "", 0)
		require.NoError(t, err)
		require.Len(t, worker, n, state)
		human, _, err := k.store.List(ctx, k.owner, Filter{State: state, GrantID: k.peer.Endpoint.GrantID}, "", 0)
		require.NoError(t, err)
		require.Len(t, human, n, state)
		friend, _, err := k.store.ListCreated(ctx, k.peer, "", state, "", 0)
		require.NoError(t, err)
		require.Len(t, friend, n, state)
	}
	none, _, err := k.store.List(ctx, newID(), Filter{}, "", 0)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestCancelByEndpoint_EndsWhatTheLineLeftOpen(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	// Made by an endpoint that the present one has superseded.
	older := k.peer.Endpoint
	old := k.vend(older)
	out, err := k.store.Create(ctx, old, []New{{Queue: "reviews", Title: "t", IdempotencyKey: "old"}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	id := out[0].Value.TodoID
	leased := k.next()
	require.Equal(t, id, leased.TodoID)
	ready := k.create("ready").TodoID
	asked := k.create("asked").TodoID
	c, err := k.store.Claim(ctx, k.work, asked, 0, "")
	require.NoError(t, err)
	_, err = k.store.Ask(ctx, k.work, asked, c.LeaseToken, "?")
	require.NoError(t, err)
	stranger, err := k.store.Create(ctx, k.friend(wide(), "reviews"), []New{{Queue: "reviews", Title: "t", IdempotencyKey: "k"}})
	require.NoError(t, err)

	var n int
	require.NoError(t, pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) (err error) {
		n, err = k.store.CancelByEndpoint(ctx, tx, k.owner, k.peer.Endpoint.ID, "revoked")
		return err
	}))
	k.store.Woken(k.owner)
	require.Equal(t, 3, n)
	for _, id := range []uuid.UUID{ready, asked} {
		require.Equal(t, Canceled, k.status(id).State)
	}
	require.Equal(t, Leased, k.status(id).State)
	b, err := k.store.Heartbeat(ctx, k.work, []Beat{{TodoID: id, LeaseToken: leased.LeaseToken}})
	require.NoError(t, err)
	require.True(t, b[0].Value.CancelRequested)
	d, err := k.store.Get(ctx, k.owner, stranger[0].Value.TodoID)
	require.NoError(t, err)
	require.Equal(t, Ready, d.State)
}

func TestBatch_EachItemHasItsOutcomeInOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	for i := range 8 {
		k.create(fmt.Sprint(i))
	}
	got := k.claim(8)
	require.Len(t, got, 8)
	lost := uuid.NewString()
	beats, err := k.store.Heartbeat(ctx, k.work, []Beat{
		{TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken}, {TodoID: got[1].TodoID, LeaseToken: lost},
		{TodoID: newID(), LeaseToken: lost}, {TodoID: got[2].TodoID, LeaseToken: "no token"},
		{TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken}, // twice in one call
		{TodoID: got[3].TodoID, LeaseToken: got[3].LeaseToken},
	})
	require.NoError(t, err)
	for i, code := range []refusal.Code{"", refusal.LeaseLost, refusal.NotFound, refusal.LeaseLost, "", ""} {
		if code == "" {
			require.NoError(t, beats[i].Err)
		} else {
			requireCode(t, code, beats[i].Err)
		}
	}
	done, err := k.store.Complete(ctx, k.work, []Completion{
		{TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken}, {TodoID: got[1].TodoID, LeaseToken: lost},
		{TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken}, {TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken, Result: json.RawMessage(`1`)},
		{TodoID: got[2].TodoID, LeaseToken: got[2].LeaseToken, Artifacts: []Artifact{{Name: "a", MediaType: "text/plain"}}},
		{TodoID: got[3].TodoID, LeaseToken: got[3].LeaseToken},
	})
	require.NoError(t, err)
	for i, code := range []refusal.Code{"", refusal.LeaseLost, "", refusal.LeaseLost, refusal.InvalidArgument, ""} {
		if code == "" {
			require.NoError(t, done[i].Err)
			require.Equal(t, Done, done[i].Value.State)
		} else {
			requireCode(t, code, done[i].Err)
		}
	}
	failed, err := k.store.Fail(ctx, k.work, []Failure{
		{TodoID: got[4].TodoID, LeaseToken: got[4].LeaseToken, Error: "x", NoRetry: true}, {TodoID: got[5].TodoID, LeaseToken: got[5].LeaseToken},
		{TodoID: got[4].TodoID, LeaseToken: got[4].LeaseToken, Error: "x", NoRetry: true},
	})
	require.NoError(t, err)
	require.Equal(t, Failed, failed[0].Value.State)
	requireCode(t, refusal.InvalidArgument, failed[1].Err)
	require.Equal(t, failed[0], failed[2])
	released, err := k.store.Release(ctx, k.work, []Return{{TodoID: got[6].TodoID, LeaseToken: got[6].LeaseToken}, {TodoID: got[7].TodoID, LeaseToken: got[7].LeaseToken}})
	require.NoError(t, err)
	for _, r := range released {
		require.Equal(t, Ready, r.Value.State)
	}
	_, err = k.store.Heartbeat(ctx, k.work, make([]Beat, 101))
	requireCode(t, refusal.InvalidArgument, err)
	_, err = k.store.Create(ctx, k.peer, nil)
	requireCode(t, refusal.InvalidArgument, err)
}

func TestOrder_AFloodOfOneLineDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	quiet := k.friend(wide(), "reviews")
	flood := make([]New, 50)
	for i := range flood {
		flood[i] = New{Queue: "reviews", Title: "flood", IdempotencyKey: fmt.Sprint(i)}
	}
	_, err := k.store.Create(ctx, k.peer, flood)
	require.NoError(t, err)
	k.claim(10)
	_, err = k.store.Create(ctx, quiet, []New{{Queue: "reviews", Title: "quiet", IdempotencyKey: "1"}, {Queue: "reviews", Title: "quiet", IdempotencyKey: "2"}, {Queue: "reviews", Title: "quiet", IdempotencyKey: "3"}})
	require.NoError(t, err)
	first := func(n int) (quiet int) {
		for _, c := range k.claim(n) {
			if c.FromFriend.Title == "quiet" {
				quiet++
			}
		}
		return quiet
	}
	require.Equal(t, 3, first(7), "turn by turn, though the flood came first")
	// Nor does having been served give a line a lasting debt.
	_, err = k.store.Create(ctx, quiet, []New{{Queue: "reviews", Title: "quiet", IdempotencyKey: "4"}})
	require.NoError(t, err)
	require.Equal(t, 1, first(3))
	// Priority comes before turns.
	_, err = k.store.Create(ctx, k.peer, []New{{Queue: "reviews", Title: "urgent", IdempotencyKey: "u", Priority: new(9)}})
	require.NoError(t, err)
	require.Equal(t, "urgent", k.next().FromFriend.Title)
}

func TestLapse_IsFreeThreeTimesWithoutAHeartbeat(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	k.exec(`UPDATE queue SET max_attempts = 2 WHERE owner = $1`, k.owner)
	id := k.create("k").TodoID
	for range 4 { // three free ones, and one that is charged
		k.next()
		k.lapse(id)
	}
	c := k.next()
	require.Equal(t, 5, c.Attempt)
	// Its heartbeat keeps a lapsed lease that nobody has reclaimed.
	k.lapse(id)
	b, err := k.store.Heartbeat(ctx, k.work, []Beat{{TodoID: id, LeaseToken: c.LeaseToken}})
	require.NoError(t, err)
	require.NoError(t, b[0].Err)
	require.Empty(t, k.claim(1))
	k.lapse(id)
	require.NoError(t, k.store.reapLapsed(ctx))
	st := k.status(id)
	require.Equal(t, Failed, st.State)
	b, err = k.store.Heartbeat(ctx, k.work, []Beat{{TodoID: id, LeaseToken: c.LeaseToken}})
	require.NoError(t, err)
	requireCode(t, refusal.LeaseLost, b[0].Err)
}
