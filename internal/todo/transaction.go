package todo

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"switchboard/internal/postgres"
)

// transactionTime bounds a transaction, a batch as well.
const transactionTime = 30 * time.Second

// inTransaction runs f in a transaction and commits. Deadlocks and serialization
// failures are tried again, so f must set whatever it writes outside anew. Like a
// batch, it does not end with the caller's context: nobody is told of half a change.
func (s *Store) inTransaction(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transactionTime)
	defer cancel()
	for try := 0; ; try++ {
		err := pgx.BeginFunc(ctx, s.writers, func(tx pgx.Tx) error { return f(ctx, tx) })
		if err == nil {
			return nil
		}
		if !postgres.Retryable(err) || try >= 8 {
			return unavailable(err)
		}
	}
}

// settleMany runs a statement that ends with settle and returns the moves.
func settleMany(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]move, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("settle todos: %w", err)
	}
	var moves []move
	err = scanMoves(rows, func(_ int, m move) error {
		moves = append(moves, m)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("settle todos: %w", err)
	}
	return moves, nil
}
