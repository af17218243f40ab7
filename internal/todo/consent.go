package todo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/quote"
	"switchboard/internal/refusal"
)

// OpenConsent makes the consent todo (kind friend_request, in inbox) of a friend
// request. Nobody claims, cancels or sees it but its human, and only
// [Store.FinishConsent] ends it. Call [Store.Woken] after the commit.
func (s *Store) OpenConsent(ctx context.Context, tx pgx.Tx, owner, friendRequest uuid.UUID, title string) (uuid.UUID, error) {
	id := newID()
	_, err := tx.Exec(ctx, `
		WITH waiting AS (
			INSERT INTO todo_consent (owner, friend_request, todo) VALUES ($1, $4, $2)
		), written AS (
			INSERT INTO todo (owner, id, queue, kind, line, subject, title, priority, created_at)
			VALUES ($1, $2, 'inbox', 'friend_request', $3, $4, $5, 5, clock_timestamp())
		)
		INSERT INTO todo_live (owner, id, queue, line, subject, rank, vstart, claimable, state)
		VALUES ($1, $2, 'inbox', $3, $4, 5, 0, false, 'ready')`, owner, id, uuid.Nil, friendRequest, quote.Visible(title, maxTitle))
	if err != nil {
		return uuid.Nil, fmt.Errorf("open consent todo: %w", err)
	}
	return id, nil
}

// FinishConsent ends the consent todo of a friend request: done for approved or
// declined, canceled for withdrawn, failed for expired. One that is not open is a
// conflict.
func (s *Store) FinishConsent(ctx context.Context, tx pgx.Tx, owner, friendRequest uuid.UUID, outcome State, result json.RawMessage) error {
	if !outcome.Terminal() {
		return fmt.Errorf("finish consent todo: %s is no outcome", outcome)
	}
	var id uuid.UUID
	err := tx.QueryRow(ctx, `
		WITH decided AS (
			DELETE FROM todo_consent c WHERE c.owner = $1 AND c.friend_request = $2 RETURNING c.todo
		), gone AS (
			DELETE FROM todo_live l USING decided d WHERE l.owner = $1 AND l.id = d.todo AND l.subject = $2 RETURNING l.*
		)
		INSERT INTO todo_outcome (owner, id, state, version, attempt, result, finished_at)
		SELECT owner, id, $3, version + 1, 0, $4, clock_timestamp() FROM gone
		RETURNING id`, owner, friendRequest, string(outcome), optional(string(result))).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return refusal.New(refusal.Conflict, "this friend request has been decided")
	}
	if err != nil {
		return fmt.Errorf("finish consent todo: %w", err)
	}
	return nil
}

// cancelLine settles what a line left open, consent todos not being of any line.
const cancelLine = `
WITH locked AS MATERIALIZED (
	SELECT l.ctid AS place, l.id FROM todo_live l
	WHERE l.owner = $1 AND l.line = $2 AND l.limited AND l.subject IS NULL
	ORDER BY l.id FOR UPDATE
), held AS MATERIALIZED (
	SELECT 0 AS ord, 'canceled' AS act, NULL::bytea AS digest, NULL::text AS error, NULL::text AS message,
		$3::text AS reason, false AS no_retry, NULL::int AS retry_after, NULL::uuid AS asking_id, NULL::text AS asking, ` + heldColumns + `
	FROM locked k, todo_live l WHERE l.ctid = k.place
)` + settle

// CancelByEndpoint cancels what a peer endpoint's line left open: ready and
// input_required todos at once, leased ones by cancel_requested. It returns how
// many. The endpoint's row is locked by the transaction, so nothing is added to the
// line meanwhile. Call [Store.Woken] after the commit.
func (s *Store) CancelByEndpoint(ctx context.Context, tx pgx.Tx, owner, endpoint uuid.UUID, reason string) (int, error) {
	var line uuid.UUID
	err := tx.QueryRow(ctx, `SELECT line FROM endpoint_authority WHERE owner = $1 AND id = $2`, owner, endpoint).Scan(&line)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the line of endpoint %s: %w", endpoint, err)
	}
	// Rows first, then a statement that sees them as they are now.
	if _, err := tx.Exec(ctx, `
		SELECT FROM todo_live l WHERE l.owner = $1 AND l.line = $2 AND l.limited ORDER BY l.id FOR UPDATE`, owner, line); err != nil {
		return 0, fmt.Errorf("lock the line's todos: %w", err)
	}
	moves, err := settleMany(ctx, tx, cancelLine, owner, line, optional(reason))
	return len(moves), err
}

// Woken is called after another domain's commit touched todos of the owner.
func (s *Store) Woken(owner uuid.UUID) { s.hub.touched(owner) }
