package todo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// Queue is a named list of todos.
type Queue struct {
	Name                         string
	Description                  string
	Paused                       bool
	MaxAttempts                  int
	RetentionDays                int
	CreatedAt                    time.Time
	Version                      int64
	Ready, Leased, InputRequired int64 // each counted to 10000 at most
}

const (
	maxQueues      = 1000
	maxDescription = 2000
)

// queueColumns are those of queue q. The counts stop at 10000, so that a board costs
// the same whatever the backlog.
const queueColumns = `q.name, q.description, q.paused, q.max_attempts, q.retention_days, q.created_at, q.version,
	(SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.owner = q.owner AND l.queue = q.name AND l.claimable AND l.state = 'ready' LIMIT 10000) c)
	+ (SELECT count(*) FROM (
		SELECT FROM todo_timer m JOIN todo_live l ON l.owner = m.owner AND l.id = m.todo AND l.state = 'ready' AND NOT l.claimable
		WHERE m.owner = q.owner AND m.what = 'due' AND m.queue = q.name LIMIT 10000) c)
	+ CASE WHEN q.name = 'inbox' THEN (SELECT count(*) FROM todo_consent c WHERE c.owner = q.owner) ELSE 0 END,
	(SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.owner = q.owner AND l.queue = q.name AND l.claimable AND l.state = 'leased' LIMIT 10000) c),
	(SELECT count(*) FROM (
		SELECT FROM todo_timer m JOIN todo_live l ON l.owner = m.owner AND l.id = m.todo AND l.state = 'input_required'
		WHERE m.owner = q.owner AND m.what = 'question' AND m.queue = q.name LIMIT 10000) c)`

func scanQueue(row pgx.CollectableRow) (Queue, error) {
	var q Queue
	err := row.Scan(&q.Name, &q.Description, &q.Paused, &q.MaxAttempts, &q.RetentionDays, &q.CreatedAt, &q.Version,
		&q.Ready, &q.Leased, &q.InputRequired)
	q.Ready, q.Leased, q.InputRequired = min(q.Ready, 10000), min(q.Leased, 10000), min(q.InputRequired, 10000)
	return q, err
}

var errNobody = refusal.New(refusal.NotFound, "there is no such human")

// CreateQueue makes a queue. A name that the human has already is a conflict.
func (s *Store) CreateQueue(ctx context.Context, owner uuid.UUID, name, description string) (Queue, error) {
	if !scope.QueueName(name) {
		return Queue{}, refusal.Invalid("name", "name must match [a-z0-9-]{1,63}")
	}
	if err := short("description", description, maxDescription); err != nil {
		return Queue{}, err
	}
	q := Queue{Name: name, Description: description}
	err := s.inTransaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		held, err := tx.Exec(ctx, present, owner)
		if err != nil {
			return err
		}
		if held.RowsAffected() == 0 {
			return errNobody
		}
		return tx.QueryRow(ctx, `
			INSERT INTO queue (owner, name, description)
			SELECT $1, $2, $3 WHERE (SELECT count(*) FROM queue WHERE owner = $1) < $4
			RETURNING paused, max_attempts, retention_days, created_at, version`, owner, name, description, maxQueues).
			Scan(&q.Paused, &q.MaxAttempts, &q.RetentionDays, &q.CreatedAt, &q.Version)
	})
	switch {
	case errors.Is(err, errNobody):
		return Queue{}, errNobody
	case postgres.Violates(err, "queue_pkey"):
		return Queue{}, refusal.New(refusal.Conflict, "there is a queue of this name")
	case errors.Is(err, pgx.ErrNoRows):
		return Queue{}, refusal.New(refusal.QuotaExceeded, "there are %d queues, as many as one human may have", maxQueues)
	case err != nil:
		return Queue{}, unavailable(fmt.Errorf("create queue: %w", err))
	}
	return q, nil
}

// Queues lists the human's queues by name, with what is open in each.
func (s *Store) Queues(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Queue, string, error) {
	limit, err := pageSize(limit)
	if err != nil {
		return nil, "", err
	}
	bind := postgres.BindCursor("queues", owner.String())
	after := ""
	if cursor != "" {
		key, err := postgres.DecodeCursor(bind, cursor, 1)
		if err != nil {
			return nil, "", err
		}
		after = key[0]
	}
	rows, err := s.pool.Query(ctx, `
		SELECT `+queueColumns+` FROM queue q WHERE q.owner = $1 AND q.name > $2 ORDER BY q.name LIMIT $3`, owner, after, limit+1)
	if err != nil {
		return nil, "", unavailable(fmt.Errorf("list queues: %w", err))
	}
	queues, err := pgx.CollectRows(rows, scanQueue)
	if err != nil {
		return nil, "", unavailable(fmt.Errorf("list queues: %w", err))
	}
	next := ""
	if len(queues) > limit {
		queues = queues[:limit]
		next = postgres.EncodeCursor(bind, queues[limit-1].Name)
	}
	return queues, next, nil
}

