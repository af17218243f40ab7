package endpoint

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Erase removes a human's endpoints with all their tokens, and what the human
// allowed clients at other people's, in the transaction that erases the account;
// package friend has ended the grants. An endpoint that is gone answers like one
// that was revoked. The function that it returns is to be called after the commit.
func (s *Store) Erase(ctx context.Context, tx pgx.Tx, owner uuid.UUID, identity []byte) (after func(), err error) {
	rows, err := tx.Query(ctx, `SELECT id FROM endpoint WHERE owner = $1 ORDER BY id FOR UPDATE`, owner)
	if err != nil {
		return nil, fmt.Errorf("hold the endpoints: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("hold the endpoints: %w", err)
	}
	for _, erase := range []struct {
		sql  string
		args []any
	}{
		{`DELETE FROM endpoint_token WHERE owner = $1 OR identity = $2`, []any{owner, identity}},
		{`DELETE FROM endpoint_authorization WHERE owner = $1 OR human = $1 OR identity = $2`, []any{owner, identity}},
		{`DELETE FROM endpoint_consent WHERE human = $1`, []any{owner}},
		{`DELETE FROM endpoint_key_persona WHERE identity = $1`, []any{identity}},
		{`DELETE FROM endpoint_route WHERE owner = $1`, []any{owner}},
		{`DELETE FROM endpoint WHERE owner = $1`, []any{owner}},
		{`UPDATE endpoint SET identity_text = '(erased)', calls_itself = '' WHERE identity = $1`, []any{identity}},
	} {
		if _, err := tx.Exec(ctx, erase.sql, erase.args...); err != nil {
			return nil, fmt.Errorf("erase endpoints: %w", err)
		}
	}
	return func() {
		for _, id := range ids {
			s.changed(owner, id)
		}
	}, nil
}
