package postgres_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
)

func TestCursor_RoundTripsAndIsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[^\x00]{0,20}`)
		bind, other := text.Draw(t, "bind"), text.Draw(t, "other")
		key := rapid.SliceOfN(text, 0, 4).Draw(t, "key")
		cursor := postgres.EncodeCursor(bind, key...)
		got, err := postgres.DecodeCursor(bind, cursor, len(key))
		require.NoError(t, err)
		require.Equal(t, append([]string{}, key...), got)
		if other != bind {
			_, err = postgres.DecodeCursor(other, cursor, len(key))
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
		}
		_, err = postgres.DecodeCursor(bind, cursor, len(key)+1)
		require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
	})
}

func TestCursor_BindPartsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, postgres.BindCursor("ab", "c"), postgres.BindCursor("a", "bc"))
	require.NotEqual(t, postgres.BindCursor("a"), postgres.BindCursor("a", ""))
}

func TestCursorAt_RoundTrips(t *testing.T) {
	t.Parallel()
	at, id := time.Date(2026, 3, 4, 5, 6, 7, 890123000, time.FixedZone("x", 3600)), uuid.New()
	gotAt, gotID, err := postgres.DecodeCursorAt("b", postgres.EncodeCursorAt("b", at, id))
	require.NoError(t, err)
	require.True(t, at.Equal(gotAt))
	require.Equal(t, id, gotID)
	_, _, err = postgres.DecodeCursorAt("b", postgres.EncodeCursor("b", "yesterday", "x"))
	require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add("b", postgres.EncodeCursor("b", "k"), 1)
	f.Add("b", "", 0)
	f.Add("b", strings.Repeat("A", 2000), 1)
	f.Add("b", base64.RawURLEncoding.EncodeToString(make([]byte, 20)), 1)
	f.Fuzz(func(t *testing.T, bind, cursor string, n int) {
		n = int(uint(n) % 8)
		key, err := postgres.DecodeCursor(bind, cursor, n)
		if err != nil {
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
			return
		}
		require.Len(t, key, n)
		again, err := postgres.DecodeCursor(bind, postgres.EncodeCursor(bind, key...), n)
		require.NoError(t, err)
		require.Equal(t, key, again)
	})
}
