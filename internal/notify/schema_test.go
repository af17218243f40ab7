package notify_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
)

// catalog describes everything of River's that a schema holds.
const catalog = `
	SELECT format('column %s.%s %s not null %s default %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid))
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
	WHERE c.relkind = 'r' AND c.relname LIKE 'river\_%'
	UNION ALL
	SELECT format('table %s persistence %s', relname, relpersistence) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'river\_%'
	UNION ALL
	SELECT 'index ' || indexdef FROM pg_indexes WHERE tablename LIKE 'river\_%'
	UNION ALL
	SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
	FROM pg_constraint WHERE conrelid::regclass::text LIKE 'river\_%' AND contype <> 'n'
	UNION ALL
	SELECT format('value %s %s', t.typname, string_agg(e.enumlabel, ' ' ORDER BY e.enumsortorder))
	FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typname LIKE 'river\_%' GROUP BY t.typname
	UNION ALL
	SELECT 'function ' || pg_get_functiondef(oid) FROM pg_proc WHERE proname LIKE 'river\_%'
	UNION ALL
	SELECT format('trigger %s %s', tgrelid::regclass, tgname) FROM pg_trigger WHERE tgrelid::regclass::text LIKE 'river\_%' AND NOT tgisinternal`

// River's own migrations and ours must give the same schema. When this fails
// after an update of River, write a migration that makes up the difference.
func TestOurMigrationMakesRiversSchema(t *testing.T) {
	t.Parallel()
	ours, theirs := pgtest.Pool(t), pgtest.Open(t, pgtest.Empty(t))
	migrator, err := rivermigrate.New(riverpgxv5.New(theirs), nil)
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	read := func(pool *pgxpool.Pool) []string {
		rows, err := pool.Query(t.Context(), catalog)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return lines
	}
	require.NotEmpty(t, read(theirs))
	require.ElementsMatch(t, read(theirs), read(ours))

	ourMigrator, err := rivermigrate.New(riverpgxv5.New(ours), nil)
	require.NoError(t, err)
	result, err := ourMigrator.Validate(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, result.OK, result.Messages)
}

func openWith(t *testing.T, config *pgxpool.Config) (*pgxpool.Pool, error) {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err == nil {
		t.Cleanup(pool.Close)
	}
	return pool, err
}
