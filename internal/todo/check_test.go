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

// FuzzCanonical holds that the short way to a digest is the long one.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{"repository":"billing","pull_request":7}`, ` { "b" : [ 1.50, -0, 1E5, {"z":null,"a":true} ] , "a" : { } } `, `{"a":1,"a":2}`, `"x"`, `12`, `[]`, ``, `{`,
		`{"":1,"A":2,"a":3,"_":4,"ab":5,"a b":6}`, `{"<":1,"é":2,"\u0041":3}`, "{\"\U0001f642\":1,\"\uffee\":2}", "\"\x7f\"", `{"a":"\/"}`, `1 2`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if b, ok := sortedASCII(s); ok && json.Valid([]byte(s)) {
			require.Equal(t, string(reencoded(s)), string(b))
		}
	})
}

func BenchmarkCanonical(b *testing.B) {
	payload := `{"repository":"billing","pull_request":7}`
	b.Run("short", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = sortedASCII(payload)
		}
	})
	b.Run("long", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = reencoded(payload)
		}
	})
	b.Run("digest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = digest("reviews", "Review 7", "Look at the change of the billing address.", payload)
		}
	})
}
