package todo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// retain makes partitions ahead, drops those of weeks in which nothing is open or
// was finished within its queue's retention, and forgets old claims.
func (s *Store) retain(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, `SELECT todo_make_partitions(clock_timestamp())`); err != nil {
		return fmt.Errorf("make partitions: %w", err)
	}
	rows, err := s.pool.Query(ctx, `
		SELECT substr(c.relname, 6) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'todo'::regclass AND c.relname ~ '^todo_[0-9]{8}$' ORDER BY 1`)
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	weeks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	for _, week := range weeks {
		// A statement each, so that a lock that is not to be had costs one week only.
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2s'`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `SELECT todo_drop_partitions($1, clock_timestamp())`, week)
			return err
		})
		if err != nil {
			s.log.WarnContext(ctx, "drop partitions", "week", week, "error", err)
		}
	}
	// A lease lasts a day at most without a heartbeat; after two nobody repeats a claim.
	if _, err := s.pool.Exec(ctx, `DELETE FROM todo_claim WHERE created_at < (SELECT clock_timestamp()) - interval '2 days'`); err != nil {
		return fmt.Errorf("forget old claims: %w", err)
	}
	return nil
}
