package todo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
)

// heavy is a payload of about this many bytes.
func heavy(bytes int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", bytes) + `"`)
}

func weighs(t *testing.T, v any) int {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return len(b)
}

// What a call answers is bounded in bytes and not only in number, and nothing is
// left out: the rest comes with the next page or claim.
func TestNoAnswerIsHeavierThanAPageAndNothingIsMissing(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	ctx := context.Background()
	const todos, each = 12, 700 << 10
	made := map[uuid.UUID]bool{}
	for i := range todos {
		out, err := k.store.Create(ctx, k.work, []New{{Queue: "reviews", Title: "t", IdempotencyKey: fmt.Sprint(i), Payload: heavy(each)}})
		require.NoError(t, err)
		require.NoError(t, out[0].Err)
		made[out[0].Value.TodoID] = true
	}
	const most = pageBytes + each

	seen := map[uuid.UUID]bool{}
	for cursor := ""; ; {
		page, next, err := k.store.ListForWorker(ctx, k.work, "", "", cursor, 100)
		require.NoError(t, err)
		require.NotEmpty(t, page)
		require.Less(t, weighs(t, page), most)
		for _, d := range page {
			require.False(t, seen[d.TodoID])
			seen[d.TodoID] = true
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	require.Equal(t, made, seen)

	claimed := map[uuid.UUID]bool{}
	for len(claimed) < todos {
		var got [3][]Claimed
		var all sync.WaitGroup
		for n := range got {
			all.Go(func() {
				taken, err := k.store.ClaimNext(ctx, k.work, ClaimNext{Queues: []string{"reviews"}, Max: []int{100, 100, 1}[n]})
				if err != nil {
					t.Error(err)
				}
				got[n] = taken
			})
		}
		all.Wait()
		for _, taken := range got {
			require.Less(t, weighs(t, taken), 2*most)
			for _, c := range taken {
				require.False(t, claimed[c.TodoID])
				claimed[c.TodoID] = true
			}
		}
	}
	require.Equal(t, made, claimed)
	got, err := k.store.ClaimNext(ctx, k.work, ClaimNext{Max: 100})
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestAFriendsListIsBoundedByWhatWorkersAnswered(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	ctx := context.Background()
	const todos = 8
	for i := range todos {
		k.create(fmt.Sprint(i))
		c := k.next()
		out, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: c.TodoID, LeaseToken: c.LeaseToken, Result: heavy(600 << 10),
			Artifacts: []Artifact{{Name: "a", MediaType: "text/plain", Data: heavy(100 << 10)}}}})
		require.NoError(t, err)
		require.NoError(t, out[0].Err)
	}
	n, cursor := 0, ""
	for {
		page, next, err := k.store.ListCreated(ctx, k.peer, "", Done, cursor, 100)
		require.NoError(t, err)
		require.Less(t, weighs(t, page), pageBytes+700<<10)
		n += len(page)
		if cursor = next; cursor == "" {
			break
		}
	}
	require.Equal(t, todos, n)
}

// A worker that goes on and on makes no todo that nobody can read any more.
func TestATodoDoesNotGrowWithoutBound(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	ctx := context.Background()
	k.create("grows")
	c := k.next()
	beat := func(name string, bytes int) error {
		out, err := k.store.Heartbeat(ctx, k.work, []Beat{{TodoID: c.TodoID, LeaseToken: c.LeaseToken, Artifacts: []Artifact{{Name: name, MediaType: "x", Data: heavy(bytes)}}}})
		require.NoError(t, err)
		return out[0].Err
	}
	for i := range 4 {
		require.NoError(t, beat(fmt.Sprint("big", i), 900<<10))
	}
	require.Equal(t, refusal.PayloadTooLarge, refusal.CodeOf(beat("one more", 900<<10)))
	require.NoError(t, beat("big0", 900<<10), "replaces one")
	out, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: c.TodoID, LeaseToken: c.LeaseToken, Artifacts: []Artifact{{Name: "more", MediaType: "x", Data: heavy(900 << 10)}}}})
	require.NoError(t, err)
	require.Equal(t, refusal.PayloadTooLarge, refusal.CodeOf(out[0].Err))

	token := c.LeaseToken
	for range maxHistory + 20 {
		_, err := k.store.Release(ctx, k.work, []Return{{TodoID: c.TodoID, LeaseToken: token}})
		require.NoError(t, err)
		token = k.next().LeaseToken
	}
	for range 3 {
		_, err := k.store.Ask(ctx, k.work, c.TodoID, token, "Which?")
		require.NoError(t, err)
		_, err = k.store.AnswerOwn(ctx, k.owner, Reply{TodoID: c.TodoID, Text: "this", Payload: heavy(900 << 10)})
		require.NoError(t, err)
		token = k.next().LeaseToken
	}
	d, err := k.store.GetForWorker(ctx, k.work, c.TodoID)
	require.NoError(t, err)
	require.LessOrEqual(t, len(d.Attempts), maxHistory+1)
	require.Equal(t, d.Attempt, d.Attempts[len(d.Attempts)-1].Attempt, "the newest are shown")
	require.Len(t, d.Exchanges, 1)
	require.NotNil(t, d.Exchanges[0].Answer)
	require.Less(t, weighs(t, d), maxAttached+2*historyBytes+pageBytes)
}
