package friend

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/postgres"
	"switchboard/internal/todo"
)

// Incoming lists the requests to the owner, newest first; state "" means all.
// Requests whose human has not signed in are never among them.
func (s *Store) Incoming(ctx context.Context, owner uuid.UUID, state RequestState, cursor string, limit int) ([]Request, string, error) {
	bind := postgres.BindCursor("friend requests, incoming", owner.String(), string(state))
	before, err := idCursor(bind, cursor)
	if err != nil {
		return nil, "", err
	}
	limit = pageSize(limit)
	rs, err := s.requests(ctx, s.pool, `
		WHERE r.owner = $1 AND r.todo_id IS NOT NULL
		  AND ($2 = '' OR CASE WHEN r.state = 'pending' AND r.expires_at <= clock_timestamp() THEN 'expired' ELSE r.state END = $2)
		  AND ($3::uuid IS NULL OR r.id < $3)
		ORDER BY r.id DESC LIMIT $4`, owner, string(state), before, limit+1)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(rs) > limit {
		rs = rs[:limit]
		next = postgres.EncodeCursor(bind, rs[limit-1].ID.String())
	}
	return rs, next, s.offersNow(ctx, rs)
}

// idCursor reads a cursor whose sort key is an id; nil for the first page.
func idCursor(bind, cursor string) (*uuid.UUID, error) {
	if cursor == "" {
		return nil, nil //nolint:nilnil // no cursor is no error
	}
	key, err := postgres.DecodeCursor(bind, cursor, 1)
	if err != nil {
		return nil, err
	}
	id, err := uuid.Parse(key[0])
	if err != nil {
		return nil, fmt.Errorf("read a cursor of ours: %w", err)
	}
	return &id, nil
}

// GetIncoming returns one request to the owner; anything else is refusal.NotFound.
func (s *Store) GetIncoming(ctx context.Context, owner, id uuid.UUID) (Request, error) {
	r, err := s.request(ctx, s.pool, `WHERE r.owner = $1 AND r.id = $2 AND r.todo_id IS NOT NULL`, owner, id)
	if err != nil {
		return Request{}, err
	}
	return s.completed(ctx, r)
}

// lockIncoming locks a request to the owner for a decision.
func (s *Store) lockIncoming(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID) (Request, error) {
	r, err := s.request(ctx, tx, `WHERE r.owner = $1 AND r.id = $2 AND r.todo_id IS NOT NULL FOR UPDATE OF r`, owner, id)
	if err != nil {
		return Request{}, err
	}
	if r.State != Pending {
		return Request{}, decided(r)
	}
	return r, nil
}

// finishConsent ends the consent todo and tells the requester.
func (s *Store) finishConsent(ctx context.Context, tx pgx.Tx, r Request, outcome todo.State, decision RequestState, grant uuid.UUID) error {
	result, err := json.Marshal(struct {
		Decision RequestState `json:"decision"`
		GrantID  *uuid.UUID   `json:"grant_id,omitempty"`
	}{decision, nilIfZero(grant)})
	if err != nil {
		return fmt.Errorf("encode the decision: %w", err)
	}
	if err := s.o.Todos.FinishConsent(ctx, tx, r.Owner, r.ID, outcome, result); err != nil {
		return fmt.Errorf("finish the consent todo: %w", err)
	}
	return s.notify(ctx, tx, Notice{
		Kind: "friend_request.decided", Owner: r.Owner, Identity: r.Identity.Hash, Persona: r.Persona,
		RequestID: r.ID, GrantID: grant, State: string(decision),
	})
}

// changed is called after a commit that touched a request.
func (s *Store) changed(owner, request uuid.UUID) {
	s.ring(request)
	s.o.Todos.Woken(owner)
}
