package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"switchboard/internal/todo"
)

// A filling writes todos straight into the tables of package todo, as millions
// of calls would have left them: rows of one todo that went through the store are
// copied, with another id, key and virtual start. So nothing here depends on what
// else the rows hold.
type filling struct {
	in    *instance
	start int64 // milliseconds of the first id
	n     int   // todos so far
}

// Which tables a ready todo stands in, and which a finished one.
var (
	readyTables = []string{"todo_key", "todo", "todo_live"}
	doneTables  = []string{"todo_key", "todo", "todo_outcome"}
	allTables   = []string{"todo_key", "todo", "todo_live", "todo_outcome"}
)

// newFilling makes the rows to copy, for the queue of the instance's first home.
func (in *instance) newFilling(ctx context.Context) (*filling, error) {
	list, err := in.storeCallers(ctx, 1)
	if err != nil {
		return nil, err
	}
	c := list[0]
	_, err = only(c.todos.Create(ctx, c.caller, []todo.New{newTodo(c.queue, c.keys.next())}))
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	keep := func(tables ...string) error {
		for _, t := range tables {
			if _, err := in.pool.Exec(ctx, fmt.Sprintf("CREATE TABLE fill_%s AS TABLE %s", t, t)); err != nil {
				return fmt.Errorf("keep rows to copy: %w", err)
			}
		}
		return nil
	}
	if err := keep(readyTables...); err != nil {
		return nil, err
	}
	taken, err := c.todos.ClaimNext(ctx, c.caller, todo.ClaimNext{})
	if err == nil && len(taken) != 1 {
		err = errStuck
	}
	if err != nil {
		return nil, err
	}
	if err := c.complete(ctx, taken[0]); err != nil {
		return nil, err
	}
	return &filling{in: in, start: time.Now().Add(-12 * time.Hour).UnixMilli()}, keep("todo_outcome")
}

// fillIDs numbers the new todos and gives each a UUIDv7, a thousand to a
// millisecond.
const fillIDs = `
	CREATE TEMP TABLE made ON COMMIT DROP AS
	SELECT n, overlay(
		overlay(gen_random_uuid()::text PLACING '7' FROM 15 FOR 1)
		PLACING overlay(lpad(to_hex($1::bigint + n / 1000), 12, '0') PLACING '-' FROM 9 FOR 0) FROM 1 FOR 13)::uuid AS id
	FROM generate_series($2::bigint, $3::bigint) AS n`

// write makes so many more todos, by two sessions at once.
func (f *filling) write(ctx context.Context, tables []string, more int) error {
	const chunk = 50_000
	var inserts []string
	for _, t := range tables {
		sql, err := f.insert(ctx, t)
		if err != nil {
			return err
		}
		inserts = append(inserts, sql)
	}
	first, last := f.n+1, f.n+more
	f.n += more
	return together(ctx, 2, func(ctx context.Context, i int) error {
		for from := first + i*chunk; from <= last; from += 2 * chunk {
			err := pgx.BeginFunc(ctx, f.in.pool, func(tx pgx.Tx) error {
				// Only the filling is spared the wait; everything is flushed afterwards.
				if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, fillIDs, f.start, from, min(from+chunk-1, last)); err != nil {
					return err
				}
				for _, sql := range inserts {
					if _, err := tx.Exec(ctx, sql); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("fill: %w", err)
			}
		}
		return nil
	})
}

// insert is the statement that copies the row of a table.
func (f *filling) insert(ctx context.Context, table string) (string, error) {
	rows, err := f.in.pool.Query(ctx, "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum", table)
	if err != nil {
		return "", err
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	if len(columns) == 0 {
		return "", errors.New("no columns in " + table)
	}
	values := make([]string, len(columns))
	for i, c := range columns {
		switch c {
		case "id":
			values[i] = "m.id"
		case "key":
			values[i] = "'fill-' || lpad(m.n::text, 9, '0')"
		case "name":
			values[i] = "gen_random_uuid()"
		case "vstart":
			values[i] = "t.vstart + m.n"
		default:
			values[i] = "t." + pgx.Identifier{c}.Sanitize()
		}
		columns[i] = pgx.Identifier{c}.Sanitize()
	}
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM made m, fill_%s t ORDER BY m.n", table, strings.Join(columns, ", "), strings.Join(values, ", "), table), nil
}
