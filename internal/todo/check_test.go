package todo

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// A document that one encoder takes and another refuses would spoil the answer
// to every claim and list that it stands in, with the leases of the todos
// beside it. None gets in, through whichever door.
func TestADocumentOfTwoReadingsIsNotTaken(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	ctx := context.Background()
	asked := k.create("asked").TodoID
	_, err := k.store.Ask(ctx, k.work, asked, k.next().LeaseToken, "Which?")
	require.NoError(t, err)
	for _, raw := range []string{
		`{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`, `{"a":"\ud800"}`, `"\udc00\ud800"`, "\"\xff\"", `{"a":"\u0000"}`, `{"a":1}{"b":2}`, `{`,
		strings.Repeat("[", 65) + strings.Repeat("]", 65),
	} {
		n := New{Queue: "reviews", Title: "t", IdempotencyKey: "k", Payload: json.RawMessage(raw)}
		for _, c := range []endpoint.Caller{k.work, k.peer} {
			out, err := k.store.Create(ctx, c, []New{n})
			require.NoError(t, err)
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(out[0].Err), raw)
		}
		_, err := k.store.CreateOwn(ctx, k.owner, n)
		require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err), raw)
		_, err = k.store.AnswerOwn(ctx, k.owner, Reply{TodoID: asked, Text: "x", Payload: json.RawMessage(raw)})
		require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err), raw)
	}
	_, err = k.store.AnswerOwn(ctx, k.owner, Reply{TodoID: asked, Text: "x", Payload: json.RawMessage(strings.Repeat("[", 64) + strings.Repeat("]", 64))})
	require.NoError(t, err)
	_, err = k.store.CreateOwn(ctx, k.owner, New{Queue: "re\x00views", Title: "t", IdempotencyKey: "k"})
	require.Equal(t, refusal.NotFound, refusal.CodeOf(err), "the queue's name would fail the whole batch")
}
