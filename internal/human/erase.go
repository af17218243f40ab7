package human

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/postgres"
)

// Eraser removes what one package keeps of a human, in the transaction that erases
// the account. after is called once that is committed; it may be nil.
type Eraser func(ctx context.Context, tx pgx.Tx, h Human) (after func(), err error)

// eraseAttempts bounds how often an erasure is run again after a deadlock: it locks
// across packages, in an order that is not everybody's.
const eraseAttempts = 5

// Erase removes a human and all that Config.Erase knows of, or nothing:
// refusal.NotFound when there is no such human. Sessions and tokens end with it. The
// same person may sign in again, as somebody new.
func (s *Store) Erase(ctx context.Context, id uuid.UUID) error {
	var afters []func()
	var err error
	for range eraseAttempts {
		afters = nil
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			h, err := s.scanHuman(tx.QueryRow(ctx, `SELECT `+humanColumns+` FROM human h WHERE h.id = $1 FOR UPDATE`, id))
			if errors.Is(err, pgx.ErrNoRows) {
				return errNobody
			}
			if err != nil {
				return err
			}
			for _, erase := range s.config.Erase {
				after, err := erase(ctx, tx, h)
				if err != nil {
					return err
				}
				if after != nil {
					afters = append(afters, after)
				}
			}
			return s.erase(ctx, tx, id)
		})
		if !postgres.Retryable(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("erase human %s: %w", id, err)
	}
	for _, after := range afters {
		after()
	}
	return nil
}

// erase removes what this package keeps.
func (s *Store) erase(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	if err := s.config.Record(ctx, tx, activity.Event{
		Owner: id, Kind: "human.erased", Actor: "human:" + id.String(), Object: "human", ObjectID: id,
	}); err != nil {
		return err
	}
	for _, table := range []string{"session_token", "session", "api_token_hash", "api_token", "form_once", "human_identity"} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE human = $1`, id); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `DELETE FROM human WHERE id = $1`, id)
	return err
}
