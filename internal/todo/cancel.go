package todo

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// locked is an open or ended todo whose live row, if there is one, is locked.
type locked struct {
	queue, kind     string
	lineID          uuid.UUID
	state           State
	version         int64
	cancelRequested bool
	questionID      *uuid.UUID
}

var errMoving = errors.New("the todo ended while it was looked at")

// lock locks a todo's live row and reads where it stands; errNoTodo.
func lock(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID) (*locked, error) {
	var k locked
	live := true
	err := tx.QueryRow(ctx, `
		SELECT l.state, l.version, l.cancel_requested, l.question_id FROM todo_live l WHERE l.owner = $1 AND l.id = $2 FOR UPDATE`,
		owner, id).Scan(&k.state, &k.version, &k.cancelRequested, &k.questionID)
	if errors.Is(err, pgx.ErrNoRows) {
		live = false
	} else if err != nil {
		return nil, fmt.Errorf("lock todo %s: %w", id, err)
	}
	var ended *State
	var endVersion *int64
	err = tx.QueryRow(ctx, `
		SELECT t.queue, t.kind, t.line, o.state, o.version
		FROM todo t LEFT JOIN todo_outcome o ON o.owner = t.owner AND o.id = t.id
		WHERE t.owner = $1 AND t.id = $2`, owner, id).Scan(&k.queue, &k.kind, &k.lineID, &ended, &endVersion)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, errNoTodo
	case err != nil:
		return nil, fmt.Errorf("read todo %s: %w", id, err)
	case live:
		return &k, nil
	case ended == nil:
		// Created, ended or retried between the two statements.
		return nil, errMoving
	}
	k.state, k.version = *ended, *endVersion
	return &k, nil
}

// settleByID settles one todo whose row this transaction has locked.
const settleByID = `
WITH held AS MATERIALIZED (
	SELECT 0 AS ord, $3::text AS act, NULL::bytea AS digest, $4::text AS error, $5::text AS message,
		$6::text AS reason, false AS no_retry, NULL::int AS retry_after, NULL::uuid AS asking_id, NULL::text AS asking, ` + heldColumns + `
	FROM todo_live l WHERE l.owner = $1 AND l.id = $2
)` + settle

// Cancel ends a todo of the caller's line, or asks its worker to stop. A repeat
// answers as it stands; one that is done or failed is a conflict.
func (s *Store) Cancel(ctx context.Context, c endpoint.Caller, id uuid.UUID, reason string) (Changed, error) {
	return s.cancel(ctx, authorityOf(c), id, reason, func(k *locked) bool {
		return k.lineID == c.Endpoint.Line && c.May(scope.CancelTodo, k.queue)
	})
}

// CancelOwn ends a todo of the human's, or asks its worker to stop.
func (s *Store) CancelOwn(ctx context.Context, owner, id uuid.UUID, reason string) (Changed, error) {
	return s.cancel(ctx, authority{owner: owner}, id, reason, func(*locked) bool { return true })
}

func (s *Store) cancel(ctx context.Context, a authority, id uuid.UUID, reason string, may func(*locked) bool) (Changed, error) {
	if err := long("reason", reason, maxText); err != nil {
		return Changed{}, err
	}
	out := Changed{TodoID: id}
	moves, err := s.change(ctx, a, id, may, func(ctx context.Context, tx pgx.Tx, k *locked) ([]move, error) {
		requested := k.cancelRequested
		out.State, out.Version, out.CancelRequested = k.state, k.version, &requested
		switch k.state {
		case Canceled:
			requested = true
			return nil, nil
		case Done, Failed:
			return nil, refusal.New(refusal.Conflict, "this todo is %s already", k.state)
		}
		moves, err := settleMany(ctx, tx, settleByID, a.owner, id, actCanceled, nil, nil, optional(reason))
		if err != nil {
			return nil, err
		}
		if len(moves) != 1 {
			return nil, errMoving
		}
		requested = true
		out.State, out.Version = moves[0].state, moves[0].version
		return moves, nil
	})
	if err != nil {
		return Changed{}, err
	}
	s.announceMoves(moves)
	return out, nil
}

