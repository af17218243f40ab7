package activity

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Erase removes the personal data of an owner's whole record, and of other
// owners' events that one of the actors caused: those of the same person as
// others saw it. Events and their chain stay, and so do verifications.
func Erase(ctx context.Context, tx pgx.Tx, owner uuid.UUID, actors ...string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM activity_personal WHERE owner = $1`, owner); err != nil {
		return fmt.Errorf("erase the personal data of %s: %w", owner, err)
	}
	if len(actors) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		DELETE FROM activity_personal p
		USING activity e
		WHERE e.owner = p.owner AND e.id = p.event_id AND e.actor = ANY ($1)`, actors)
	if err != nil {
		return fmt.Errorf("erase the personal data of %s elsewhere: %w", owner, err)
	}
	return nil
}

// EraseAbout removes values of these names from an owner's events about the objects,
// or about grants among them: what the record of one person says of another, whose
// account is erased. What the owner said themselves has another name and stays.
func EraseAbout(ctx context.Context, tx pgx.Tx, owner uuid.UUID, names []string, objects ...uuid.UUID) error {
	_, err := tx.Exec(ctx, `
		DELETE FROM activity_personal p
		USING (
			SELECT e.id FROM activity e WHERE e.owner = $1 AND e.object_id = ANY ($2)
			UNION
			SELECT e.id FROM activity e WHERE e.owner = $1 AND e.grant_id = ANY ($2)
		) e
		WHERE p.owner = $1 AND p.event_id = e.id AND p.name = ANY ($3)`, owner, objects, names)
	if err != nil {
		return fmt.Errorf("erase the personal data in events of %s: %w", owner, err)
	}
	return nil
}
