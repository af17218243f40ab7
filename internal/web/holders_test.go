package web

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
)

func TestHolderRows_OneClientIsOneRowWithTheLatestOfAll(t *testing.T) {
	t.Parallel()
	now := time.Now()
	early, late := now.Add(-time.Hour), now.Add(-time.Minute)
	ids := []uuid.UUID{uuid.New(), uuid.New(), uuid.New(), uuid.New()}
	rows := holderRows([]endpoint.Holder{
		{ID: ids[0], Kind: "key", Client: "a", ExpiresAt: now, LastUsed: &early},
		{ID: ids[1], Kind: "code", Client: "a", ExpiresAt: now},
		{ID: ids[2], Kind: "key", Client: "a", ExpiresAt: now.Add(time.Hour), LastUsed: &late},
		{ID: ids[3], Kind: "key", Client: "b", ExpiresAt: now},
	})
	require.Len(t, rows, 3)
	require.Equal(t, []uuid.UUID{ids[0], ids[2]}, rows[0].IDs, "ending it ends both")
	require.Equal(t, now.Add(time.Hour), rows[0].ExpiresAt)
	require.Equal(t, &late, rows[0].LastUsed)
	require.Equal(t, []uuid.UUID{ids[1]}, rows[1].IDs, "the same name in another kind is another client")
}