// change runs f on a locked todo in a transaction that upholds the caller's
// authority. Consent todos are for nobody.
func (s *Store) change(ctx context.Context, a authority, id uuid.UUID, may func(*locked) bool,
	f func(context.Context, pgx.Tx, *locked) ([]move, error)) (moves []move, err error) {
	for try := 0; ; try++ {
		err = s.inTransaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if err := a.uphold(ctx, tx); err != nil {
				return err
			}
			k, err := lock(ctx, tx, a.owner, id)
			if err != nil {
				return err
			}
			if k.kind != kindWork {
				if a.endpoint != uuid.Nil {
					return errNoTodo
				}
				return refusal.New(refusal.Conflict, "a friend request is ended by deciding it")
			}
			if !may(k) {
				return errNoTodo
			}
			moves, err = f(ctx, tx, k)
			return err
		})
		if errors.Is(err, errMoving) && try < 8 {
			continue
		}
		return moves, err
	}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// ReleaseOwn takes a leased todo from its worker: it is ready again at once, or
// canceled if that was asked for.
func (s *Store) ReleaseOwn(ctx context.Context, owner, id uuid.UUID) (Changed, error) {
	return s.move(ctx, owner, id, func(ctx context.Context, tx pgx.Tx, k *locked) ([]move, error) {
		if k.state != Leased {
			return nil, refusal.New(refusal.Conflict, "this todo is %s; only a leased one can be released", k.state)
		}
		return settleMany(ctx, tx, settleByID, owner, id, actReleased, nil, nil, "taken back by the owner")
	})
}

// Retry makes a failed todo ready again with a fresh budget of attempts.
func (s *Store) Retry(ctx context.Context, owner, id uuid.UUID) (Changed, error) {
	return s.move(ctx, owner, id, func(ctx context.Context, tx pgx.Tx, k *locked) ([]move, error) {
		if k.state != Failed {
			return nil, refusal.New(refusal.Conflict, "this todo is %s; only a failed one can be retried", k.state)
		}
		m, sh, vstart, err := reopen(ctx, tx, owner, id)
		if err != nil {
			return nil, err
		}
		s.lanes.atLeast(sh, vstart+1)
		return []move{m}, nil
	})
}

// reopen replaces a failed outcome by a live row. The deadline, which may be why it
// failed, no longer holds; the human knows better.
func reopen(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID) (m move, sh share, vstart int64, err error) {
	m = move{owner: owner, id: id, state: Ready, claimable: true}
	var rank int16
	err = tx.QueryRow(ctx, `
		WITH gone AS (
			DELETE FROM todo_outcome o WHERE o.owner = $1 AND o.id = $2 AND o.state = 'failed' RETURNING o.*
		)
		INSERT INTO todo_live AS l (owner, id, queue, line, weight, limited, rank, vstart, claimable, state, version, attempt, artifacts, questions)
		SELECT t.owner, t.id, t.queue, t.line, octet_length(t.body) + coalesce(octet_length(t.payload), 0), t.grant_id IS NOT NULL, 10 - t.priority, coalesce((
				SELECT l.vstart FROM todo_live l
				WHERE l.owner = t.owner AND l.queue = t.queue AND l.claimable AND l.rank = 10 - t.priority AND l.state = 'ready'
				ORDER BY l.vstart, l.id LIMIT 1
			), 0), true, 'ready', g.version + 1, g.attempt, g.artifacts, g.questions
		FROM gone g JOIN todo t ON t.owner = g.owner AND t.id = g.id
		RETURNING l.line, l.queue, l.version, l.rank, l.vstart`, owner, id).Scan(&m.line, &m.queue, &m.version, &rank, &vstart)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, sh, 0, errMoving
	}
	if err != nil {
		return m, sh, 0, fmt.Errorf("reopen todo %s: %w", id, err)
	}
	return m, share{class{lane{owner, m.queue}, rank}, m.line}, vstart, nil
}

// move changes a todo of the human's.
func (s *Store) move(ctx context.Context, owner, id uuid.UUID, f func(context.Context, pgx.Tx, *locked) ([]move, error)) (Changed, error) {
	moves, err := s.change(ctx, authority{owner: owner}, id, func(*locked) bool { return true },
		func(ctx context.Context, tx pgx.Tx, k *locked) ([]move, error) {
			moves, err := f(ctx, tx, k)
			if err == nil && len(moves) != 1 {
				err = errMoving
			}
			return moves, err
		})
	if err != nil {
		return Changed{}, err
	}
	s.announceMoves(moves)
	return Changed{TodoID: id, State: moves[0].state, Version: moves[0].version}, nil
}
