package endpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/activity"
	"switchboard/internal/persona"
	"switchboard/internal/refusal"
)

// Personas holds the persona on which a home endpoint is vended; package
// persona does.
type Personas interface {
	// Hold keeps the persona as it is until tx ends; refusal.NotFound.
	Hold(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID) (persona.Persona, error)
}

// Record writes events into the acting transaction; activity.Record does.
type Record func(ctx context.Context, tx pgx.Tx, events ...activity.Event) error

// Options are what the Store needs of other rooms.
type Options struct {
	PublicURL string // no trailing slash
	Personas  Personas
	Record    Record // nil: nothing is recorded
	// OnChange is called after the commit of each change on this replica, so that
	// waiting calls look again; nil: nobody waits. It must not block.
	OnChange func(owner, id uuid.UUID)
	// CacheSize bounds the callers that are remembered; 0 = 8192.
	CacheSize int
}

// Store keeps endpoints and tokens in PostgreSQL.
type Store struct {
	pool  *pgxpool.Pool
	o     Options
	cache *callers
	keys  *keyLimit
	held  chan struct{} // one Hold at a time
}

// New returns a store on the pool.
func New(pool *pgxpool.Pool, o Options) *Store {
	o.PublicURL = strings.TrimRight(o.PublicURL, "/")
	return &Store{pool: pool, o: o, cache: newCallers(o.CacheSize), keys: newKeyLimit(), held: make(chan struct{}, 1)}
}

// URL returns the address of the endpoint, which is also its OAuth resource.
func (s *Store) URL(id uuid.UUID) string { return s.o.PublicURL + mcpPath + id.String() }

// ResourceMetadataURL returns where the endpoint's RFC 9728 metadata is.
func (s *Store) ResourceMetadataURL(id uuid.UUID) string {
	return s.o.PublicURL + "/.well-known/oauth-protected-resource" + mcpPath + id.String()
}

// MaxPage is the longest page of a list; DefaultPage stands where none is asked.
const (
	MaxPage     = 200
	DefaultPage = 50
)

func page(limit int) int {
	if limit <= 0 {
		return DefaultPage
	}
	return min(limit, MaxPage)
}

var errNone = refusal.New(refusal.NotFound, "there is no such endpoint")

// in runs f in a transaction.
func (s *Store) in(ctx context.Context, what string, f func(tx pgx.Tx) error) error {
	if err := pgx.BeginFunc(ctx, s.pool, f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (s *Store) record(ctx context.Context, tx pgx.Tx, kind, actor string, e Endpoint, detail map[string]any) error {
	if s.o.Record == nil {
		return nil
	}
	object := "endpoint"
	if e.ID == uuid.Nil {
		object = "authorization" // for a persona's A2A resource
	}
	err := s.o.Record(ctx, tx, activity.Event{
		Owner: e.Owner, Kind: kind, Actor: actor, Object: object, ObjectID: e.ID, GrantID: e.GrantID, Detail: detail,
	})
	if err != nil {
		return fmt.Errorf("record %s: %w", kind, err)
	}
	return nil
}

func byHuman(id uuid.UUID) string { return "human:" + id.String() }

// Changed drops what is remembered of the endpoint on this replica and lets
// waiting calls look again. Package friend calls it after each commit that
// changed a peer endpoint. It is a courtesy: nothing relies on it.
func (s *Store) Changed(id uuid.UUID) {
	s.cache.drop(id)
	if s.o.OnChange == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var owner uuid.UUID
	if s.pool.QueryRow(ctx, `SELECT owner FROM endpoint_route WHERE id = $1`, id).Scan(&owner) == nil {
		s.o.OnChange(owner, id)
	}
}

func (s *Store) changed(owner, id uuid.UUID) {
	s.cache.drop(id)
	if s.o.OnChange != nil {
		s.o.OnChange(owner, id)
	}
}

// Dependents says what of this package lives on an agent or, when persona is
// not zero, on one of its personas; "" when nothing does. It is a
// persona.Dependents, and no method, because the store of personas is made
// before that of endpoints.
func Dependents(ctx context.Context, tx pgx.Tx, owner, agent, persona uuid.UUID) (string, error) {
	var alive bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM endpoint
			WHERE owner = $1 AND agent_id = $2 AND ($3 = '00000000-0000-0000-0000-000000000000'::uuid OR persona_id = $3)
				AND state IN ('active', 'paused') AND expires_at > clock_timestamp())`, owner, agent, persona).Scan(&alive)
	if err != nil {
		return "", fmt.Errorf("look for live endpoints: %w", err)
	}
	if alive {
		return "live endpoints", nil
	}
	return "", nil
}

func none(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
