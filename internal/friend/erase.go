package friend

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
)

// erasedSubject stands where somebody's subject stood; no issuer's subject has parentheses of ours.
const erasedSubject = "(erased)"

// Erase ends everything between a human and others, in the transaction that erases
// the account: grants that they gave are revoked and requests to them declined, so
// that friends see what they would have seen anyway; grants that they hold are left
// and requests of theirs withdrawn. What others decided stays theirs, without name,
// address and words of the human; what the human kept about others goes. The
// function that it returns is to be called after the commit.
func (s *Store) Erase(ctx context.Context, tx pgx.Tx, owner uuid.UUID, identity []byte) (after func(), err error) {
	// Requests first: one that is just being approved is waited for, and its grant is
	// among those that are then found.
	requests, err := s.requests(ctx, tx, `
		WHERE (r.owner = $1 OR r.identity = $2) AND r.state = 'pending' ORDER BY r.owner, r.id FOR UPDATE OF r`, owner, identity)
	if err != nil {
		return nil, fmt.Errorf("find the requests: %w", err)
	}
	again := true
	for _, r := range requests {
		if r.Owner == owner {
			err = s.declineOne(ctx, tx, r, Refusal{MayAskAgain: &again})
		} else if err = s.withdrawPending(ctx, tx, r); err == nil {
			_, err = tx.Exec(ctx, `
				UPDATE friend_request SET state = 'withdrawn', decided_at = clock_timestamp(), updated_at = clock_timestamp()
				WHERE owner = $1 AND id = $2`, r.Owner, r.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("end friend request %s: %w", r.ID, err)
		}
	}
	now, err := clock(ctx, tx)
	if err != nil {
		return nil, err
	}
	grants, err := s.grants(ctx, tx, `
		WHERE (g.owner = $1 OR g.identity = $2) AND g.state IN ('active', 'paused') ORDER BY g.owner, g.id FOR UPDATE OF g`, owner, identity)
	if err != nil {
		return nil, fmt.Errorf("find the grants: %w", err)
	}
	byEndpoint(grants)
	for _, g := range grants {
		c := change{kind: "grant.revoked", actor: actorHuman(owner), state: GrantRevoked, endpoint: endpoint.Revoked, cancel: "the grant was revoked", detail: map[string]any{"finish": false}}
		if g.Owner != owner {
			c = change{kind: "grant.left", actor: actorIdentity(identity), state: GrantEnded, endpoint: endpoint.Ended, cancel: "the friend left"}
		}
		if err := s.apply(ctx, tx, g, c, now); err != nil {
			return nil, err
		}
	}
	if err := s.eraseElsewhere(ctx, tx, owner, identity); err != nil {
		return nil, err
	}
	for _, scrub := range []struct {
		sql  string
		args []any
	}{
		{`DELETE FROM friend_evidence e USING friend_request r
			WHERE r.owner = e.owner AND r.id = e.request_id AND (r.owner = $1 OR r.identity = $2)`, []any{owner, identity}},
		{`DELETE FROM friend_block WHERE owner = $1`, []any{owner}},
		{`DELETE FROM friend_sign_in WHERE owner = $1 OR identity = $2`, []any{owner, identity}},
		{`UPDATE friend_request SET note = '' WHERE owner = $1 AND note <> ''`, []any{owner}},
		{`UPDATE friend_request SET subject = $2, email = '', name = '', from_name = '', from_card = '', reason = '', part = '' WHERE identity = $1`, []any{identity, erasedSubject}},
		{`UPDATE friend_grant SET subject = $2, email = '', name = '', from_name = '', from_card = '' WHERE identity = $1`, []any{identity, erasedSubject}},
		{`UPDATE friend_block SET subject = $2, email = '', name = '' WHERE identity = $1`, []any{identity, erasedSubject}},
	} {
		if _, err := tx.Exec(ctx, scrub.sql, scrub.args...); err != nil {
			return nil, fmt.Errorf("erase from friend requests and grants: %w", err)
		}
	}
	return func() {
		for _, g := range grants {
			s.afterChange(g)
		}
		for _, r := range requests {
			s.changed(r.Owner, r.ID)
		}
	}, nil
}

// eraseElsewhere takes the human out of what others keep besides requests and grants:
// titles of consent todos, and what their record of activity says of the human.
func (s *Store) eraseElsewhere(ctx context.Context, tx pgx.Tx, owner uuid.UUID, identity []byte) error {
	requests, err := s.requests(ctx, tx, `WHERE r.identity = $1 AND r.owner <> $2`, identity, owner)
	if err != nil {
		return fmt.Errorf("find the requests to others: %w", err)
	}
	for _, r := range requests {
		if err := s.o.Todos.RetitleConsent(ctx, tx, r.Owner, r.TodoID, "Friend request to "+r.Persona+" from an erased account"); err != nil {
			return fmt.Errorf("erase from a consent todo: %w", err)
		}
	}
	rows, err := tx.Query(ctx, `
		SELECT owner, id FROM friend_request WHERE identity = $1 AND owner <> $2
		UNION ALL SELECT owner, id FROM friend_grant WHERE identity = $1 AND owner <> $2
		UNION ALL SELECT owner, id FROM friend_block WHERE identity = $1 AND owner <> $2`, identity, owner)
	if err != nil {
		return fmt.Errorf("find what others keep: %w", err)
	}
	about := map[uuid.UUID][]uuid.UUID{}
	var other, id uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&other, &id}, func() error {
		about[other] = append(about[other], id)
		return nil
	}); err != nil {
		return fmt.Errorf("find what others keep: %w", err)
	}
	for other, ids := range about {
		if err := activity.EraseAbout(ctx, tx, other, personalNames, ids...); err != nil {
			return err
		}
	}
	return nil
}

// personalNames are those that personal gives to what is the requester's own.
var personalNames = []string{"issuer", "subject", "email", "name", "calls_itself", "card", "reason"}
