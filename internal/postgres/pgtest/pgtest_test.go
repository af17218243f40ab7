package pgtest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestPool_IsMigratedAndSeparate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b := pgtest.Pool(t), pgtest.Pool(t)
	require.NoError(t, postgres.CheckSchema(ctx, a))
	_, err := a.Exec(ctx, "CREATE TABLE only_here (n int)")
	require.NoError(t, err)
	var there bool
	require.NoError(t, b.QueryRow(ctx, "SELECT to_regclass('only_here') IS NOT NULL").Scan(&there))
	require.False(t, there)
}
