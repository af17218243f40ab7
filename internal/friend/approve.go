package friend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/persona"
	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

// Approval is what a human grants of a request.
type Approval struct {
	Scope         *scope.Asked // nil = as requested
	ExpiresInDays *int64       // overrides Scope.Limits.ExpiresInDays
	Note          string
	OfferVersion  *int64 // when set and no longer current: refusal.Conflict
}

// Approve makes the grant and vends its endpoint: one transaction with the
// decision, the consent todo's end, the activity, and the end of the grant that
// the request supersedes, whose line it continues.
//
// What is not narrower than the request is refusal.InvalidArgument; a request
// that is no longer pending, an offer that changed since it was shown, and an
// offer that no longer covers what is granted are refusal.Conflict.
func (s *Store) Approve(ctx context.Context, owner, id uuid.UUID, a Approval) (Grant, error) {
	if err := checkNote(a.Note); err != nil {
		return Grant{}, err
	}
	var g Grant
	var retired []Grant
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		g, retired = Grant{}, nil
		r, err := s.lockIncoming(ctx, tx, owner, id)
		if err != nil {
			return err
		}
		p, err := s.personaOf(ctx, tx, r)
		if err != nil {
			return err
		}
		granted, err := a.of(r, p)
		if err != nil {
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		if g, err = newGrant(r, p, granted, now); err != nil {
			return err
		}
		if retired, err = s.retire(ctx, tx, r, now); err != nil {
			return err
		}
		for _, old := range retired {
			if old.ID == r.Supersedes {
				g.Line = old.Line
			}
		}
		if err := s.vend(ctx, tx, r, p, g, a.Note); err != nil {
			return err
		}
		g, err = s.grant(ctx, tx, `WHERE g.owner = $1 AND g.id = $2`, owner, g.ID)
		return err
	})
	if err != nil {
		return Grant{}, err
	}
	for _, old := range retired {
		s.o.Endpoints.Changed(old.EndpointID)
	}
	s.o.Endpoints.Changed(g.EndpointID)
	s.changed(owner, id)
	return g, nil
}

// personaOf is the persona as it is now and stays until tx ends.
func (s *Store) personaOf(ctx context.Context, tx pgx.Tx, r Request) (persona.Persona, error) {
	p, err := s.o.Personas.Hold(ctx, tx, r.Owner, r.PersonaID)
	if errors.Is(err, refusal.New(refusal.NotFound, "")) {
		return p, refusal.New(refusal.Conflict, "the persona that was asked no longer exists; decline the request")
	}
	return p, err
}

// of returns requested ∩ offered ∩ allowed, where each must contain the last.
func (a Approval) of(r Request, p persona.Persona) (scope.Scope, error) {
	if a.OfferVersion != nil && *a.OfferVersion != p.OfferVersion {
		return scope.Scope{}, refusal.New(refusal.Conflict, "the offer changed since this request was shown; look at it again")
	}
	asked := r.Scope.Asked()
	if a.Scope != nil {
		asked = *a.Scope
	}
	if a.ExpiresInDays != nil {
		asked.Limits.ExpiresInDays = a.ExpiresInDays
	}
	granted, err := r.Scope.Narrow(asked)
	if err != nil {
		return scope.Scope{}, err
	}
	if err := granted.Inside(p.Offers); err != nil {
		return scope.Scope{}, refusal.New(refusal.Conflict, "the offer changed and no longer covers this: %s", refusal.From(err).Message).Because(err)
	}
	return granted, nil
}

func newGrant(r Request, p persona.Persona, granted scope.Scope, now time.Time) (Grant, error) {
	id, err := newID()
	if err != nil {
		return Grant{}, err
	}
	endpointID, err := newID()
	if err != nil {
		return Grant{}, err
	}
	line, err := newID()
	if err != nil {
		return Grant{}, err
	}
	return Grant{
		ID: id, Owner: r.Owner, PersonaID: p.ID, Persona: p.Slug, AgentID: p.AgentID,
		Identity: r.Identity, From: r.From, Key: r.Key, RequestID: r.ID,
		EndpointID: endpointID, Line: line,
		Requested: r.Scope, Approved: granted, Scope: granted,
		State: GrantActive, ApprovedAt: now, ExpiresAt: now.Add(time.Duration(granted.Limits.ExpiresInDays) * day), Version: 1,
	}, nil
}

