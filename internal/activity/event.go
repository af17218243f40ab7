package activity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Event is one act that an owner may want to see for ever.
type Event struct {
	ID       uuid.UUID // filled by Record
	Owner    uuid.UUID
	Kind     string // noun.verb: friend_request.received, grant.narrowed, endpoint.vended, session.started, ...
	Actor    string // human:<id>, endpoint:<id>, identity:<hex hash>, key:<thumbprint>, operator, system
	Object   string // friend_request, grant, endpoint, persona, todo, ...
	ObjectID uuid.UUID
	GrantID  uuid.UUID         // zero when none; for the grant's own page
	Detail   map[string]any    // plain facts, no personal data
	Personal map[string]string // names, e-mails, reasons: outside the chain, as salted hashes in it
	At       time.Time         // filled by the database
}

// Record inserts events within the acting transaction. It fills the IDs of a
// slice that is handed in whole.
func Record(ctx context.Context, tx pgx.Tx, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	var e eventColumns
	var p personalColumns
	for i := range events {
		if err := e.add(&events[i], &p); err != nil {
			return fmt.Errorf("record %s: %w", events[i].Kind, err)
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(`
		INSERT INTO activity (owner, id, kind, actor, object, object_id, grant_id, detail, personal)
		SELECT owner, id, kind, actor, object, object_id, grant_id, detail::json, personal::json
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::uuid[], $8::text[], $9::text[])
		  AS e (owner, id, kind, actor, object, object_id, grant_id, detail, personal)`,
		e.owner, e.id, e.kind, e.actor, e.object, e.objectID, e.grantID, e.detail, e.personal)
	if len(p.owner) > 0 {
		batch.Queue(`
			INSERT INTO activity_personal (owner, event_id, name, salt, value)
			SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::text[])`,
			p.owner, p.eventID, p.name, p.salt, p.value)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("record %s: %w", events[0].Kind, err)
	}
	return nil
}

// eventColumns and personalColumns are rows turned into arrays for unnest.
type eventColumns struct {
	owner, id                             []uuid.UUID
	kind, actor, object, detail, personal []string
	objectID, grantID                     []*uuid.UUID
}

type personalColumns struct {
	owner, eventID []uuid.UUID
	name, value    []string
	salt           [][]byte
}

func (c *eventColumns) add(e *Event, p *personalColumns) error {
	if e.ID == uuid.Nil {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an id: %w", err)
		}
		e.ID = id
	}
	detail := []byte("{}")
	if len(e.Detail) > 0 {
		var err error
		if detail, err = json.Marshal(e.Detail); err != nil {
			return fmt.Errorf("encode the detail: %w", err)
		}
	}
	hashes := make(map[string]string, len(e.Personal))
	for name, value := range e.Personal {
		name, value = storable(name), storable(value)
		salt := make([]byte, 16)
		_, _ = rand.Read(salt) // never fails, see its documentation
		hashes[name] = hex.EncodeToString(personalHash(salt, value))
		p.owner = append(p.owner, e.Owner)
		p.eventID = append(p.eventID, e.ID)
		p.name = append(p.name, name)
		p.salt = append(p.salt, salt)
		p.value = append(p.value, value)
	}
	personal, err := json.Marshal(hashes) // with sorted names
	if err != nil {
		return fmt.Errorf("encode the hashes: %w", err)
	}
	c.owner = append(c.owner, e.Owner)
	c.id = append(c.id, e.ID)
	c.kind = append(c.kind, storable(e.Kind))
	c.actor = append(c.actor, storable(e.Actor))
	c.object = append(c.object, storable(e.Object))
	c.objectID = append(c.objectID, unlessZero(e.ObjectID))
	c.grantID = append(c.grantID, unlessZero(e.GrantID))
	c.detail = append(c.detail, string(detail))
	c.personal = append(c.personal, string(personal))
	return nil
}

// storable replaces what PostgreSQL's text cannot hold. An event must never be
// the reason why the act that it records fails.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func unlessZero(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
