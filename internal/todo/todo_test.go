package todo

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
)

func TestTodo_GoesFromCreationToItsResult(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)

	made := k.create("one", func(n *New) { n.Body = "please"; n.Payload = json.RawMessage(`{"pr": 7}`) })
	require.Equal(t, Ready, made.State)
	require.False(t, made.Deduplicated)
	again := k.create("one", func(n *New) { n.Body = "please"; n.Payload = json.RawMessage(`{ "pr" : 7 }`) })
	require.True(t, again.Deduplicated)
	require.Equal(t, made.TodoID, again.TodoID)

	got := k.next()
	require.Equal(t, made.TodoID, got.TodoID)
	require.Equal(t, 1, got.Attempt)
	require.Empty(t, got.Title)
	require.Equal(t, &FromFriend{Identity: "alice@example.org", CallsItself: "release-bot", Title: "look at one", Body: "please", Payload: json.RawMessage(`{"pr": 7}`)}, got.FromFriend)
	require.Empty(t, k.claim(1))

	percent := 50.0
	beaten, err := k.store.Heartbeat(ctx, k.work, []Beat{{TodoID: got.TodoID, LeaseToken: got.LeaseToken, Progress: &Progress{Percent: &percent, Note: "half"},
		Artifacts: []Artifact{{Name: "log", MediaType: "text/plain", Text: new("so far")}}}})
	require.NoError(t, err)
	require.NoError(t, beaten[0].Err)
	st := k.status(got.TodoID)
	require.Equal(t, Leased, st.State)
	require.Equal(t, "half", st.Progress.Note)
	require.Len(t, st.Artifacts, 1)

	done := []Completion{{TodoID: got.TodoID, LeaseToken: got.LeaseToken, Result: json.RawMessage(`{"ok":true}`),
		Artifacts: []Artifact{{Name: "log", MediaType: "text/plain", Text: new("all of it")}, {Name: "link", MediaType: "text/html", URL: "https://x.example"}}}}
	for range 2 {
		out, err := k.store.Complete(ctx, k.work, done)
		require.NoError(t, err)
		require.NoError(t, out[0].Err)
		require.Equal(t, Done, out[0].Value.State)
	}
	st = k.status(got.TodoID)
	require.Equal(t, Done, st.State)
	require.JSONEq(t, `{"ok":true}`, string(st.Result))
	require.Len(t, st.Artifacts, 2)
	require.Equal(t, "all of it", *st.Artifacts[0].Text)
	require.NotNil(t, st.FinishedAt)
	require.Contains(t, string(st.WorkedBy), k.work.Endpoint.ID.String())

	out, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: got.TodoID, LeaseToken: got.LeaseToken, Result: json.RawMessage(`{"ok":false}`)}})
	require.NoError(t, err)
	requireCode(t, refusal.LeaseLost, out[0].Err)
	require.True(t, k.create("one", func(n *New) { n.Body = "please"; n.Payload = json.RawMessage(`{"pr":7}`) }).Deduplicated)
}

