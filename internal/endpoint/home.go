package endpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// HomeSpec is what a new home endpoint is made of.
type HomeSpec struct {
	AgentID, PersonaID uuid.UUID
	Queues             []string // within the persona's; nil = all of them
	Tools              []string // "verbs" on the wire; nil = all
	ExpiresInDays      int64    // 0 = 90
}

// Lifetimes of home endpoints, in days.
const (
	DefaultHomeDays = 90
	MaxHomeDays     = 365
)

// CreateHome vends a home endpoint and its static credential, which is shown
// this once. refusal.InvalidArgument names what is wrong with the spec.
func (s *Store) CreateHome(ctx context.Context, owner uuid.UUID, spec HomeSpec) (e Endpoint, credential string, err error) {
	if spec.ExpiresInDays == 0 {
		spec.ExpiresInDays = DefaultHomeDays
	}
	if spec.ExpiresInDays < 1 || spec.ExpiresInDays > MaxHomeDays {
		return Endpoint{}, "", refusal.Invalid("expires_in_days", "expires_in_days is 1 to %d", MaxHomeDays)
	}
	tools, err := toolList(spec.Tools, homeTools)
	if err != nil {
		return Endpoint{}, "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Endpoint{}, "", fmt.Errorf("make an id: %w", err)
	}
	err = s.in(ctx, "vend a home endpoint", func(tx pgx.Tx) error {
		p, err := s.o.Personas.Hold(ctx, tx, owner, spec.PersonaID)
		if refusal.CodeOf(err) == refusal.NotFound {
			return refusal.Invalid("persona_id", "persona_id names no persona of yours")
		}
		if err != nil {
			return err
		}
		if p.AgentID != spec.AgentID {
			return refusal.Invalid("agent_id", "agent_id is not the agent of that persona")
		}
		queues, err := queueList(spec.Queues, p.Queues)
		if err != nil {
			return err
		}
		e, err = insert(ctx, tx, Endpoint{
			ID: id, Owner: owner, Kind: Home, AgentID: p.AgentID, PersonaID: p.ID, Persona: p.Slug, Line: p.AgentID,
			Scope: scope.Scope{Queues: queues, Verbs: []scope.Verb{}}, Tools: tools,
		}, &spec.ExpiresInDays)
		if err != nil {
			return err
		}
		if credential, err = vendStatic(ctx, tx, e); err != nil {
			return err
		}
		return s.record(ctx, tx, "endpoint.vended", byHuman(owner), e, map[string]any{"kind": Home, "queues": queues, "expires_at": e.ExpiresAt})
	})
	if err != nil {
		return Endpoint{}, "", err
	}
	return e, credential, nil
}

