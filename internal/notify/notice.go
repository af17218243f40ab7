package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/friend"
)

// The kinds of notifications, which are also the event types of webhooks.
const (
	kindReceived = "friend_request.received"
	kindDecided  = "friend_request.decided"
	kindChanged  = "grant.changed"
	kindEnding   = "grant.ending"
	kindDisabled = "webhook.disabled"
	kindAsked    = "todo.asked"
	kindTest     = "test"
)

// side says who is to hear of a notification.
type side string

const (
	owner     side = "owner"
	requester side = "requester"
)

// notification is a row of the outbox.
type notification struct {
	Owner     uuid.UUID
	ID        uuid.UUID
	Kind      string
	Side      side
	Identity  []byte
	Persona   string
	RequestID *uuid.UUID
	GrantID   *uuid.UUID
	TodoID    *uuid.UUID
	// QuestionID is the question that a worker asks on the todo.
	QuestionID *uuid.UUID
	State      string
	Event      string
	ExpiresAt  *time.Time
	CreatedAt  time.Time
}

// Notify writes down who is to hear of the notice, in the acting transaction.
// People are told of what others did, not of what they did themselves. A notice
// of a kind that this package does not know is nobody's.
func (s *Store) Notify(ctx context.Context, tx pgx.Tx, n friend.Notice) error {
	for _, to := range hearers(n) {
		id, err := noticeID(ctx, tx, n, to)
		if err != nil {
			return err
		}
		row := notification{
			Owner: n.Owner, ID: id, Kind: n.Kind, Side: to, Identity: n.Identity, Persona: n.Persona,
			RequestID: unlessZero(n.RequestID), GrantID: unlessZero(n.GrantID), State: n.State, Event: n.Event,
		}
		if !n.ExpiresAt.IsZero() {
			row.ExpiresAt = &n.ExpiresAt
		}
		if err := s.put(ctx, tx, row); err != nil {
			return err
		}
	}
	return nil
}

func hearers(n friend.Notice) []side {
	switch n.Kind {
	case kindReceived:
		return []side{owner}
	case kindDecided:
		if n.State == string(friend.Withdrawn) {
			return nil
		}
		return []side{requester}
	case kindEnding:
		return []side{owner, requester}
	case kindChanged:
		switch friend.GrantState(n.State) {
		case friend.GrantExpired:
			return []side{owner, requester}
		case friend.GrantEnded: // the friend left
			return []side{owner}
		}
		return []side{requester}
	}
	return nil
}

// namespace of the ids that follow from what they name (RFC 9562, version 5).
var namespace = uuid.MustParse("7b7a1a0e-6d0d-5c55-9d3e-2b7c6e0a4f10")

// named returns the id that follows from parts, none of which holds a newline.
func named(parts ...any) uuid.UUID {
	text := ""
	for _, p := range parts {
		text += fmt.Sprintln(p)
	}
	return uuid.NewSHA1(namespace, []byte(text))
}

// noticeID is the same whenever the same notice is written to the same side.
// A request is received and decided once. A grant changes often, so there the
// transaction is part of the name; reminders are two for each end.
func noticeID(ctx context.Context, tx pgx.Tx, n friend.Notice, to side) (uuid.UUID, error) {
	switch n.Kind {
	case kindReceived, kindDecided:
		return named(n.Kind, n.RequestID, to), nil
	}
	var at time.Time
	var xact string
	if err := tx.QueryRow(ctx, `SELECT now(), pg_current_xact_id()::text`).Scan(&at, &xact); err != nil {
		return uuid.Nil, fmt.Errorf("name a notice: %w", err)
	}
	if n.Kind == kindEnding {
		last := n.ExpiresAt.Sub(at) < 3*24*time.Hour // of the reminders 14 and 2 days before
		return named(n.Kind, n.GrantID, to, n.ExpiresAt.UTC().Format(time.RFC3339Nano), last), nil
	}
	return named(n.Kind, n.GrantID, to, n.Event, n.State, at.UTC().Format(time.RFC3339Nano), xact), nil
}

// put writes a row of the outbox and the job that looks after it, once.
func (s *Store) put(ctx context.Context, tx pgx.Tx, n notification) error {
	tag, err := tx.Exec(ctx, `
		INSERT INTO notification (owner, id, kind, side, identity, persona, request_id, grant_id, state, event, expires_at, todo_id, question_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (owner, id) DO NOTHING`,
		n.Owner, n.ID, n.Kind, n.Side, n.Identity, n.Persona, n.RequestID, n.GrantID, n.State, n.Event, n.ExpiresAt, n.TodoID, n.QuestionID)
	if err != nil {
		return fmt.Errorf("write a notification: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	if _, err := s.river.InsertTx(ctx, tx, routeArgs{Owner: n.Owner, Notification: n.ID}, nil); err != nil {
		return fmt.Errorf("write a notification's job: %w", err)
	}
	return nil
}

const notificationColumns = `n.owner, n.id, n.kind, n.side, n.identity, n.persona, n.request_id, n.grant_id, n.state, n.event, n.expires_at, n.created_at, n.todo_id, n.question_id`

func (n *notification) columns() []any {
	return []any{&n.Owner, &n.ID, &n.Kind, &n.Side, &n.Identity, &n.Persona, &n.RequestID, &n.GrantID, &n.State, &n.Event, &n.ExpiresAt, &n.CreatedAt, &n.TodoID, &n.QuestionID}
}

func unlessZero(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

func orZero(id *uuid.UUID) uuid.UUID {
	if id == nil {
		return uuid.Nil
	}
	return *id
}
