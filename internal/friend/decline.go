package friend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

// Refusal is how a human declines.
type Refusal struct {
	Note        string
	MayAskAgain *bool // nil or false: after 7 days; true: at once
	Block       bool
}

// Decline refuses a pending request. With Block, the identity's later requests
// to this owner are refused, and its other pending ones are declined too. Grants
// that it has stay as they are: ending those is Revoke's.
func (s *Store) Decline(ctx context.Context, owner, id uuid.UUID, d Refusal) (Request, error) {
	if err := checkNote(d.Note); err != nil {
		return Request{}, err
	}
	var r Request
	var others []Request
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		var err error
		if r, err = s.lockIncoming(ctx, tx, owner, id); err != nil {
			return err
		}
		if err := s.declineOne(ctx, tx, r, d); err != nil {
			return err
		}
		if others = nil; d.Block {
			if others, err = s.block(ctx, tx, r, d.Note); err != nil {
				return err
			}
		}
		r, err = s.request(ctx, tx, `WHERE r.owner = $1 AND r.id = $2`, owner, id)
		return err
	})
	if err != nil {
		return Request{}, err
	}
	for _, o := range others {
		s.changed(o.Owner, o.ID)
	}
	s.changed(owner, id)
	return r, nil
}

func (s *Store) declineOne(ctx context.Context, tx pgx.Tx, r Request, d Refusal) error {
	// As offered at the decision; a persona that is gone offers nothing.
	p, err := s.o.Personas.Hold(ctx, tx, r.Owner, r.PersonaID)
	if err != nil && !errors.Is(err, refusal.New(refusal.NotFound, "")) {
		return fmt.Errorf("read the persona of a friend request: %w", err)
	}
	again := d.MayAskAgain != nil && *d.MayAskAgain
	if _, err := tx.Exec(ctx, `
		UPDATE friend_request
		SET state = 'declined', note = $3, may_ask_again = $4, offered = $5, offer_version = $6,
		    decided_at = clock_timestamp(), updated_at = clock_timestamp()
		WHERE owner = $1 AND id = $2`, r.Owner, r.ID, d.Note, again, notNil(p.Offers), p.OfferVersion); err != nil {
		return fmt.Errorf("decline the friend request: %w", err)
	}
	if err := s.finishConsent(ctx, tx, r, todo.Done, Declined, uuid.Nil); err != nil {
		return err
	}
	return s.record(ctx, tx, activity.Event{
		Owner: r.Owner, Kind: "friend_request.declined", Actor: actorHuman(r.Owner), Object: "friend_request", ObjectID: r.ID,
		Detail:   map[string]any{"persona": r.Persona, "may_ask_again": again, "block": d.Block},
		Personal: personal(r.Identity, r.From, "note", d.Note),
	})
}

// Block keeps an identity from asking an owner.
type Block struct {
	ID        uuid.UUID
	Identity  Identity
	Reason    string
	CreatedAt time.Time
}

// block blocks the identity of r and declines what else it has pending; those
// are returned.
func (s *Store) block(ctx context.Context, tx pgx.Tx, r Request, reason string) ([]Request, error) {
	// Whatever of theirs is on its way comes first and is then among the others.
	if err := lock(ctx, tx, "identity", r.Identity.Hash); err != nil {
		return nil, err
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO friend_block (owner, id, identity, issuer, subject, email, name, reason, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp())
		ON CONFLICT (owner, identity) DO NOTHING`,
		r.Owner, id, r.Identity.Hash, r.Identity.Issuer, r.Identity.Subject, r.Identity.Email, r.Identity.Name, reason); err != nil {
		return nil, fmt.Errorf("block the identity: %w", err)
	}
	if err := s.record(ctx, tx, activity.Event{
		Owner: r.Owner, Kind: "identity.blocked", Actor: actorHuman(r.Owner), Object: "block", ObjectID: id,
		Detail: map[string]any{"friend_request": r.ID}, Personal: personal(r.Identity, From{}),
	}); err != nil {
		return nil, err
	}
	others, err := s.requests(ctx, tx, `
		WHERE r.owner = $1 AND r.identity = $2 AND r.state = 'pending' AND r.expires_at > clock_timestamp()
		ORDER BY r.id FOR UPDATE OF r`, r.Owner, r.Identity.Hash)
	if err != nil {
		return nil, err
	}
	for _, o := range others {
		if err := s.declineOne(ctx, tx, o, Refusal{}); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// Blocks lists whom the owner has blocked, newest first.
func (s *Store) Blocks(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Block, string, error) {
	bind := postgres.BindCursor("blocks", owner.String())
	before, err := idCursor(bind, cursor)
	if err != nil {
		return nil, "", err
	}
	limit = pageSize(limit)
	rows, err := s.pool.Query(ctx, `
		SELECT id, identity, issuer, subject, email, name, reason, created_at FROM friend_block
		WHERE owner = $1 AND ($2::uuid IS NULL OR id < $2)
		ORDER BY id DESC LIMIT $3`, owner, before, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("read blocks: %w", err)
	}
	bs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Block, err error) {
		err = row.Scan(&b.ID, &b.Identity.Hash, &b.Identity.Issuer, &b.Identity.Subject, &b.Identity.Email, &b.Identity.Name, &b.Reason, &b.CreatedAt)
		utc(&b.CreatedAt)
		return b, err
	})
	if err != nil {
		return nil, "", fmt.Errorf("read blocks: %w", err)
	}
	next := ""
	if len(bs) > limit {
		bs = bs[:limit]
		next = postgres.EncodeCursor(bind, bs[limit-1].ID.String())
	}
	return bs, next, nil
}

// Unblock lets an identity ask again, after the cool-down of its last refusal.
func (s *Store) Unblock(ctx context.Context, owner, id uuid.UUID) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM friend_block WHERE owner = $1 AND id = $2`, owner, id)
		if err != nil {
			return fmt.Errorf("unblock: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return refusal.New(refusal.NotFound, "no such block")
		}
		return s.record(ctx, tx, activity.Event{
			Owner: owner, Kind: "identity.unblocked", Actor: actorHuman(owner), Object: "block", ObjectID: id,
		})
	})
}
