package friend

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Dependents says what of this package lives on an agent's persona; "" when
// nothing does, or when persona is zero, since an agent with personas is in use
// anyway. It is a persona.Dependents, and no method, because the store of
// personas is made before that of friends.
func Dependents(ctx context.Context, tx pgx.Tx, owner, _, persona uuid.UUID) (string, error) {
	if persona == uuid.Nil {
		return "", nil
	}
	var grants, requests bool
	err := tx.QueryRow(ctx, `
		SELECT
			EXISTS (SELECT FROM friend_grant
			        WHERE owner = $1 AND persona_id = $2 AND state IN ('active', 'paused') AND expires_at > clock_timestamp()),
			EXISTS (SELECT FROM friend_request
			        WHERE owner = $1 AND persona_id = $2 AND state = 'pending' AND expires_at > clock_timestamp())`,
		owner, persona).Scan(&grants, &requests)
	switch {
	case err != nil:
		return "", fmt.Errorf("look for grants and friend requests: %w", err)
	case grants:
		return "live grants", nil
	case requests:
		return "friend requests to decide", nil
	}
	return "", nil
}
