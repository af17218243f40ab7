package persona

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"switchboard/internal/refusal"
)

// persona is what the spec makes, before it has an id.
func (s Spec) persona(owner uuid.UUID) Persona {
	p := Persona{
		Owner: owner, AgentID: s.AgentID, Slug: s.Slug, Name: s.Name, Description: s.Description, Prompt: s.Prompt,
		Queues: s.Queues, Offers: s.Offers, Visibility: s.Visibility, WhoMayAsk: s.WhoMayAsk,
	}
	if p.Visibility == "" {
		p.Visibility = Listed
	}
	return p
}

// Problems lists everything that is wrong with the spec as written, at most one
// refusal.InvalidArgument a member, so that somebody who fills in a form is told
// once. Whether agent and queues exist and the slug is free is not looked at.
func (s Spec) Problems() []error { return s.persona(uuid.Nil).problems() }

// CheckAgent refuses what CreateAgent would refuse, and makes nothing.
func CheckAgent(name, description string) error {
	return Agent{Name: name, Description: description}.check()
}

// SlugTaken reports whether the human could not have a new persona of this slug
// now. Create decides: somebody else may take it meanwhile.
func (s *Store) SlugTaken(ctx context.Context, owner uuid.UUID, slug string) (bool, error) {
	var taken bool
	err := s.pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM persona_slug WHERE slug = $1 AND (owner <> $2 OR persona_id IS NOT NULL))`, slug, owner).Scan(&taken)
	if err != nil {
		return false, fmt.Errorf("look for the slug: %w", err)
	}
	return taken, nil
}

// CreateWithAgent is Create for a new agent of this name, whatever the spec says
// of one: both are made or neither. Errors as in Create; what is wrong with the
// name is refusal.InvalidArgument about agent_name.
func (s *Store) CreateWithAgent(ctx context.Context, owner uuid.UUID, spec Spec, name string) (Persona, error) {
	if err := CheckAgent(name, ""); err != nil {
		return Persona{}, refusal.Invalid("agent_name", "the agent's %s", refusal.From(err).Message)
	}
	return s.create(ctx, owner, spec, name)
}
