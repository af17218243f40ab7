package todo

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Erase removes a human's queues and every todo in them, whoever created it, in the
// transaction that erases the account; the endpoints that could write here have been
// locked and ended before. Call [Store.Woken] after the commit.
func (s *Store) Erase(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error {
	if _, err := tx.Exec(ctx, `SELECT FROM queue WHERE owner = $1 AND name = 'inbox' FOR UPDATE`, owner); err != nil { // see present
		return fmt.Errorf("erase todos: %w", err)
	}
	for _, table := range []string{
		"todo_live", "todo_timer", "todo_consent", "todo_claim", "todo_artifact", "todo_exchange", "todo_attempt", "todo_outcome", "todo_key", "todo", "queue",
	} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE owner = $1`, owner); err != nil {
			return fmt.Errorf("erase todos: %w", err)
		}
	}
	return nil
}

// RetitleConsent replaces the title of the consent todo of a request, open or ended,
// because it names somebody whose account is erased.
func (s *Store) RetitleConsent(ctx context.Context, tx pgx.Tx, owner, todo uuid.UUID, title string) error {
	if _, err := tx.Exec(ctx, `UPDATE todo SET title = $3 WHERE owner = $1 AND id = $2 AND kind = 'friend_request'`, owner, todo, title); err != nil {
		return fmt.Errorf("retitle consent todo %s: %w", todo, err)
	}
	return nil
}
