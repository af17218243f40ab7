package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/refusal"
)

// testsPerHour bounds tests, which cost the operator's mail server and somebody
// else's web server.
const testsPerHour = 10

// SendTest sends a test notification over every channel that the human has
// turned on; Status tells how it went. It is tried once. A human with no channel
// is refused with the reason (refusal.Conflict), too many tests are
// refusal.RateLimited.
func (s *Store) SendTest(ctx context.Context, to uuid.UUID) error {
	h, err := s.o.Humans.Get(ctx, to)
	if err != nil {
		return err
	}
	if s.address(h, email) == "" && s.address(h, webhook) == "" {
		return refusal.New(refusal.Conflict, "there is nowhere to send a test: %s, and %s", s.whyNot(h, email), s.whyNot(h, webhook))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make an id: %w", err)
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var tests int
		if err := tx.QueryRow(ctx, `
			SELECT count(*) FROM notification WHERE owner = $1 AND kind = $2 AND created_at > clock_timestamp() - interval '1 hour'`,
			to, kindTest).Scan(&tests); err != nil {
			return fmt.Errorf("count the tests: %w", err)
		}
		if tests >= testsPerHour {
			return refusal.New(refusal.RateLimited, "at most %d tests an hour are sent", testsPerHour).After(time.Hour)
		}
		return s.put(ctx, tx, notification{Owner: to, ID: id, Kind: kindTest, Side: owner})
	})
}
