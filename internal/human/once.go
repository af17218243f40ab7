package human

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"switchboard/internal/refusal"
)

// Once reports whether this is the first time that the human sends the form
// with this key, so that a form sent twice does nothing twice, on any replica.
// Keys are kept for a day; one that is no UUID is refusal.InvalidArgument.
func (s *Store) Once(ctx context.Context, human uuid.UUID, key string) (first bool, err error) {
	id, err := uuid.Parse(key)
	if err != nil {
		return false, refusal.Invalid("once", "the form is incomplete; load the page again")
	}
	tag, err := s.pool.Exec(ctx, `INSERT INTO form_once (human, key) VALUES ($1, $2) ON CONFLICT DO NOTHING`, human, id)
	if err != nil {
		return false, fmt.Errorf("note form: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// Forget takes a key back, for a form that was refused and will be sent again.
func (s *Store) Forget(ctx context.Context, human uuid.UUID, key string) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM form_once WHERE human = $1 AND key::text = lower($2)`, human, key); err != nil {
		return fmt.Errorf("forget form: %w", err)
	}
	return nil
}
