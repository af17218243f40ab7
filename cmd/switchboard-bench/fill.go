package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// fillReady and fillDone write todos straight into the tables of package todo
// (migrations/00040_todo.sql), as millions of calls would have left them. Ids
// are UUIDv7 of the last hours, one millisecond apart for every so many.
const (
	fillIDs = `
		WITH made AS MATERIALIZED (
			SELECT n, clock_timestamp() AS now, overlay(
				overlay(gen_random_uuid()::text PLACING '7' FROM 15 FOR 1)
				PLACING overlay(lpad(to_hex($4::bigint + n / 1000), 12, '0') PLACING '-' FROM 9 FOR 0) FROM 1 FOR 13)::uuid AS id
			FROM generate_series($5::bigint, $6::bigint) AS n
		)`
	fillTodos = `, keyed AS (
			INSERT INTO todo_key (owner, line, key, id, digest, created_at)
			SELECT $1, $2, 'fill-' || lpad(n::text, 9, '0'), id, '\x00', now FROM made
		), written AS (
			INSERT INTO todo (owner, id, queue, line, key, title, body, payload, priority, created_at)
			SELECT $1, id, $3, $2, 'fill-' || lpad(n::text, 9, '0'), '` + title + `', '` + body + `', '` + payload + `', 5, now FROM made
		)`
	fillReady = fillIDs + fillTodos + `
		INSERT INTO todo_live (owner, id, queue, line, priority, vstart, claimable, state)
		SELECT $1, id, $3, $2, 5, n, true, 'ready' FROM made`
	fillDone = fillIDs + fillTodos + `
		INSERT INTO todo_outcome (owner, id, state, version, attempt, worker, token, digest, started_at, lease_seconds, result, finished_at)
		SELECT $1, id, 'done', 4, 1, $2, gen_random_uuid(), '\x00', now, 300, '` + result + `', now FROM made`
)

// fill writes todos numbered from first to last into the owner's queue. The
// millisecond of the first id is start.
func (in *instance) fill(ctx context.Context, sql string, owner, line uuid.UUID, queue string, start int64, first, last int) error {
	const chunk = 100_000
	conn, err := in.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for from := first; from <= last; from += chunk {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			// Only the filling is spared the wait; everything is flushed afterwards.
			if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql, owner, line, queue, start, from, min(from+chunk-1, last))
			return err
		})
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}

// queueTables are those that settle vacuums after a filling.
var queueTables = []string{"todo_live", "todo_key", "todo", "todo_outcome"}
