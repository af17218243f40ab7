package activity

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
)

// Store reads the record.
type Store struct {
	pool *pgxpool.Pool
}

// NewStore returns a store over pool.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// Filter narrows a list; zero members do not.
type Filter struct {
	GrantID uuid.UUID
	Kind    string // one kind (grant.narrowed), or all of a noun (grant)
	Object  uuid.UUID
}

const (
	defaultLimit = 50
	maxLimit     = 100
)

var kindForm = regexp.MustCompile(`^[a-z_.]{1,100}$`)

// List returns an owner's events, the newest first, and the cursor of the next
// page, empty when there is none. A limit of zero means 50; at most 100. A bad
// limit or a cursor of another owner or filter is refused as an invalid argument.
func (s *Store) List(ctx context.Context, owner uuid.UUID, f Filter, cursor string, limit int) ([]Event, string, error) {
	if limit == 0 {
		limit = defaultLimit
	}
	if limit < 0 || limit > maxLimit {
		return nil, "", refusal.Invalid("limit", "limit is 1 to %d", maxLimit)
	}
	if f.Kind != "" && !kindForm.MatchString(f.Kind) {
		return nil, "", refusal.Invalid("kind", "kind is a noun, or noun.verb")
	}
	bind := postgres.BindCursor("activity", owner.String(), f.GrantID.String(), f.Kind, f.Object.String())
	before, beforeID, err := startOf(bind, cursor)
	if err != nil {
		return nil, "", err
	}
	sql, args := listSQL(owner, f, before, beforeID, limit+1)
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list activity: %w", err)
	}
	events, err := pgx.CollectRows(rows, scanEvent)
	if err != nil {
		return nil, "", fmt.Errorf("list activity: %w", err)
	}
	if len(events) <= limit {
		return events, "", nil
	}
	events = events[:limit]
	last := events[limit-1]
	return events, postgres.EncodeCursorAt(bind, last.At, last.ID), nil
}

// listSQL holds only the conditions that are asked for: one with OR in it would
// keep a generic plan from the index that fits.
func listSQL(owner uuid.UUID, f Filter, before *time.Time, beforeID *uuid.UUID, limit int) (string, []any) {
	sql, args := `
		SELECT e.owner, e.id, e.at, e.kind, e.actor, e.object, e.object_id, e.grant_id, e.detail,
		       (SELECT json_object_agg(p.name, p.value) FROM activity_personal p WHERE p.owner = e.owner AND p.event_id = e.id)
		FROM activity e
		WHERE e.owner = $1`, []any{owner}
	and := func(condition string, more ...any) {
		numbers := make([]any, len(more))
		for i := range more {
			numbers[i] = len(args) + i + 1
		}
		sql += "\n\t\t  AND " + fmt.Sprintf(condition, numbers...)
		args = append(args, more...)
	}
	if f.GrantID != uuid.Nil {
		and(`e.grant_id = $%d`, f.GrantID)
	}
	if f.Object != uuid.Nil {
		and(`e.object_id = $%d`, f.Object)
	}
	if f.Kind != "" {
		and(`(e.kind = $%d OR starts_with(e.kind, $%d))`, f.Kind, f.Kind+".")
	}
	if before != nil {
		and(`(e.at, e.id) < ($%d, $%d)`, *before, *beforeID)
	}
	return sql + fmt.Sprintf("\n\t\tORDER BY e.at DESC, e.id DESC\n\t\tLIMIT %d", limit), args
}

// startOf reads a cursor; the empty one begins at the newest event.
func startOf(bind, cursor string) (*time.Time, *uuid.UUID, error) {
	if cursor == "" {
		return nil, nil, nil
	}
	at, id, err := postgres.DecodeCursorAt(bind, cursor)
	if err != nil {
		return nil, nil, err
	}
	return &at, &id, nil
}

func scanEvent(r pgx.CollectableRow) (Event, error) {
	var e Event
	var object, grant *uuid.UUID
	var detail, personal []byte
	if err := r.Scan(&e.Owner, &e.ID, &e.At, &e.Kind, &e.Actor, &e.Object, &object, &grant, &detail, &personal); err != nil {
		return Event{}, err
	}
	e.At = e.At.UTC()
	if object != nil {
		e.ObjectID = *object
	}
	if grant != nil {
		e.GrantID = *grant
	}
	if err := json.Unmarshal(detail, &e.Detail); err != nil {
		return Event{}, fmt.Errorf("decode the detail of event %s: %w", e.ID, err)
	}
	if personal != nil {
		if err := json.Unmarshal(personal, &e.Personal); err != nil {
			return Event{}, fmt.Errorf("decode the personal data of event %s: %w", e.ID, err)
		}
	}
	return e, nil
}