// retire ends the grant that the request supersedes. It may have ended by
// itself in the meantime; its line goes on all the same. Any other live grant of
// the key stands in the way.
func (s *Store) retire(ctx context.Context, tx pgx.Tx, r Request, now time.Time) ([]Grant, error) {
	gs, err := s.grants(ctx, tx, `
		WHERE g.owner = $1 AND g.persona_id = $2
		  AND (g.id = $3::uuid AND g.identity = $5 OR g.key_thumbprint = $4 AND g.state IN ('active', 'paused'))
		ORDER BY g.id FOR UPDATE OF g`, r.Owner, r.PersonaID, nilIfZero(r.Supersedes), r.Key, r.Identity.Hash)
	if err != nil {
		return nil, err
	}
	byEndpoint(gs)
	for _, g := range gs {
		switch {
		case g.due:
			if err := s.markExpired(ctx, tx, g); err != nil {
				return nil, err
			}
		case g.ID != r.Supersedes:
			return nil, refusal.New(refusal.Conflict, "this agent's key already has a grant here that the request does not replace; end that one first")
		case g.State.Live():
			ended := endpoint.Ended
			if err := s.end(ctx, tx, g, GrantEnded, now); err != nil {
				return nil, err
			}
			if err := s.o.Endpoints.ChangePeer(ctx, tx, g.Owner, g.EndpointID, endpoint.Change{State: &ended}); err != nil {
				return nil, fmt.Errorf("end the superseded endpoint: %w", err)
			}
			if err := s.record(ctx, tx, activity.Event{
				Owner: g.Owner, Kind: "grant.superseded", Actor: actorHuman(g.Owner), Object: "grant", ObjectID: g.ID, GrantID: g.ID,
				Detail: map[string]any{"by_friend_request": r.ID},
			}); err != nil {
				return nil, err
			}
		}
	}
	return gs, nil
}

// vend writes grant, endpoint and decision.
func (s *Store) vend(ctx context.Context, tx pgx.Tx, r Request, p persona.Persona, g Grant, note string) error {
	if err := insertGrant(ctx, tx, g); err != nil {
		return err
	}
	err := s.o.Endpoints.VendPeer(ctx, tx, endpoint.PeerSpec{
		ID: g.EndpointID, Owner: g.Owner, AgentID: g.AgentID, PersonaID: g.PersonaID, Persona: g.Persona,
		GrantID: g.ID, Line: g.Line, Scope: g.Scope,
		Identity: g.Identity.Hash, IdentityText: g.Identity.Text(), CallsItself: g.From.Name, KeyThumbprint: g.Key,
		ExpiresAt: g.ExpiresAt,
	})
	if err != nil {
		return fmt.Errorf("vend the endpoint: %w", err)
	}
	artifact := Artifact{
		MCPEndpoint: s.endpointURL(g.EndpointID), ResourceMetadata: s.metadataURL(g.EndpointID), AuthorizationServer: s.o.PublicURL,
		GrantedScope: g.Scope, GrantID: g.ID, ExpiresAt: g.ExpiresAt,
	}
	if _, err := tx.Exec(ctx, `
		UPDATE friend_request
		SET state = 'approved', note = $3, grant_id = $4, artifact = $5, offered = $6, offer_version = $7, decided_at = $8, updated_at = $8
		WHERE owner = $1 AND id = $2`, r.Owner, r.ID, note, g.ID, artifact, notNil(p.Offers), p.OfferVersion, g.ApprovedAt); err != nil {
		return fmt.Errorf("approve the friend request: %w", err)
	}
	if err := s.finishConsent(ctx, tx, r, todo.Done, Approved, g.ID); err != nil {
		return err
	}
	return s.record(ctx, tx, activity.Event{
		Owner: r.Owner, Kind: "friend_request.approved", Actor: actorHuman(r.Owner), Object: "friend_request", ObjectID: r.ID, GrantID: g.ID,
		Detail: map[string]any{
			"persona": r.Persona, "requested": r.Scope, "granted": g.Scope, "endpoint": g.EndpointID, "line": g.Line,
			"offer_version": p.OfferVersion, "supersedes": nilIfZero(r.Supersedes), "expires_at": g.ExpiresAt,
		},
		Personal: personal(r.Identity, r.From, "note", note),
	})
}

func insertGrant(ctx context.Context, tx pgx.Tx, g Grant) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO friend_grant (
			owner, id, persona_id, persona, agent_id, identity, issuer, subject, email, name,
			key_thumbprint, from_name, from_card, request_id, endpoint_id, line,
			requested, approved, scope, state, approved_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $18, 'active', $19, $20)`,
		g.Owner, g.ID, g.PersonaID, g.Persona, g.AgentID, g.Identity.Hash, g.Identity.Issuer, g.Identity.Subject, g.Identity.Email, g.Identity.Name,
		g.Key, g.From.Name, g.From.Card, g.RequestID, g.EndpointID, g.Line,
		g.Requested, g.Approved, g.ApprovedAt, g.ExpiresAt)
	if postgres.Violates(err, "friend_grant_live") {
		return refusal.New(refusal.Conflict, "this agent's key already has a grant here; end that one first").Because(err)
	}
	if err != nil {
		return fmt.Errorf("store the grant: %w", err)
	}
	return nil
}
