package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/postgres"
)

// raw is a queue as one writes it by hand, and as fast as that gets: one table,
// changed in place; a partial index that holds what is ready and nothing else; room
// in the pages for heap-only heartbeats; eager vacuum. Nobody's authority is
// checked, nothing is counted, no attempt is kept.
const rawSchema = `
CREATE TABLE raw_todo (
	id               uuid PRIMARY KEY,
	owner            uuid NOT NULL,
	queue            text COLLATE "C" NOT NULL,
	key              text COLLATE "C" NOT NULL,
	title            text NOT NULL,
	body             text NOT NULL,
	payload          text,
	priority         smallint NOT NULL DEFAULT 5,
	state            smallint NOT NULL DEFAULT 0, -- ready, leased, done
	attempt          integer NOT NULL DEFAULT 0,
	not_before       timestamptz NOT NULL DEFAULT now(),
	token            uuid,
	lease_expires_at timestamptz,
	result           text,
	created_at       timestamptz NOT NULL DEFAULT now(),
	finished_at      timestamptz,
	UNIQUE (owner, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000);
CREATE INDEX raw_todo_ready ON raw_todo (owner, queue, priority DESC, id) WHERE state = 0`

const (
	rawCreate = `
		INSERT INTO raw_todo (id, owner, queue, key, title, body, payload) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (owner, key) DO NOTHING RETURNING id`
	rawFind  = `SELECT id FROM raw_todo WHERE owner = $1 AND key = $2`
	rawClaim = `
		UPDATE raw_todo SET state = 1, attempt = attempt + 1, token = gen_random_uuid(), lease_expires_at = clock_timestamp() + interval '300 s'
		WHERE id = (
			SELECT id FROM raw_todo
			WHERE owner = $1 AND queue = $2 AND state = 0 AND not_before <= clock_timestamp()
			ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED
		)
		RETURNING id, token, lease_expires_at, attempt, title, body, payload`
	rawHeartbeat = `
		UPDATE raw_todo SET lease_expires_at = clock_timestamp() + interval '300 s'
		WHERE id = $1 AND token = $2 AND state = 1 RETURNING lease_expires_at`
	rawComplete = `
		UPDATE raw_todo SET state = 2, result = $3, finished_at = clock_timestamp()
		WHERE id = $1 AND token = $2 AND state = 1`
)

// rawQueue is the table in a database of its own.
type rawQueue struct {
	pool   *pgxpool.Pool
	owners []uuid.UUID
}

func newRawQueue(ctx context.Context, dev *postgres.DevServer, owners, callers int) (*rawQueue, error) {
	conn, err := pgx.Connect(ctx, dev.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE raw"); err != nil {
		return nil, err
	}
	q := &rawQueue{}
	n := int32(callers)
	if q.pool, err = postgres.Open(ctx, dev.URL("raw"), postgres.Options{ApplicationName: "bench raw", MaxConns: n, MinIdleConns: n}); err != nil {
		return nil, err
	}
	if _, err := q.pool.Exec(ctx, rawSchema); err != nil {
		return nil, fmt.Errorf("make the raw queue: %w", err)
	}
	for range owners {
		q.owners = append(q.owners, uuid.Must(uuid.NewV7()))
	}
	return q, nil
}

// rawCaller runs lifecycles over a connection of its own.
type rawCaller struct {
	conn  *pgxpool.Conn
	owner uuid.UUID
	keys  *keys
}

// callers returns callers and what gives their connections back.
func (q *rawQueue) callers(ctx context.Context, n int) ([]*rawCaller, func(), error) {
	var out []*rawCaller
	release := func() {
		for _, c := range out {
			c.conn.Release()
		}
	}
	for i := range n {
		conn, err := q.pool.Acquire(ctx)
		if err != nil {
			release()
			return nil, nil, err
		}
		out = append(out, &rawCaller{conn: conn, owner: q.owners[i%len(q.owners)], keys: newKeys(i)})
	}
	return out, release, nil
}

var errRawLost = errors.New("the raw queue lost a lease")

// lifecycle takes one todo through its life, each step a transaction.
func (c *rawCaller) lifecycle(ctx context.Context) (int, error) {
	id, key := uuid.Must(uuid.NewV7()), c.keys.next()
	err := c.conn.QueryRow(ctx, rawCreate, id, c.owner, queueName, key, title, body, payload).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = c.conn.QueryRow(ctx, rawFind, c.owner, key).Scan(&id)
	}
	if err != nil {
		return 0, fmt.Errorf("raw create: %w", err)
	}
	var token uuid.UUID
	for {
		var h struct {
			expires              any
			attempt              int
			title, body, payload string
		}
		err := c.conn.QueryRow(ctx, rawClaim, c.owner, queueName).Scan(&id, &token, &h.expires, &h.attempt, &h.title, &h.body, &h.payload)
		if errors.Is(err, pgx.ErrNoRows) { // locked by those who claim right now
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("raw claim: %w", err)
		}
		break
	}
	var expires any
	if err := c.conn.QueryRow(ctx, rawHeartbeat, id, token).Scan(&expires); err != nil {
		return 0, fmt.Errorf("raw heartbeat: %w", err)
	}
	tag, err := c.conn.Exec(ctx, rawComplete, id, token, result)
	if err != nil {
		return 0, fmt.Errorf("raw complete: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return 0, errRawLost
	}
	return 1, nil
}
