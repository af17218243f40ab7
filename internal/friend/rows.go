package friend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/persona"
	"switchboard/internal/refusal"
)

// requestColumns reads table friend_request as r. A pending request past its
// time is expired, whether or not Run has come by.
const requestColumns = `
	r.id, r.owner, r.persona_id, r.persona,
	r.identity, r.issuer, r.issuer_entry, r.subject, r.email, r.name,
	r.key_thumbprint, r.from_name, r.from_card, r.reason, r.requested, r.offered, r.offer_version, r.supersedes,
	CASE WHEN r.state = 'pending' AND r.expires_at <= clock_timestamp() THEN 'expired' ELSE r.state END,
	r.note, r.may_ask_again, r.todo_id, r.grant_id, r.created_at, r.expires_at, r.decided_at, r.updated_at, r.artifact,
	coalesce((SELECT i.first_seen FROM friend_identity i WHERE i.identity = r.identity), r.created_at),
	(SELECT count(*) FROM friend_request e WHERE e.identity = r.identity AND e.owner = r.owner AND e.created_at < r.created_at)`

func (s *Store) scanRequest(row pgx.CollectableRow) (Request, error) {
	var r Request
	var supersedes, todoID, grantID *uuid.UUID
	err := row.Scan(
		&r.ID, &r.Owner, &r.PersonaID, &r.Persona,
		&r.Identity.Hash, &r.Identity.Issuer, &r.issuerEntry, &r.Identity.Subject, &r.Identity.Email, &r.Identity.Name,
		&r.Key, &r.From.Name, &r.From.Card, &r.Reason, &r.Scope, &r.Offered, &r.OfferVersion, &supersedes,
		&r.State,
		&r.Note, &r.mayAskAgain, &todoID, &grantID, &r.CreatedAt, &r.ExpiresAt, &r.DecidedAt, &r.UpdatedAt, &r.Artifact,
		&r.FirstSeen, &r.Earlier)
	utc(&r.CreatedAt, &r.ExpiresAt, r.DecidedAt, &r.UpdatedAt, &r.FirstSeen)
	r.Supersedes, r.TodoID, r.GrantID = zeroIfNil(supersedes), zeroIfNil(todoID), zeroIfNil(grantID)
	if r.State == AwaitingSignIn {
		r.SignIn = &SignIn{URL: s.signInURL(r.ID), ExpiresAt: r.ExpiresAt}
	}
	return r, err
}

// grantColumns reads table friend_grant as g. A live grant past its time is
// expired.
const grantColumns = `
	g.id, g.owner, g.persona_id, g.persona, g.agent_id,
	g.identity, g.issuer, g.subject, g.email, g.name,
	g.key_thumbprint, g.from_name, g.from_card, g.request_id, g.endpoint_id, g.line,
	g.requested, g.approved, g.scope,
	CASE WHEN g.state IN ('active', 'paused') AND g.expires_at <= clock_timestamp() THEN 'expired' ELSE g.state END,
	g.approved_at, g.expires_at,
	CASE WHEN g.state IN ('active', 'paused') AND g.expires_at <= clock_timestamp() THEN g.expires_at ELSE g.ended_at END,
	g.version, g.state IN ('active', 'paused') AND g.expires_at <= clock_timestamp()`

func (s *Store) scanGrant(row pgx.CollectableRow) (Grant, error) {
	var g Grant
	err := row.Scan(
		&g.ID, &g.Owner, &g.PersonaID, &g.Persona, &g.AgentID,
		&g.Identity.Hash, &g.Identity.Issuer, &g.Identity.Subject, &g.Identity.Email, &g.Identity.Name,
		&g.Key, &g.From.Name, &g.From.Card, &g.RequestID, &g.EndpointID, &g.Line,
		&g.Requested, &g.Approved, &g.Scope,
		&g.State,
		&g.ApprovedAt, &g.ExpiresAt, &g.EndedAt,
		&g.Version, &g.due)
	utc(&g.ApprovedAt, &g.ExpiresAt, g.EndedAt)
	g.EndpointURL = s.endpointURL(g.EndpointID)
	return g, err
}

func (s *Store) requests(ctx context.Context, q queryer, rest string, args ...any) ([]Request, error) {
	rows, err := q.Query(ctx, `SELECT `+requestColumns+` FROM friend_request r `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read friend requests: %w", err)
	}
	rs, err := pgx.CollectRows(rows, s.scanRequest)
	if err != nil {
		return nil, fmt.Errorf("read friend requests: %w", err)
	}
	return rs, nil
}

// request reads the one row that rest selects; noRequest when there is none.
func (s *Store) request(ctx context.Context, q queryer, rest string, args ...any) (Request, error) {
	rs, err := s.requests(ctx, q, rest, args...)
	if err != nil {
		return Request{}, err
	}
	if len(rs) == 0 {
		return Request{}, noRequest()
	}
	return rs[0], nil
}

func (s *Store) grants(ctx context.Context, q queryer, rest string, args ...any) ([]Grant, error) {
	rows, err := q.Query(ctx, `SELECT `+grantColumns+` FROM friend_grant g `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read grants: %w", err)
	}
	gs, err := pgx.CollectRows(rows, s.scanGrant)
	if err != nil {
		return nil, fmt.Errorf("read grants: %w", err)
	}
	return gs, nil
}

func (s *Store) grant(ctx context.Context, q queryer, rest string, args ...any) (Grant, error) {
	gs, err := s.grants(ctx, q, rest, args...)
	if err != nil {
		return Grant{}, err
	}
	if len(gs) == 0 {
		return Grant{}, noGrant()
	}
	return gs[0], nil
}

// One message each, whether it does not exist or is somebody else's.
func noRequest() error { return refusal.New(refusal.NotFound, "no such friend request") }
func noGrant() error   { return refusal.New(refusal.NotFound, "no such grant") }

// utc turns times as pgx gives them, in the zone of this machine, into UTC.
func utc(times ...*time.Time) {
	for _, t := range times {
		if t != nil {
			*t = t.UTC()
		}
	}
}

func zeroIfNil(id *uuid.UUID) uuid.UUID {
	if id == nil {
		return uuid.Nil
	}
	return *id
}

func nilIfZero(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// offersNow replaces the offers of pending requests by today's, which may have
// changed since they arrived. A persona that is gone offers nothing.
func (s *Store) offersNow(ctx context.Context, rs []Request) error {
	known := map[uuid.UUID]persona.Persona{}
	for i := range rs {
		r := &rs[i]
		if r.State != Pending {
			continue
		}
		p, ok := known[r.PersonaID]
		if !ok {
			var err error
			p, err = s.o.Personas.Get(ctx, r.Owner, r.PersonaID)
			if err != nil && !errors.Is(err, refusal.New(refusal.NotFound, "")) {
				return fmt.Errorf("read the persona of a friend request: %w", err)
			}
			known[r.PersonaID] = p
		}
		r.Offered, r.OfferVersion = p.Offers, p.OfferVersion
	}
	return nil
}

func (s *Store) endpointURL(id uuid.UUID) string { return s.o.PublicURL + "/mcp/" + id.String() }

func (s *Store) metadataURL(id uuid.UUID) string {
	return s.o.PublicURL + "/.well-known/oauth-protected-resource/mcp/" + id.String()
}

func (s *Store) signInURL(id uuid.UUID) string {
	return s.o.PublicURL + "/friend-sign-in/" + id.String()
}
