package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

func TestOpen_SessionsInUTCWithName(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool, err := postgres.Open(ctx, pgtest.URL(t), postgres.Options{ApplicationName: "switchboard-test"})
	require.NoError(t, err)
	defer pool.Close()
	var zone, name string
	require.NoError(t, pool.QueryRow(ctx, "SELECT current_setting('timezone'), current_setting('application_name')").Scan(&zone, &name))
	require.Equal(t, "UTC", zone)
	require.Equal(t, "switchboard-test", name)
}

func TestOpen_TransactionPoolingPreparesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool, err := postgres.Open(ctx, pgtest.URL(t), postgres.Options{TransactionPooling: true, MaxConns: 1})
	require.NoError(t, err)
	defer pool.Close()
	ids := []uuid.UUID{uuid.New(), uuid.New()}
	for range 3 {
		var got []uuid.UUID
		require.NoError(t, pool.QueryRow(ctx, "SELECT $1::uuid[]", ids).Scan(&got))
		require.Equal(t, ids, got)
		batch := &pgx.Batch{}
		batch.Queue("SELECT $1::jsonb", map[string]any{"a": 1})
		batch.Queue("SELECT 2")
		require.NoError(t, pool.SendBatch(ctx, batch).Close())
	}
	var prepared int
	require.NoError(t, pool.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''").Scan(&prepared))
	require.Zero(t, prepared)
}

func TestOpen_SaysWhatIsWrongWithoutPassword(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, url := range []string{"postgres://u:hunter2@127.0.0.1:1/db", "postgres://u:hunter2@[::1", "postgres://u:hunter2@h/db?sslmode=perhaps"} {
		_, err := postgres.Open(ctx, url, postgres.Options{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestTimesComeOutInUTC(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var at time.Time
	var many []time.Time
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT clock_timestamp(), ARRAY[clock_timestamp()]`).Scan(&at, &many))
	require.Same(t, time.UTC, at.Location())
	require.Same(t, time.UTC, many[0].Location())
}
