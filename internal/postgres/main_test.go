package postgres_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

// ownerVariable makes this binary the short-lived owner of a server, for tests
// of what remains when an owner is killed.
const ownerVariable = "SWITCHBOARD_TEST_OWN_SERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerVariable); dir != "" {
		own(dir)
	}
	pgtest.Main(m)
}

// own starts a server, says so, and waits to be killed.
func own(dir string) {
	s, err := postgres.Start(context.Background(), dir, postgres.DevOptions{Database: "switchboard", Throwaway: os.Getenv(ownerVariable+"_THROWAWAY") != ""})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Pid())
	select {}
}

func query[T any](t *testing.T, url, sql string, args ...any) T {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	var v T
	require.NoError(t, conn.QueryRow(ctx, sql, args...).Scan(&v))
	return v
}
