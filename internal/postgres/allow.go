package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// AllowServing gives an existing role what `serve` needs on the migrated
// database at url and nothing else: no DDL, and on tables whose comment begins
// with "append-only" only to insert and to select. Run it after [Migrate], by
// the role that migrates.
func AllowServing(ctx context.Context, url, role string) error {
	conn, err := connect(ctx, url, Options{ApplicationName: "switchboard-migrate"})
	if err != nil {
		return err
	}
	defer closeConn(conn)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		appendOnly, err := names(ctx, tx, `
			SELECT c.oid::regclass::text FROM pg_class c
			WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
			  AND obj_description(c.oid, 'pg_class') LIKE 'append-only%'`)
		if err != nil {
			return err
		}
		to := pgx.Identifier{role}.Sanitize()
		statements := []string{
			"REVOKE CREATE ON SCHEMA public FROM PUBLIC, " + to,
			"GRANT USAGE ON SCHEMA public TO " + to,
			"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + to,
			"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO " + to,
			"REVOKE INSERT, UPDATE, DELETE ON goose_db_version FROM " + to,
		}
		for _, table := range appendOnly {
			statements = append(statements, "REVOKE UPDATE, DELETE, TRUNCATE ON "+table+" FROM "+to)
		}
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if SQLState(err) == "42704" { // undefined_object
		return fmt.Errorf("there is no role %q: create it first (CREATE ROLE … LOGIN PASSWORD …): %w", role, err)
	}
	if err != nil {
		return fmt.Errorf("allow %q to serve: %w", role, err)
	}
	return nil
}

// names reads one column of quoted names.
func names(ctx context.Context, tx pgx.Tx, sql string) ([]string, error) {
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return found, nil
}
