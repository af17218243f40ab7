package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/mcp"
	"switchboard/internal/todo"
)

// What is written by hand is what the encoder writes, member by member.
func TestContentIsWhatTheEncoderSays(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 28, 1, 2, 3, 120_000_000, time.FixedZone("", 3600))
	yes, text := true, "it's \"plain\"\n<b>"
	full := todo.Claimed{
		TodoID: uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"), Queue: "reviews", State: todo.Leased, Version: -1 << 62, LeaseToken: "f\x00n\u2028ce", LeaseExpiresAt: at,
		Attempt: 3, Priority: 9, Deadline: &at, FromFriend: &todo.FromFriend{Identity: "alice", Title: "T", Body: text, Payload: json.RawMessage(`{"a": [1, 2]}`)},
		Title: text, Body: "\xff invalid, \u202e hidden, 🙂", Payload: json.RawMessage(" {\"b\" : \"\\u0041\\/\" ,\n\"a\":1.50e3, \"a\":[ ]}\n"),
		Exchanges: []todo.Exchange{{Question: todo.Question{Text: text}}}, PriorAttempts: []todo.PriorAttempt{{Error: text}},
		Artifacts: []todo.Artifact{{Name: "log", MediaType: "text/plain", Text: &text}},
	}
	scalar := full
	scalar.Payload = json.RawMessage(`"\ud83d\ude42"`)
	for _, v := range []any{
		todo.Created{}, todo.Created{TodoID: uuid.New(), State: todo.Ready, Version: 1 << 62, Deduplicated: true},
		todo.Changed{}, todo.Changed{TodoID: uuid.New(), State: todo.Done, Version: 7, CancelRequested: &yes}, todo.Changed{CancelRequested: new(bool)},
		todo.Beaten{}, todo.Beaten{TodoID: uuid.New(), State: todo.Leased, Version: 7, LeaseExpiresAt: at, CancelRequested: true},
		mcp.ClaimedList(), mcp.ClaimedList(todo.Claimed{}), mcp.ClaimedList(full, scalar),
		map[string]any{"results": []any{todo.Created{}}}, todo.Status{Title: text},
	} {
		want, err := mcp.Marshal(v)
		require.NoError(t, err)
		got, err := mcp.AppendContent(nil, v)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))

		var back string
		require.NoError(t, json.Unmarshal(mcp.AppendText(nil, got), &back))
		require.Equal(t, string(got), back)
	}
	_, err := mcp.AppendContent(nil, mcp.ClaimedList(todo.Claimed{Payload: json.RawMessage(`{`)}))
	require.Error(t, err, "what is kept and is no JSON does not spoil the answer around it")
}

// Of 36 characters, a UUID has one spelling in either case.
func FuzzParseID(f *testing.F) {
	f.Add("01890a5d-ac96-774b-bcce-b302099a8057")
	f.Add("01890A5D-AC96-774B-BCCE-B302099A8057")
	f.Add("{01890a5dac96774bbcceb302099a805701}")
	f.Fuzz(func(t *testing.T, s string) {
		if id, ok := mcp.ParseID(s); ok {
			require.Equal(t, strings.ToLower(s), id.String())
		}
	})
}
