package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"crypto/rand"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

func TestAllowServing_NoDDLAndNoChangeOfWhatIsAppendOnly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	at := pgtest.URL(t)
	admin := pgtest.Open(t, at)
	role := "serving_" + strings.ToLower(rand.Text())
	name := pgx.Identifier{role}.Sanitize()

	err := postgres.AllowServing(ctx, at, role)
	require.ErrorContains(t, err, "create it first")

	_, err = admin.Exec(ctx, "CREATE ROLE "+name+" LOGIN")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(ctx, "DROP OWNED BY "+name+"; DROP ROLE "+name)
		require.NoError(t, err)
	})
	_, err = admin.Exec(ctx, `
		CREATE TABLE free (n int);
		CREATE TABLE kept (n int);
		COMMENT ON TABLE kept IS 'append-only: a test'`)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, postgres.AllowServing(ctx, at, role), "again after each migration")
	}

	u, err := url.Parse(at)
	require.NoError(t, err)
	u.User = url.User(role)
	serving := pgtest.Open(t, u.String())
	require.NoError(t, postgres.CheckSchema(ctx, serving))
	for sql, allowed := range map[string]bool{
		"INSERT INTO free VALUES (1)":         true,
		"UPDATE free SET n = 2":               true,
		"DELETE FROM free":                    true,
		"INSERT INTO kept VALUES (1)":         true,
		"SELECT * FROM kept":                  true,
		"SELECT * FROM activity":              true,
		"UPDATE kept SET n = 2":               false,
		"DELETE FROM kept":                    false,
		"TRUNCATE kept":                       false,
		"DELETE FROM activity":                false,
		"CREATE TABLE mine (n int)":           false,
		"ALTER TABLE free ADD m int":          false,
		"DROP TABLE free":                     false,
		"UPDATE goose_db_version SET id = id": false,
	} {
		_, err := serving.Exec(ctx, sql)
		if allowed {
			require.NoError(t, err, sql)
		} else {
			require.Equal(t, "42501", postgres.SQLState(err), sql)
		}
	}
}
