package persona

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Erase removes a human's personas and agents, in the transaction that erases the
// account. Nobody else may ever have their slugs: people and agents remember them.
func (s *Store) Erase(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error {
	for _, statement := range []string{
		`SELECT FROM persona WHERE owner = $1 ORDER BY id FOR UPDATE`, // no request is stored for them from here on
		`DELETE FROM persona WHERE owner = $1`,
		`DELETE FROM agent WHERE owner = $1`,
		`UPDATE persona_slug SET persona_id = NULL, listed = false WHERE owner = $1`,
	} {
		if _, err := tx.Exec(ctx, statement, owner); err != nil {
			return fmt.Errorf("erase personas: %w", err)
		}
	}
	return nil
}
