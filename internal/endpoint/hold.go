package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// holdMost is the longest that a Hold keeps its endpoint from changing.
const holdMost = 10 * time.Second

// Hold calls do while the endpoint cannot change, for writes of rooms that know
// no endpoints: what do has committed was committed before a revocation that
// comes meanwhile answers. ErrStale when the caller is not what the database has;
// any other error is do's or ours.
//
// do takes a connection of its own beside the one that holds. So that holders
// cannot wait for each other's second one, there is one at a time in a process:
// it is for what happens rarely.
func (s *Store) Hold(ctx context.Context, c Caller, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, holdMost)
	defer cancel()
	select {
	case s.held <- struct{}{}:
		defer func() { <-s.held }()
	case <-ctx.Done():
		return fmt.Errorf("hold endpoint %s: %w", c.Endpoint.ID, ctx.Err())
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The clock is read after the lock: waiting for it may take long.
		var version int64
		err := tx.QueryRow(ctx, `SELECT version FROM endpoint WHERE owner = $1 AND id = $2 FOR SHARE`, c.Endpoint.Owner, c.Endpoint.ID).Scan(&version)
		if none(err) {
			return ErrStale
		}
		if err != nil {
			return fmt.Errorf("hold endpoint %s: %w", c.Endpoint.ID, err)
		}
		var ended bool
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp() >= $1`, c.Until).Scan(&ended); err != nil {
			return fmt.Errorf("hold endpoint %s: %w", c.Endpoint.ID, err)
		}
		if ended || version != c.Endpoint.Version {
			return ErrStale
		}
		return do(ctx)
	})
}
