package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/refusal"
)

// Holder is somebody who can open an endpoint now, as shown to owner or
// requester (which clients hold tokens).
type Holder struct {
	ID        uuid.UUID
	Client    string // client id or key thumbprint
	Kind      string // key, code, static
	CreatedAt time.Time
	ExpiresAt time.Time
	LastUsed  *time.Time // to the minute
}

// Holders lists who can open the endpoint now, newest first: its static
// credential, live tokens of keys, clients of the code flow with all their
// tokens as one.
func (s *Store) Holders(ctx context.Context, owner, endpoint uuid.UUID) ([]Holder, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT holder, client, kind, created_at, expires_at, used_at
		FROM endpoint_token
		WHERE owner = $1 AND endpoint_id = $2 AND kind <> 'code' AND expires_at > clock_timestamp()
		UNION ALL
		SELECT a.id, a.client, 'code', a.created_at, a.expires_at, greatest(
			a.redeemed_at,
			(SELECT max(used_at) FROM endpoint_refresh WHERE authorization_id = a.id),
			(SELECT max(used_at) FROM endpoint_token WHERE authorization_id = a.id))
		FROM endpoint_authorization a
		WHERE a.owner = $1 AND a.endpoint_id = $2 AND a.redeemed_at IS NOT NULL AND a.expires_at > clock_timestamp()
			AND EXISTS (SELECT FROM endpoint_refresh WHERE authorization_id = a.id AND used_at IS NULL AND expires_at > clock_timestamp())
		ORDER BY created_at DESC, holder DESC
		LIMIT 1000`, owner, endpoint)
	if err != nil {
		return nil, fmt.Errorf("list holders: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Holder, error) {
		var h Holder
		err := row.Scan(&h.ID, &h.Client, &h.Kind, &h.CreatedAt, &h.ExpiresAt, &h.LastUsed)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("list holders: %w", err)
	}
	return list, nil
}

// RevokeHolder takes back what a holder has; refusal.NotFound when there is no
// such holder. An agent's key can fetch a new token: to stop it, pause or revoke
// the endpoint. A client of the code flow has to ask the human again.
func (s *Store) RevokeHolder(ctx context.Context, owner, endpoint, holder uuid.UUID) error {
	err := s.in(ctx, "revoke a holder", func(tx pgx.Tx) error {
		// The endpoint first: whatever locks both does it in this order.
		e, err := bump(ctx, tx, owner, endpoint)
		if err != nil {
			return err
		}
		tokens, err := tx.Exec(ctx, `
			DELETE FROM endpoint_token WHERE owner = $1 AND endpoint_id = $2 AND holder = $3 AND kind <> 'code'`, owner, endpoint, holder)
		if err != nil {
			return err
		}
		gone, err := deleteAuthorization(ctx, tx, `id = $1 AND owner = $2 AND endpoint_id = $3`, holder, owner, endpoint)
		if err != nil {
			return err
		}
		if tokens.RowsAffected() == 0 && !gone {
			return refusal.New(refusal.NotFound, "there is no such holder")
		}
		return s.record(ctx, tx, "holder.revoked", byHuman(owner), e, map[string]any{"holder": holder})
	})
	if err != nil {
		return err
	}
	s.changed(owner, endpoint)
	return nil
}

// deleteAuthorization deletes the authorization that the condition names, all
// its tokens, and the consent that it rested on.
func deleteAuthorization(ctx context.Context, tx pgx.Tx, where string, args ...any) (gone bool, err error) {
	rows, err := tx.Query(ctx, `
		WITH a AS (DELETE FROM endpoint_authorization WHERE `+where+` RETURNING human, client, owner, endpoint_id, persona)
		SELECT human, client, coalesce(endpoint_id::text, persona) FROM a`, args...)
	if err != nil {
		return false, err
	}
	type consent struct {
		Human         uuid.UUID
		Client, Where string
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[consent])
	if err != nil {
		return false, err
	}
	for _, c := range list {
		// The resource's URL ends in the endpoint's id or the persona's slug.
		if _, err := tx.Exec(ctx, `
			DELETE FROM endpoint_consent WHERE human = $1 AND client = $2 AND right(resource, length($3) + 1) = '/' || $3`, c.Human, c.Client, c.Where); err != nil {
			return false, err
		}
	}
	return len(list) > 0, nil
}

// endAuthorization ends an authorization and everything under it.
func (s *Store) endAuthorization(ctx context.Context, id uuid.UUID, kind, actor string) error {
	var owner, endpoint *uuid.UUID
	err := s.in(ctx, "end an authorization", func(tx pgx.Tx) error {
		var human uuid.UUID
		err := tx.QueryRow(ctx, `SELECT human, owner, endpoint_id FROM endpoint_authorization WHERE id = $1`, id).Scan(&human, &owner, &endpoint)
		if none(err) {
			return nil
		}
		if err != nil {
			return err
		}
		event := Endpoint{Owner: human}
		if endpoint != nil {
			if event, err = bump(ctx, tx, *owner, *endpoint); err != nil {
				return err
			}
		}
		gone, err := deleteAuthorization(ctx, tx, `id = $1`, id)
		if err != nil || !gone {
			return err
		}
		return s.record(ctx, tx, kind, actor, event, map[string]any{"authorization": id})
	})
	if err != nil {
		return err
	}
	if endpoint != nil {
		s.changed(*owner, *endpoint)
	}
	return nil
}

// RevokeToken is RFC 7009: whoever has a token may take it back. A refresh token
// takes its whole authorization with it. Unknown tokens are no error.
func (s *Store) RevokeToken(ctx context.Context, token string) error {
	switch {
	case plausible(token, refreshPrefix):
		var of uuid.UUID
		err := s.pool.QueryRow(ctx, `SELECT authorization_id FROM endpoint_refresh WHERE id = $1`, secretID(token)).Scan(&of)
		if none(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("revoke a token: %w", err)
		}
		return s.endAuthorization(ctx, of, "authorization.revoked", "system")
	case plausible(token, accessPrefix, staticPrefix):
		return s.revokeAccess(ctx, secretID(token))
	}
	return nil
}

func (s *Store) revokeAccess(ctx context.Context, token []byte) error {
	var owner, endpoint *uuid.UUID
	err := s.in(ctx, "revoke a token", func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `SELECT owner, endpoint_id FROM endpoint_token WHERE id = $1`, token).Scan(&owner, &endpoint)
		if none(err) {
			return nil
		}
		if err != nil {
			return err
		}
		var e Endpoint
		if endpoint != nil {
			if e, err = bump(ctx, tx, *owner, *endpoint); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, `DELETE FROM endpoint_token WHERE id = $1`, token)
		if err != nil || endpoint == nil || tag.RowsAffected() == 0 {
			return err
		}
		return s.record(ctx, tx, "token.revoked", "endpoint:"+e.ID.String(), e, nil)
	})
	if err != nil {
		return err
	}
	if endpoint != nil {
		s.changed(*owner, *endpoint)
	}
	return nil
}
