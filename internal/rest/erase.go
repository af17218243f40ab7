package rest

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Erase removes the answers that are kept for a human's repeated requests, in the
// transaction that erases the account.
func Erase(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error {
	if _, err := tx.Exec(ctx, `DELETE FROM rest_replay WHERE owner = $1`, owner); err != nil {
		return fmt.Errorf("erase kept answers: %w", err)
	}
	return nil
}
