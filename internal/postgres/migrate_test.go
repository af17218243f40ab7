package postgres_test

import (
	"context"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

func TestMigrate_ConcurrentlyIsOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.Empty(t)
	var g errgroup.Group
	for range 6 {
		g.Go(func() error { return postgres.Migrate(ctx, url) })
	}
	require.NoError(t, g.Wait())
	pool := pgtest.Open(t, url)
	require.NoError(t, postgres.CheckSchema(ctx, pool))
	var doubled int
	require.NoError(t, pool.QueryRow(ctx, `SELECT count(*) FROM (SELECT version_id FROM goose_db_version GROUP BY 1 HAVING count(*) > 1) d`).Scan(&doubled))
	require.Zero(t, doubled)
}

func TestMigrate_LowerNumberOfAnotherDomainLater(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.Empty(t)
	file := func(sql string) *fstest.MapFile { return &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql + ";\n")} }
	files := fstest.MapFS{"00020_b.sql": file("CREATE TABLE b (n int)")}
	require.NoError(t, postgres.MigrateFS(ctx, url, files))
	files["00011_a.sql"] = file("CREATE TABLE a (n int)")
	require.NoError(t, postgres.MigrateFS(ctx, url, files))
	require.True(t, query[bool](t, url, "SELECT to_regclass('a') IS NOT NULL"))
}

func TestMigrate_FailureLeavesNothingAndSaysWhat(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.Empty(t)
	err := postgres.MigrateFS(ctx, url, fstest.MapFS{"00001_x.sql": {Data: []byte("-- +goose Up\nCREATE TABLE x (n int);\nSELECT 1/0;\n")}})
	require.ErrorContains(t, err, "00001_x.sql")
	require.False(t, query[bool](t, url, "SELECT to_regclass('x') IS NOT NULL"))
}

func TestCheckSchema_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	empty := pgtest.Open(t, pgtest.Empty(t))
	err := postgres.CheckSchema(ctx, empty)
	require.ErrorIs(t, err, postgres.ErrSchema)
	require.ErrorContains(t, err, "switchboard admin migrate")

	pool := pgtest.Pool(t)
	insert := func(version int64) {
		_, err := pool.Exec(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)", version)
		require.NoError(t, err)
	}
	insert(1001)
	require.NoError(t, postgres.CheckSchema(ctx, pool), "the next release's schema")
	insert(2001)
	require.ErrorIs(t, postgres.CheckSchema(ctx, pool), postgres.ErrSchema, "the one after it")
}

func TestCheckSchema_Versions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		known, applied []int64
		ok             bool
	}{
		{"equal", []int64{1, 10}, []int64{10, 1, 0}, true},
		{"one missing in the middle", []int64{1, 10, 20}, []int64{0, 1, 20}, false},
		{"same release, newer", []int64{1, 10}, []int64{0, 1, 10, 30}, true},
		{"next release", []int64{1, 1001}, []int64{0, 1, 1001, 2005}, true},
		{"two releases on", []int64{1, 1001}, []int64{0, 1, 1001, 3001}, false},
		{"nothing applied", []int64{1}, nil, false},
	} {
		err := postgres.CheckVersions(c.known, c.applied)
		if c.ok {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorIs(t, err, postgres.ErrSchema, c.name)
		}
	}
}
