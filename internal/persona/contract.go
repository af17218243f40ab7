// Package persona: agents, personas, offers, the skills that follow from them.
// CONTRACT FILE: the owner of this room spreads it over files and deletes it.
package persona

import (
	"context"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/scope"
)

type Agent struct {
	ID, Owner   uuid.UUID
	Name        string
	Description string
	CreatedAt   time.Time
	Version     int64
}

type Visibility string

const (
	Listed   Visibility = "listed"
	Unlisted Visibility = "unlisted"
	Off      Visibility = "off"
)

// WhoMayAsk is "anyone", "nobody", or a list of issuers (wire: string or array).
type WhoMayAsk struct {
	Nobody  bool
	Issuers []string // nil with !Nobody = anyone of the trusted issuers
}

type Persona struct {
	ID, Owner    uuid.UUID
	AgentID      uuid.UUID
	Slug         string
	Name         string
	Description  string
	Prompt       string
	Queues       []string
	Offers       []scope.Offer
	OfferVersion int64 // bumped when offers change
	Visibility   Visibility
	WhoMayAsk    WhoMayAsk
	CreatedAt    time.Time
	UpdatedAt    time.Time
	Version      int64
}

// Skill is computed from offers and from nothing else.
type Skill struct {
	ID, Name, Description string
	Tags, Examples        []string
}

func (p Persona) Skills() []Skill { panic("contract") }

type Store struct{}

func (s *Store) CreateAgent(ctx context.Context, owner uuid.UUID, name, description string) (Agent, error) {
	panic("contract")
}
func (s *Store) Agents(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Agent, string, error) {
	panic("contract")
}
func (s *Store) Agent(ctx context.Context, owner, id uuid.UUID) (Agent, error) { panic("contract") }
func (s *Store) UpdateAgent(ctx context.Context, owner, id uuid.UUID, name, description *string, ifVersion *int64) (Agent, error) {
	panic("contract")
}

// DeleteAgent refuses (conflict) while personas or live endpoints hang on it.
func (s *Store) DeleteAgent(ctx context.Context, owner, id uuid.UUID) error { panic("contract") }

type Spec struct {
	AgentID                         uuid.UUID
	Slug, Name, Description, Prompt string
	Queues                          []string
	Offers                          []scope.Offer
	Visibility                      Visibility
	WhoMayAsk                       WhoMayAsk
}

// Patch: nil = unchanged. The slug is immutable.
type Patch struct {
	Name, Description, Prompt *string
	Queues                    *[]string
	Offers                    *[]scope.Offer
	Visibility                *Visibility
	WhoMayAsk                 *WhoMayAsk
	IfVersion                 *int64
}

func (s *Store) Create(ctx context.Context, owner uuid.UUID, spec Spec) (Persona, error) {
	panic("contract")
}
func (s *Store) List(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Persona, string, error) {
	panic("contract")
}
func (s *Store) Get(ctx context.Context, owner, id uuid.UUID) (Persona, error) { panic("contract") }
func (s *Store) Update(ctx context.Context, owner, id uuid.UUID, p Patch) (Persona, error) {
	panic("contract")
}
func (s *Store) Delete(ctx context.Context, owner, id uuid.UUID) error { panic("contract") }

// BySlug finds a persona that is not off; refusal.NotFound for unknown and off alike.
func (s *Store) BySlug(ctx context.Context, slug string) (Persona, error) { panic("contract") }

// Catalog lists the listed personas of the instance (slug order), for the api-catalog and the local directory.
func (s *Store) Catalog(ctx context.Context, query, cursor string, limit int) ([]Persona, string, error) {
	panic("contract")
}
