package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"switchboard/migrations"
)

// migrateLock is the key of the advisory lock that lets one migration run at a
// time on a database.
const migrateLock int64 = 0x5357_4254_4244 // "SWBTBD"

// ErrSchema is wrapped by what [CheckSchema] returns when the database's schema
// is not one that this program can run on.
var ErrSchema = errors.New("the database's schema does not fit this program")

// Migrate brings the database at url to the newest schema that this program
// knows. Concurrent calls wait for one another. The URL must be a direct one:
// an advisory lock does not hold behind transaction pooling.
func Migrate(ctx context.Context, url string) error {
	return migrateFS(ctx, url, migrations.FS)
}

func migrateFS(ctx context.Context, url string, files fs.FS) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	configure(config, Options{ApplicationName: "switchboard-migrate"})
	db := stdlib.OpenDB(*config)
	defer db.Close()
	provider, err := newProvider(db, files)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		var partial *goose.PartialError
		if errors.As(err, &partial) && partial.Failed != nil {
			return fmt.Errorf("migrate %s: %w", partial.Failed.Source.Path, err)
		}
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

func newProvider(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(sessionLock{}),
		goose.WithDisableGlobalRegistry(true),
		// Each domain counts in its own tens, so a new file of one may have a lower
		// number than an applied one of another. No file depends on another domain's.
		goose.WithAllowOutofOrder(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return provider, nil
}

// sessionLock holds migrateLock on the connection that migrates, so that lock
// and work cannot part. goose's own polls every five seconds.
type sessionLock struct{}

func (sessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", migrateLock); err != nil {
		return fmt.Errorf("take the migration lock: %w", err)
	}
	return nil
}

func (sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", migrateLock); err != nil {
		return fmt.Errorf("release the migration lock: %w", err)
	}
	return nil
}

// CheckSchema returns nil when this program can run on the database: every
// migration that it knows is applied, and those that it does not know are at
// most one release ahead. Otherwise the error wraps [ErrSchema] and names the
// remedy.
func CheckSchema(ctx context.Context, pool *pgxpool.Pool) error {
	known, err := knownVersions(migrations.FS)
	if err != nil {
		return err
	}
	applied, err := appliedVersions(ctx, pool)
	if err != nil {
		return err
	}
	return checkVersions(known, applied)
}

func checkVersions(known, applied []int64) error {
	for _, v := range known {
		if !slices.Contains(applied, v) {
			return fmt.Errorf("%w: migration %05d is missing; run `switchboard admin migrate`", ErrSchema, v)
		}
	}
	newest, highest := slices.Max(known), slices.Max(append(applied, 0))
	if migrations.Release(highest) > migrations.Release(newest)+1 {
		return fmt.Errorf("%w: migration %05d was applied by a program more than one release newer; update this one, "+
			"whose `switchboard admin migrate` knows %05d at most", ErrSchema, highest, newest)
	}
	return nil
}

// knownVersions lists the numbers of the embedded files.
func knownVersions(files fs.FS) ([]int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("list the migrations: %w", errors.Join(err, fs.ErrNotExist))
	}
	versions := make([]int64, 0, len(names))
	for _, name := range names {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("read the number of migration %s: %w", name, err)
		}
		versions = append(versions, v)
	}
	return versions, nil
}

// appliedVersions reads goose's own table; a database without it has none.
func appliedVersions(ctx context.Context, pool *pgxpool.Pool) ([]int64, error) {
	rows, _ := pool.Query(ctx, `SELECT version_id, is_applied FROM goose_db_version ORDER BY id`) // ForEachRow has the error
	applied := map[int64]struct{}{}
	var version int64
	var up bool
	_, err := pgx.ForEachRow(rows, []any{&version, &up}, func() error {
		if up {
			applied[version] = struct{}{}
		} else {
			delete(applied, version)
		}
		return nil
	})
	if SQLState(err) == "42P01" { // undefined_table
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	return slices.Collect(maps.Keys(applied)), nil
}
