package endpoint

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// columns shows a row as it is now: what has run out is expired, whatever the
// row says.
const columns = `e.id, e.owner, e.kind, e.agent_id, e.persona_id, e.persona, e.grant_id, e.line, e.scope, e.tools, e.identity, e.identity_text,
	e.calls_itself, e.key_thumbprint,
	CASE WHEN e.state IN ('active', 'paused') AND e.expires_at <= clock_timestamp() THEN 'expired' ELSE e.state END,
	e.version, e.created_at, e.expires_at`

// scanned reads columns, and what follows them into more.
func scanned(row pgx.Row, more ...any) (Endpoint, error) {
	var e Endpoint
	var grant *uuid.UUID
	var sc json.RawMessage
	to := append([]any{
		&e.ID, &e.Owner, &e.Kind, &e.AgentID, &e.PersonaID, &e.Persona, &grant, &e.Line, &sc, &e.Tools, &e.Identity, &e.IdentityText,
		&e.CallsItself, &e.KeyThumbprint, &e.State, &e.Version, &e.CreatedAt, &e.ExpiresAt,
	}, more...)
	if err := row.Scan(to...); err != nil {
		return Endpoint{}, err
	}
	if grant != nil {
		e.GrantID = *grant
	}
	if err := json.Unmarshal(sc, &e.Scope); err != nil {
		return Endpoint{}, fmt.Errorf("stored scope of endpoint %s: %w", e.ID, err)
	}
	return e, nil
}

// locked returns the row, locked until tx ends, and the state that is stored,
// which time may have overtaken. errNone when the owner has no such endpoint of
// the kind.
func locked(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID, kind Kind) (e Endpoint, stored State, err error) {
	e, err = scanned(tx.QueryRow(ctx, `
		SELECT `+columns+`, e.state
		FROM endpoint e
		WHERE owner = $1 AND id = $2 AND kind = $3
		FOR NO KEY UPDATE`, owner, id, kind), &stored)
	if none(err) {
		return Endpoint{}, "", errNone
	}
	return e, stored, err
}

// write stores what may change of a locked row, as the next version.
func write(ctx context.Context, tx pgx.Tx, e *Endpoint) error {
	sc, err := json.Marshal(e.Scope)
	if err != nil {
		return fmt.Errorf("encode scope: %w", err)
	}
	*e, err = scanned(tx.QueryRow(ctx, `
		UPDATE endpoint e
		SET scope = $3, tools = $4, state = $5, expires_at = $6, version = version + 1
		WHERE owner = $1 AND id = $2
		RETURNING `+columns, e.Owner, e.ID, sc, e.Tools, e.State, e.ExpiresAt))
	return err
}

// bump makes the version one more, because something that opens the endpoint is
// gone, and returns the endpoint.
func bump(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID) (Endpoint, error) {
	e, err := scanned(tx.QueryRow(ctx, `
		UPDATE endpoint e SET version = version + 1 WHERE owner = $1 AND id = $2 RETURNING `+columns, owner, id))
	if none(err) {
		return Endpoint{}, errNone
	}
	return e, err
}

func insert(ctx context.Context, tx pgx.Tx, e Endpoint, lifetimeDays *int64) (Endpoint, error) {
	sc, err := json.Marshal(e.Scope)
	if err != nil {
		return Endpoint{}, fmt.Errorf("encode scope: %w", err)
	}
	var grant *uuid.UUID
	if e.GrantID != uuid.Nil {
		grant = &e.GrantID
	}
	if _, err := tx.Exec(ctx, `INSERT INTO endpoint_route (id, owner) VALUES ($1, $2)`, e.ID, e.Owner); err != nil {
		return Endpoint{}, err
	}
	var until any
	if lifetimeDays == nil {
		until = e.ExpiresAt
	}
	return scanned(tx.QueryRow(ctx, `
		INSERT INTO endpoint AS e (owner, id, kind, agent_id, persona_id, persona, grant_id, line, scope, tools, identity,
			identity_text, calls_itself, key_thumbprint, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
			coalesce($15::timestamptz, clock_timestamp() + make_interval(days => $16::int)))
		RETURNING `+columns,
		e.Owner, e.ID, e.Kind, e.AgentID, e.PersonaID, e.Persona, grant, e.Line, sc, e.Tools, e.Identity,
		e.IdentityText, e.CallsItself, e.KeyThumbprint, until, lifetimeDays))
}
