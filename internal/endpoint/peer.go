package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// PeerSpec is what a grant vends. The caller chooses the ID (UUIDv7).
type PeerSpec struct {
	ID, Owner, AgentID, PersonaID uuid.UUID
	Persona                       string
	GrantID, Line                 uuid.UUID
	Scope                         scope.Scope
	Identity                      []byte
	IdentityText                  string // the identity as people read it; shown to workers
	CallsItself, KeyThumbprint    string
	ExpiresAt                     time.Time
}

// VendPeer makes a peer endpoint in the transaction of the approval. Nothing
// opens it but the key, and the requester's identity by the code flow.
func (s *Store) VendPeer(ctx context.Context, tx pgx.Tx, spec PeerSpec) error {
	e, err := insert(ctx, tx, Endpoint{
		ID: spec.ID, Owner: spec.Owner, Kind: Peer, AgentID: spec.AgentID, PersonaID: spec.PersonaID, Persona: spec.Persona,
		GrantID: spec.GrantID, Line: spec.Line, Scope: spec.Scope, Identity: spec.Identity, IdentityText: spec.IdentityText,
		CallsItself: spec.CallsItself, KeyThumbprint: spec.KeyThumbprint, ExpiresAt: spec.ExpiresAt,
	}, nil)
	if err != nil {
		return fmt.Errorf("vend a peer endpoint: %w", err)
	}
	return s.record(ctx, tx, "endpoint.vended", byHuman(spec.Owner), e, map[string]any{"kind": Peer, "scope": e.Scope, "expires_at": e.ExpiresAt})
}

// Change is what ChangePeer changes; nil leaves a member as it is.
type Change struct {
	Scope     *scope.Scope // narrower than now
	ExpiresAt *time.Time   // not later than now
	State     *State
}

// ChangePeer locks the row, applies the change and makes the version one more.
// refusal.Conflict when the row is not in a state in which the change is
// allowed, refusal.InvalidArgument when it would make the endpoint wider or last
// longer, refusal.NotFound. Nothing has changed then. The caller records what it
// means, commits, and calls Changed.
//
// What has run out can still be marked as over (Revoked, Ended, Expired), so
// that a grant and its endpoint end with the same word.
func (s *Store) ChangePeer(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID, c Change) error {
	e, stored, err := locked(ctx, tx, owner, id, Peer)
	if err != nil {
		return fmt.Errorf("change peer endpoint: %w", err)
	}
	if err := c.apply(&e, stored); err != nil {
		return err
	}
	if err := write(ctx, tx, &e); err != nil {
		return fmt.Errorf("change peer endpoint: %w", err)
	}
	return nil
}

func (c Change) apply(e *Endpoint, stored State) error {
	ends := c.State != nil && over(*c.State)
	if over(e.State) && (over(stored) || !ends) {
		return errOver(e.State)
	}
	if c.Scope != nil {
		if !c.Scope.Narrower(e.Scope) {
			return refusal.Invalid("scope", "the scope is wider than before; a scope can only be narrowed")
		}
		e.Scope = *c.Scope
	}
	if c.ExpiresAt != nil {
		if c.ExpiresAt.After(e.ExpiresAt) {
			return refusal.Invalid("scope.limits.expires_in_days", "it would last longer than before; a scope can only be narrowed")
		}
		e.ExpiresAt = *c.ExpiresAt
	}
	if c.State == nil {
		return nil
	}
	switch {
	case ends:
	case *c.State == Paused && e.State == Active, *c.State == Active && e.State == Paused:
	default:
		return errOver(e.State)
	}
	e.State = *c.State
	return nil
}