func TestTodo_IsRetriedAskedAnsweredAndGivenUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	id := k.create("one").TodoID

	got := k.next()
	asked, err := k.store.Ask(ctx, k.work, id, got.LeaseToken, "which one?")
	require.NoError(t, err)
	require.Equal(t, InputRequired, asked.State)
	again, err := k.store.Ask(ctx, k.work, id, got.LeaseToken, "which one?")
	require.NoError(t, err)
	require.Equal(t, asked, again)
	st := k.status(id)
	require.Equal(t, "which one?", st.Question.Text)
	other := newID()
	_, err = k.store.Answer(ctx, k.peer, Reply{TodoID: id, Text: "that", QuestionID: &other})
	requireCode(t, refusal.Conflict, err)
	for range 2 {
		answered, err := k.store.Answer(ctx, k.peer, Reply{TodoID: id, Text: "that", QuestionID: &st.Question.ID})
		require.NoError(t, err)
		require.Equal(t, Ready, answered.State)
	}

	got = k.next()
	require.Len(t, got.Exchanges, 1)
	require.Equal(t, "that", got.Exchanges[0].Answer.Text)
	require.Equal(t, "asked", got.PriorAttempts[0].Outcome)
	out, err := k.store.Release(ctx, k.work, []Return{{TodoID: id, LeaseToken: got.LeaseToken}})
	require.NoError(t, err)
	require.Equal(t, Ready, out[0].Value.State)

	for i := 1; i <= 5; i++ {
		got = k.next()
		require.Equal(t, 2+i, got.Attempt)
		out, err := k.store.Fail(ctx, k.work, []Failure{{TodoID: id, LeaseToken: got.LeaseToken, Error: "no luck", PublicMessage: "sorry"}})
		require.NoError(t, err)
		require.NoError(t, out[0].Err)
		if i < 5 {
			require.Equal(t, Ready, out[0].Value.State)
			require.Empty(t, k.claim(1), "backs off")
			d, err := k.store.Get(ctx, k.owner, id)
			require.NoError(t, err)
			wait := time.Until(*d.NotBefore)
			require.InDelta(t, (30 * time.Second << (i - 1)).Seconds(), wait.Seconds(), 0.25*(30*time.Second<<(i-1)).Seconds())
			k.due(id)
			continue
		}
		require.Equal(t, Failed, out[0].Value.State)
	}
	require.Equal(t, "sorry", k.status(id).PublicMessage)
	d, err := k.store.Get(ctx, k.owner, id)
	require.NoError(t, err)
	require.Len(t, d.Attempts, 7)
	back, err := k.store.Retry(ctx, k.owner, id)
	require.NoError(t, err)
	require.Equal(t, Ready, back.State)
	got = k.next()
	require.Equal(t, 8, got.Attempt)

	canceled, err := k.store.Cancel(ctx, k.peer, id, "never mind")
	require.NoError(t, err)
	require.Equal(t, Leased, canceled.State)
	require.True(t, *canceled.CancelRequested)
	beaten, err := k.store.Heartbeat(ctx, k.work, []Beat{{TodoID: id, LeaseToken: got.LeaseToken}})
	require.NoError(t, err)
	require.True(t, beaten[0].Value.CancelRequested)
	k.lapse(id)
	require.Empty(t, k.claim(1))
	require.Equal(t, Canceled, k.status(id).State)
}

func TestClaimNext_WaitsAndIsWokenByAnotherReplica(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	other := k.replica(Options{})
	got := make(chan []Claimed, 1)
	go func() {
		c, err := other.ClaimNext(ctx, k.work, ClaimNext{Wait: 20 * time.Second})
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	require.Eventually(t, func() bool {
		other.hub.mu.Lock()
		defer other.hub.mu.Unlock()
		return len(other.hub.lanes) == 2
	}, 5*time.Second, time.Millisecond)
	id := k.create("one").TodoID
	c := <-got
	require.Len(t, c, 1)
	require.Equal(t, id, c[0].TodoID)

	news := make(chan Status, 1)
	go func() {
		st, err := k.store.Status(ctx, k.peer, id, 20*time.Second, new(c[0].Version))
		if err != nil {
			t.Error(err)
		}
		news <- st
	}()
	out, err := other.Complete(ctx, k.work, []Completion{{TodoID: id, LeaseToken: c[0].LeaseToken}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	require.Equal(t, Done, (<-news).State)
}

func TestClaim_RepeatReturnsTheSameLeases(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	for _, key := range []string{"a", "b", "c"} {
		k.create(key)
	}
	first, err := k.store.ClaimNext(ctx, k.work, ClaimNext{Max: 2, ClaimID: "x"})
	require.NoError(t, err)
	require.Len(t, first, 2)
	second, err := k.store.ClaimNext(ctx, k.work, ClaimNext{Max: 2, ClaimID: "x"})
	require.NoError(t, err)
	require.Len(t, second, len(first))
	for i := range first {
		require.Equal(t, first[i].LeaseToken, second[i].LeaseToken)
	}
	third, err := k.store.ClaimNext(ctx, k.work, ClaimNext{Max: 2, ClaimID: "y"})
	require.NoError(t, err)
	require.Len(t, third, 1)
	one, err := k.store.Claim(ctx, k.work, k.create("d").TodoID, 0, "z")
	require.NoError(t, err)
	two, err := k.store.Claim(ctx, k.work, one.TodoID, 0, "z")
	require.NoError(t, err)
	require.Equal(t, one.LeaseToken, two.LeaseToken)
	_, err = k.store.Claim(ctx, k.work, one.TodoID, 0, "")
	requireCode(t, refusal.Conflict, err)
}
