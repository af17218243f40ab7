package persona

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/activity"
	"switchboard/internal/refusal"
)

// Queues knows which queues a human has; package todo does.
type Queues interface {
	// QueuesExist refuses with InvalidArgument, naming the first that is not
	// there. inbox counts as unknown.
	QueuesExist(ctx context.Context, owner uuid.UUID, names []string) error
}

// Record writes events into the acting transaction; activity.Record does.
type Record func(ctx context.Context, tx pgx.Tx, events ...activity.Event) error

// Dependents says in a few words what still lives on an agent, or on one of its
// personas when persona is not zero; "" when nothing does. It is asked while
// the row is locked against [Store.Hold].
type Dependents func(ctx context.Context, tx pgx.Tx, owner, agent, persona uuid.UUID) (string, error)

// Options are what the Store needs of other rooms.
type Options struct {
	Queues     Queues
	Record     Record
	Dependents []Dependents
	// Owner keeps the human's account from being erased while a transaction makes
	// something of theirs, and refuses when it is gone; nil: nobody is erased.
	Owner func(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error
}

// Store keeps agents and personas in PostgreSQL.
type Store struct {
	pool *pgxpool.Pool
	o    Options
}

// New returns a store on the pool.
func New(pool *pgxpool.Pool, o Options) *Store { return &Store{pool: pool, o: o} }

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

var (
	errNoAgent   = refusal.New(refusal.NotFound, "there is no such agent")
	errNoPersona = refusal.New(refusal.NotFound, "there is no such persona")
	errChanged   = refusal.New(refusal.PreconditionFailed, "it has changed since that version")
)

// free refuses with Conflict when something lives on the agent or persona.
func (s *Store) free(ctx context.Context, tx pgx.Tx, owner, agent, persona uuid.UUID) error {
	for _, dependents := range s.o.Dependents {
		what, err := dependents(ctx, tx, owner, agent, persona)
		if err != nil {
			return fmt.Errorf("look for what lives on it: %w", err)
		}
		if what != "" {
			return refusal.New(refusal.Conflict, "it still has %s", what)
		}
	}
	return nil
}

func (s *Store) record(ctx context.Context, tx pgx.Tx, owner uuid.UUID, kind, object string, id uuid.UUID, detail map[string]any) error {
	if s.o.Record == nil {
		return nil
	}
	err := s.o.Record(ctx, tx, activity.Event{
		Owner: owner, Kind: kind, Actor: "human:" + owner.String(), Object: object, ObjectID: id, Detail: detail,
	})
	if err != nil {
		return fmt.Errorf("record %s: %w", kind, err)
	}
	return nil
}

// making runs f, which makes something new, in a transaction while its owner is there.
func (s *Store) making(ctx context.Context, what string, owner uuid.UUID, f func(tx pgx.Tx) error) error {
	return s.in(ctx, what, func(tx pgx.Tx) error {
		if s.o.Owner != nil {
			if err := s.o.Owner(ctx, tx, owner); err != nil {
				return err
			}
		}
		return f(tx)
	})
}

// in runs f in a transaction.
func (s *Store) in(ctx context.Context, what string, f func(tx pgx.Tx) error) error {
	if err := pgx.BeginFunc(ctx, s.pool, f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func none(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