// QueuePatch is what changes of a queue; nil stays as it is.
type QueuePatch struct {
	Description   *string
	Paused        *bool
	MaxAttempts   *int // 1 to 100
	RetentionDays *int // 1 to 3650
	IfVersion     *int64
}

// UpdateQueue changes a queue. While one is paused nothing of it is claimed; what is
// leased goes on. refusal.PreconditionFailed when IfVersion is not the version.
func (s *Store) UpdateQueue(ctx context.Context, owner uuid.UUID, name string, p QueuePatch) (Queue, error) {
	if p.Description != nil {
		if err := short("description", *p.Description, maxDescription); err != nil {
			return Queue{}, err
		}
	}
	if p.MaxAttempts != nil && (*p.MaxAttempts < 1 || *p.MaxAttempts > 100) {
		return Queue{}, refusal.Invalid("max_attempts", "max_attempts must be from 1 to 100")
	}
	if p.RetentionDays != nil && (*p.RetentionDays < 1 || *p.RetentionDays > 3650) {
		return Queue{}, refusal.Invalid("retention_days", "retention_days must be from 1 to 3650")
	}
	var version int64
	err := s.pool.QueryRow(ctx, `
		UPDATE queue
		SET description = coalesce($3, description), paused = coalesce($4, paused), max_attempts = coalesce($5, max_attempts),
			retention_days = coalesce($6, retention_days), version = version + 1
		WHERE owner = $1 AND name = $2 AND ($7::bigint IS NULL OR version = $7)
		RETURNING version`, owner, name, p.Description, p.Paused, p.MaxAttempts, p.RetentionDays, p.IfVersion).Scan(&version)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Queue{}, unavailable(fmt.Errorf("update queue: %w", err))
	}
	unchanged := err != nil
	rows, err := s.pool.Query(ctx, `SELECT `+queueColumns+` FROM queue q WHERE q.owner = $1 AND q.name = $2`, owner, name)
	if err != nil {
		return Queue{}, unavailable(fmt.Errorf("read queue: %w", err))
	}
	q, err := pgx.CollectExactlyOneRow(rows, scanQueue)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Queue{}, errNoQueue
	case err != nil:
		return Queue{}, unavailable(fmt.Errorf("read queue: %w", err))
	case unchanged:
		return Queue{}, refusal.New(refusal.PreconditionFailed, "the queue has changed since")
	}
	if p.Paused != nil && !*p.Paused {
		s.hub.ready(owner, name, wakeAll)
	}
	return q, nil
}

// QueuesExist returns nil when the human has all these queues, else
// refusal.InvalidArgument that names the first unknown one. inbox counts as unknown:
// it is for humans only.
func (s *Store) QueuesExist(ctx context.Context, owner uuid.UUID, names []string) error {
	var unknown *string
	err := s.pool.QueryRow(ctx, `
		SELECT (SELECT i.name FROM unnest($2::text[]) WITH ORDINALITY AS i(name, n)
			WHERE i.name = 'inbox' OR NOT EXISTS (SELECT FROM queue q WHERE q.owner = $1 AND q.name = i.name)
			ORDER BY i.n LIMIT 1)`, owner, names).Scan(&unknown)
	if err != nil {
		return unavailable(fmt.Errorf("look for queues: %w", err))
	}
	if unknown != nil {
		if !scope.QueueName(*unknown) {
			return refusal.Invalid("queues", "queues must be names of queues ([a-z0-9-]{1,63})")
		}
		return refusal.Invalid("queues", "there is no queue %s", *unknown)
	}
	return nil
}

// HumanCreated makes the inbox of a new human.
func (s *Store) HumanCreated(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO queue (owner, name, description) VALUES ($1, 'inbox', 'What waits for you') ON CONFLICT DO NOTHING`, owner)
	if err != nil {
		return fmt.Errorf("make the inbox: %w", err)
	}
	return nil
}
