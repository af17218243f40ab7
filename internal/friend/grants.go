package friend

import (
	"context"
	"encoding/hex"

	"github.com/google/uuid"

	"switchboard/internal/postgres"
)

// Grants lists what the owner has granted, newest first.
func (s *Store) Grants(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Grant, string, error) {
	return s.listGrants(ctx, postgres.BindCursor("grants in", owner.String()), `g.owner = $1`, owner, cursor, limit)
}

// GrantsOut lists what others on this instance have granted to the identity.
func (s *Store) GrantsOut(ctx context.Context, identity []byte, cursor string, limit int) ([]Grant, string, error) {
	return s.listGrants(ctx, postgres.BindCursor("grants out", hex.EncodeToString(identity)), `g.identity = $1`, identity, cursor, limit)
}

func (s *Store) listGrants(ctx context.Context, bind, where string, whose any, cursor string, limit int) ([]Grant, string, error) {
	before, err := idCursor(bind, cursor)
	if err != nil {
		return nil, "", err
	}
	limit = pageSize(limit)
	gs, err := s.grants(ctx, s.pool, `WHERE `+where+` AND ($2::uuid IS NULL OR g.id < $2) ORDER BY g.id DESC LIMIT $3`, whose, before, limit+1)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(gs) > limit {
		gs = gs[:limit]
		next = postgres.EncodeCursor(bind, gs[limit-1].ID.String())
	}
	return gs, next, nil
}

// Grant returns one grant of the owner; refusal.NotFound otherwise.
func (s *Store) Grant(ctx context.Context, owner, id uuid.UUID) (Grant, error) {
	return s.grant(ctx, s.pool, `WHERE g.owner = $1 AND g.id = $2`, owner, id)
}

// GrantOut returns one grant to the identity; refusal.NotFound otherwise.
func (s *Store) GrantOut(ctx context.Context, identity []byte, id uuid.UUID) (Grant, error) {
	return s.grant(ctx, s.pool, `WHERE g.identity = $1 AND g.id = $2`, identity, id)
}