// vendStatic gives the endpoint a static credential that ends when it does.
func vendStatic(ctx context.Context, tx pgx.Tx, e Endpoint) (string, error) {
	bearer, token := newSecret(staticPrefix)
	holder, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO endpoint_token (id, holder, kind, owner, endpoint_id, expires_at)
		VALUES ($1, $2, 'static', $3, $4, $5)`, token, holder, e.Owner, e.ID, e.ExpiresAt)
	return bearer, err
}

// toolList checks that the tools are among these and puts them into the fixed
// order; nil stays nil.
func toolList(tools, among []string) ([]string, error) {
	if tools == nil {
		return nil, nil
	}
	const field = "verbs"
	if len(tools) == 0 {
		return nil, refusal.Invalid(field, "verbs names no tool; leave it out for all")
	}
	for i, t := range tools {
		switch {
		case !slices.Contains(homeTools, t):
			return nil, refusal.Invalid(field, "verbs[%d] is no tool of a home endpoint", i)
		case !slices.Contains(among, t):
			return nil, refusal.Invalid(field, "verbs[%d] is wider than before; an endpoint can only be narrowed", i)
		case slices.Contains(tools[:i], t):
			return nil, refusal.Invalid(field, "verbs names %s twice", t)
		}
	}
	list := slices.Clone(tools)
	slices.SortFunc(list, func(a, b string) int { return slices.Index(homeTools, a) - slices.Index(homeTools, b) })
	return list, nil
}

// queueList checks that the queues are among these and sorts them; nil is all.
func queueList(queues, among []string) ([]string, error) {
	const field = "queues"
	if queues == nil {
		queues = among
	}
	if len(queues) == 0 {
		return nil, refusal.Invalid(field, "queues names no queue")
	}
	for i, q := range queues {
		switch {
		case !slices.Contains(among, q):
			return nil, refusal.Invalid(field, "queues[%d] is none of the queues that it could have", i)
		case slices.Contains(queues[:i], q):
			return nil, refusal.Invalid(field, "queues names %s twice", q)
		}
	}
	list := slices.Clone(queues)
	slices.Sort(list)
	return list, nil
}

// List lists a human's home endpoints, newest first. Peer endpoints are seen
// with their grants.
func (s *Store) List(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Endpoint, string, error) {
	bind := postgres.BindCursor("endpoints", owner.String())
	before := uuid.Max
	if cursor != "" {
		key, err := postgres.DecodeCursor(bind, cursor, 1)
		if err != nil {
			return nil, "", err
		}
		if before, err = uuid.Parse(key[0]); err != nil {
			return nil, "", refusal.Invalid("cursor", "cursor is not one that this list returned").Because(err)
		}
	}
	n := page(limit)
	rows, err := s.pool.Query(ctx, `
		SELECT `+columns+`
		FROM endpoint e
		WHERE owner = $1 AND id < $2 AND kind = 'home'
		ORDER BY id DESC
		LIMIT $3`, owner, before, n+1)
	if err != nil {
		return nil, "", fmt.Errorf("list endpoints: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Endpoint, error) { return scanned(row) })
	if err != nil {
		return nil, "", fmt.Errorf("list endpoints: %w", err)
	}
	if len(list) <= n {
		return list, "", nil
	}
	list = list[:n]
	return list, postgres.EncodeCursor(bind, list[n-1].ID.String()), nil
}

// Get returns one of the owner's endpoints, of either kind; refusal.NotFound.
func (s *Store) Get(ctx context.Context, owner, id uuid.UUID) (Endpoint, error) {
	e, err := scanned(s.pool.QueryRow(ctx, `SELECT `+columns+` FROM endpoint e WHERE owner = $1 AND id = $2`, owner, id))
	if none(err) {
		return Endpoint{}, errNone
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("get endpoint: %w", err)
	}
	return e, nil
}

// NarrowHome takes queues and tools away; nil leaves them. refusal.Conflict when
// the endpoint is over, refusal.InvalidArgument when it would become wider.
func (s *Store) NarrowHome(ctx context.Context, owner, id uuid.UUID, queues, tools []string) (Endpoint, error) {
	if queues == nil && tools == nil {
		return Endpoint{}, refusal.Invalid("queues", "say which queues or verbs are left")
	}
	return s.changeHome(ctx, owner, id, "endpoint.narrowed", func(_ pgx.Tx, e *Endpoint) error {
		if over(e.State) {
			return errOver(e.State)
		}
		var err error
		if e.Scope.Queues, err = queueList(queues, e.Scope.Queues); err != nil {
			return err
		}
		if tools == nil {
			return nil
		}
		among := e.Tools
		if among == nil {
			among = homeTools
		}
		e.Tools, err = toolList(tools, among)
		return err
	})
}

// RotateHome takes back the static credential and shows a new one, this once.
func (s *Store) RotateHome(ctx context.Context, owner, id uuid.UUID) (e Endpoint, credential string, err error) {
	e, err = s.changeHome(ctx, owner, id, "endpoint.rotated", func(tx pgx.Tx, e *Endpoint) error {
		if over(e.State) {
			return errOver(e.State)
		}
		if _, err := tx.Exec(ctx, `DELETE FROM endpoint_token WHERE owner = $1 AND endpoint_id = $2 AND kind = 'static'`, owner, id); err != nil {
			return err
		}
		credential, err = vendStatic(ctx, tx, *e)
		return err
	})
	if err != nil {
		return Endpoint{}, "", err
	}
	return e, credential, nil
}

// PauseHome makes an active endpoint answer like none; refusal.Conflict when it
// is not active.
func (s *Store) PauseHome(ctx context.Context, owner, id uuid.UUID) (Endpoint, error) {
	return s.turnHome(ctx, owner, id, "endpoint.paused", Paused, Active)
}

// ResumeHome restores exactly what was paused; refusal.Conflict when it is not.
func (s *Store) ResumeHome(ctx context.Context, owner, id uuid.UUID) (Endpoint, error) {
	return s.turnHome(ctx, owner, id, "endpoint.resumed", Active, Paused)
}

// RevokeHome ends an endpoint for ever; refusal.Conflict when it has ended.
func (s *Store) RevokeHome(ctx context.Context, owner, id uuid.UUID) (Endpoint, error) {
	return s.turnHome(ctx, owner, id, "endpoint.revoked", Revoked, Active, Paused)
}

func (s *Store) turnHome(ctx context.Context, owner, id uuid.UUID, kind string, to State, from ...State) (Endpoint, error) {
	return s.changeHome(ctx, owner, id, kind, func(_ pgx.Tx, e *Endpoint) error {
		if !slices.Contains(from, e.State) {
			return errOver(e.State)
		}
		e.State = to
		return nil
	})
}

// changeHome changes a locked home endpoint, writes it as the next version, and
// records it.
func (s *Store) changeHome(ctx context.Context, owner, id uuid.UUID, kind string, change func(tx pgx.Tx, e *Endpoint) error) (Endpoint, error) {
	var e Endpoint
	err := s.in(ctx, kind, func(tx pgx.Tx) error {
		var err error
		if e, _, err = locked(ctx, tx, owner, id, Home); err != nil {
			return err
		}
		if err := change(tx, &e); err != nil {
			return err
		}
		if err := write(ctx, tx, &e); err != nil {
			return err
		}
		return s.record(ctx, tx, kind, byHuman(owner), e, map[string]any{"queues": e.Scope.Queues, "version": e.Version})
	})
	if err != nil {
		return Endpoint{}, err
	}
	s.changed(owner, id)
	return e, nil
}

func over(state State) bool { return state != Active && state != Paused }

func errOver(state State) error { return refusal.New(refusal.Conflict, "the endpoint is %s", state) }
