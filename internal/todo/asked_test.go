package todo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAskedSince_ListsOpenQuestionsOldestFirst(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	start := time.Now().Add(-time.Minute)
	for _, key := range []string{"a", "b", "c"} {
		k.create(key)
		held := k.next()
		_, err := k.store.Ask(t.Context(), k.work, held.TodoID, held.LeaseToken, "Which one, "+key+"?")
		require.NoError(t, err)
	}
	asked, err := k.store.AskedSince(t.Context(), start, 10)
	require.NoError(t, err)
	require.Len(t, asked, 3)
	require.True(t, asked[0].AskedAt.Before(asked[1].AskedAt))
	require.Equal(t, k.owner, asked[0].Owner)
	require.NotNil(t, asked[0].GrantID, "a friend's todo says whose it is")

	first, err := k.store.AskedSince(t.Context(), start, 2)
	require.NoError(t, err)
	require.Equal(t, asked[:2], first)
	later, err := k.store.AskedSince(t.Context(), asked[1].AskedAt, 10)
	require.NoError(t, err)
	require.Equal(t, asked[2:], later)

	_, err = k.store.AnswerOwn(t.Context(), k.owner, Reply{TodoID: asked[0].Todo, Text: "That one."})
	require.NoError(t, err)
	left, err := k.store.AskedSince(t.Context(), start, 10)
	require.NoError(t, err)
	require.Equal(t, asked[1:], left, "an answered one is open no more")
}
