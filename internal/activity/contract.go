// Package activity: the tamper-evident record.
// CONTRACT FILE: the owner of this room spreads it over files and deletes it.
package activity

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Event is one act that an owner may want to see for ever.
type Event struct {
	ID       uuid.UUID // filled by Record
	Owner    uuid.UUID
	Kind     string // noun.verb: friend_request.received, friend_request.approved, grant.narrowed, endpoint.vended, session.started, ...
	Actor    string // human:<id>, endpoint:<id>, identity:<hex hash>, operator, system
	Object   string // friend_request, grant, endpoint, persona, todo, ...
	ObjectID uuid.UUID
	GrantID  uuid.UUID         // zero when none; for the grant's own page
	Detail   map[string]any    // plain facts, no personal data
	Personal map[string]string // names, e-mails, reasons: outside the chain, as salted hashes in it
	At       time.Time         // filled by the database
}

// Record inserts events within the acting transaction.
func Record(ctx context.Context, tx pgx.Tx, events ...Event) error { panic("contract") }

type Store struct{}

type Filter struct {
	GrantID uuid.UUID
	Kind    string
	Object  uuid.UUID
}

func (s *Store) List(ctx context.Context, owner uuid.UUID, f Filter, cursor string, limit int) ([]Event, string, error) {
	panic("contract")
}
