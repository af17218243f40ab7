package friend

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// change is what one operation does to a locked live grant. Grant row, endpoint,
// open todos and activity change together or not at all; when it has answered,
// nothing that was not committed before takes effect, because every write of the
// friend locks the endpoint's row.
type change struct {
	kind     string // of the activity event
	actor    string
	scope    *scope.Scope
	expires  *time.Time
	state    GrantState // "" = as it is
	endpoint endpoint.State
	cancel   string // reason for which open todos are cancelled; "" = they stay
	detail   map[string]any
}

// decide looks at the locked grant and says what to do; changed is false when it
// already is as wanted.
type decide func(g Grant, now time.Time) (c change, changed bool, err error)

func (s *Store) changeGrant(ctx context.Context, where string, args []any, d decide) (Grant, error) {
	var g Grant
	var changed bool
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		var err error
		if g, err = s.grant(ctx, tx, `WHERE `+where+` FOR UPDATE OF g`, args...); err != nil {
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		var c change
		if c, changed, err = d(g, now); err != nil || !changed {
			return err
		}
		if err := s.apply(ctx, tx, g, c, now); err != nil {
			return err
		}
		g, err = s.grant(ctx, tx, `WHERE g.owner = $1 AND g.id = $2`, g.Owner, g.ID)
		return err
	})
	if err != nil {
		return Grant{}, err
	}
	if changed {
		s.afterChange(g)
	}
	return g, nil
}

// apply writes a change in the order grant → endpoint → todo.
func (s *Store) apply(ctx context.Context, tx pgx.Tx, g Grant, c change, now time.Time) error {
	next, expires := g.Scope, g.ExpiresAt
	if c.scope != nil {
		next = *c.scope
	}
	if c.expires != nil {
		expires = *c.expires
	}
	if c.state != "" && !c.state.Live() {
		if err := s.end(ctx, tx, g, c.state, now); err != nil {
			return err
		}
	} else if _, err := tx.Exec(ctx, `
		UPDATE friend_grant SET scope = $3, expires_at = $4, state = CASE WHEN $5 = '' THEN state ELSE $5 END, version = version + 1
		WHERE owner = $1 AND id = $2`, g.Owner, g.ID, next, expires, string(c.state)); err != nil {
		return fmt.Errorf("change the grant: %w", err)
	}
	peer := endpoint.Change{Scope: c.scope, ExpiresAt: c.expires}
	if c.endpoint != "" {
		peer.State = &c.endpoint
	}
	if err := s.o.Endpoints.ChangePeer(ctx, tx, g.Owner, g.EndpointID, peer); err != nil {
		return fmt.Errorf("change the grant's endpoint: %w", err)
	}
	detail := map[string]any{"persona": g.Persona}
	for k, v := range c.detail {
		detail[k] = v
	}
	if c.cancel != "" {
		n, err := s.o.Todos.CancelByEndpoint(ctx, tx, g.Owner, g.EndpointID, c.cancel)
		if err != nil {
			return fmt.Errorf("cancel the open todos: %w", err)
		}
		detail["canceled_todos"] = n
	}
	if err := s.record(ctx, tx, activity.Event{
		Owner: g.Owner, Kind: c.kind, Actor: c.actor, Object: "grant", ObjectID: g.ID, GrantID: g.ID, Detail: detail,
	}); err != nil {
		return err
	}
	state := g.State
	if c.state != "" {
		state = c.state
	}
	return s.notify(ctx, tx, Notice{
		Kind: "grant.changed", Owner: g.Owner, Identity: g.Identity.Hash, Persona: g.Persona,
		RequestID: g.RequestID, GrantID: g.ID, State: string(state), Event: c.kind, ExpiresAt: expires,
	})
}

// end marks a grant as ended for good.
func (s *Store) end(ctx context.Context, tx pgx.Tx, g Grant, state GrantState, now time.Time) error {
	_, err := tx.Exec(ctx, `
		UPDATE friend_grant SET state = $3, ended_at = $4, version = version + 1
		WHERE owner = $1 AND id = $2`, g.Owner, g.ID, state, now)
	if err != nil {
		return fmt.Errorf("end the grant: %w", err)
	}
	return nil
}

// afterChange is called after the commit: caches, waiting calls, followers.
func (s *Store) afterChange(g Grant) {
	s.o.Endpoints.Changed(g.EndpointID)
	s.changed(g.Owner, g.RequestID)
}

// ended refuses to change what has ended.
func ended(g Grant) error { return refusal.New(refusal.Conflict, "this grant is already %s", g.State) }

const ownGrant = `g.owner = $1 AND g.id = $2`

// Narrow replaces the grant's scope by a narrower or equal one; limits left out
// stay as they are, and expires_in_days counts from the approval. A scope that
// is wider, or that would already be over, is refusal.InvalidArgument; a stale
// ifVersion is refusal.PreconditionFailed; an ended grant refusal.Conflict.
func (s *Store) Narrow(ctx context.Context, owner, id uuid.UUID, a scope.Asked, ifVersion *int64) (Grant, error) {
	return s.changeGrant(ctx, ownGrant, []any{owner, id}, func(g Grant, now time.Time) (change, bool, error) {
		if ifVersion != nil && *ifVersion != g.Version {
			return change{}, false, refusal.New(refusal.PreconditionFailed, "the grant changed since it was read")
		}
		if !g.State.Live() {
			return change{}, false, ended(g)
		}
		next, err := g.Scope.Narrow(a)
		if err != nil {
			return change{}, false, err
		}
		expires := g.ExpiresAt
		if next.Limits.ExpiresInDays != g.Scope.Limits.ExpiresInDays {
			expires = g.ApprovedAt.Add(time.Duration(next.Limits.ExpiresInDays) * day)
		}
		if !expires.After(now) {
			return change{}, false, refusal.Invalid("scope.limits.expires_in_days",
				"expires_in_days counts from the approval, and that moment has passed; revoke the grant to end it")
		}
		return change{
			kind: "grant.narrowed", actor: actorHuman(owner), scope: &next, expires: &expires,
			detail: map[string]any{"from": g.Scope, "to": next, "expires_at": expires},
		}, true, nil
	})
}

// Pause stops the endpoint until Resume. A paused grant stays paused; an ended
// one is refusal.Conflict.
func (s *Store) Pause(ctx context.Context, owner, id uuid.UUID) (Grant, error) {
	return s.changeGrant(ctx, ownGrant, []any{owner, id}, pause(actorHuman(owner)))
}

func pause(actor string) decide {
	return func(g Grant, _ time.Time) (change, bool, error) {
		switch {
		case !g.State.Live():
			return change{}, false, ended(g)
		case g.State == GrantPaused:
			return change{}, false, nil
		}
		return change{kind: "grant.paused", actor: actor, state: GrantPaused, endpoint: endpoint.Paused}, true, nil
	}
}

// Resume restores exactly what was before Pause.
func (s *Store) Resume(ctx context.Context, owner, id uuid.UUID) (Grant, error) {
	return s.changeGrant(ctx, ownGrant, []any{owner, id}, func(g Grant, _ time.Time) (change, bool, error) {
		switch {
		case !g.State.Live():
			return change{}, false, ended(g)
		case g.State == GrantActive:
			return change{}, false, nil
		}
		return change{kind: "grant.resumed", actor: actorHuman(owner), state: GrantActive, endpoint: endpoint.Active}, true, nil
	})
}

// Revoke ends the grant at once. With finish, open todos stay for the owner's
// workers; without, they are cancelled. Revoking what has ended is
// refusal.Conflict.
func (s *Store) Revoke(ctx context.Context, owner, id uuid.UUID, finish bool) (Grant, error) {
	return s.changeGrant(ctx, ownGrant, []any{owner, id}, func(g Grant, _ time.Time) (change, bool, error) {
		if !g.State.Live() {
			return change{}, false, ended(g)
		}
		c := change{kind: "grant.revoked", actor: actorHuman(owner), state: GrantRevoked, endpoint: endpoint.Revoked, detail: map[string]any{"finish": finish}}
		if !finish {
			c.cancel = "the grant was revoked"
		}
		return c, true, nil
	})
}

// Leave is the requester's own end of a grant. What it left open is cancelled,
// since nobody could read the results.
func (s *Store) Leave(ctx context.Context, identity []byte, id uuid.UUID) (Grant, error) {
	return s.changeGrant(ctx, `g.identity = $1 AND g.id = $2`, []any{identity, id}, func(g Grant, _ time.Time) (change, bool, error) {
		if !g.State.Live() {
			return change{}, false, ended(g)
		}
		return change{kind: "grant.left", actor: actorIdentity(identity), state: GrantEnded, endpoint: endpoint.Ended, cancel: "the friend left"}, true, nil
	})
}

// PauseAll pauses every active grant of the owner in one transaction and returns
// how many.
func (s *Store) PauseAll(ctx context.Context, owner uuid.UUID) (int, error) {
	var gs []Grant
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		var err error
		gs, err = s.grants(ctx, tx, `
			WHERE g.owner = $1 AND g.state = 'active' AND g.expires_at > clock_timestamp()
			ORDER BY g.id FOR UPDATE OF g`, owner)
		if err != nil {
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		// A row that was waited for may have changed meanwhile.
		gs = slices.DeleteFunc(gs, func(g Grant) bool { return g.State != GrantActive })
		byEndpoint(gs)
		for _, g := range gs {
			c, _, err := pause(actorHuman(owner))(g, now)
			if err != nil {
				return err
			}
			if err := s.apply(ctx, tx, g, c, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, g := range gs {
		s.afterChange(g)
	}
	return len(gs), nil
}

// byEndpoint sorts grants in the order in which endpoints are locked.
func byEndpoint(gs []Grant) {
	slices.SortFunc(gs, func(a, b Grant) int { return slices.Compare(a.EndpointID[:], b.EndpointID[:]) })
}
