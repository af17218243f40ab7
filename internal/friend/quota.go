package friend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/persona"
	"switchboard/internal/refusal"
)

// Limits against spam (specs/protocol.md section 3).
const (
	identityPending = 5
	identityDaily   = 20
	personaPending  = 50
	rampFor         = 14 * day
	rampStart       = 0.1
	// retryPending is what a caller is told when only somebody's decision can
	// make room.
	retryPending = time.Hour
)

// standing is what row 12 looks at.
type standing struct {
	blocked         bool
	declinedAt      *time.Time
	mayAskAgain     bool
	pendingHere     bool
	keyGrant        *uuid.UUID // live grant of this key here, other than the superseded one
	supersededLives bool
	pending, today  int
	oldestToday     *time.Time
	personaPending  int
	issuerPending   int // of this issuer at this persona
	issuerSince     *time.Time
}

// admit is row 12: block, cool-down, one pending request, quotas, in this order.
// What supersedes names is looked at first: it is an argument.
func (s *Store) admit(ctx context.Context, tx pgx.Tx, now time.Time, a ask) error {
	st, err := readStanding(ctx, tx, now, a)
	if err != nil {
		return err
	}
	switch {
	case st.blocked:
		return refusal.New(refusal.Forbidden, "this persona takes no friend requests from you")
	case a.supersedes != uuid.Nil && !st.supersededLives:
		return refusal.Invalid("supersedes", "supersedes must name an active or paused grant of yours at this persona")
	case st.declinedAt != nil && !st.mayAskAgain && now.Sub(*st.declinedAt) < coolDown:
		return refusal.New(refusal.RateLimited, "your last request was declined; you may ask again 7 days after that").
			After(st.declinedAt.Add(coolDown).Sub(now))
	case st.pendingHere:
		return pendingHere()
	case st.keyGrant != nil:
		return refusal.New(refusal.Conflict, "this key already has a grant at this persona; name it in supersedes to replace it")
	}
	return s.checkQuota(st, now, a)
}

func pendingHere() *refusal.Error {
	return refusal.New(refusal.Conflict, "you have a friend request pending at this persona; withdraw it first")
}

func (s *Store) checkQuota(st standing, now time.Time, a ask) error {
	ramp := 1.0
	if a.entry.Ramp {
		ramp = rampStart
		if st.issuerSince != nil {
			ramp = min(1, rampStart+(1-rampStart)*float64(now.Sub(*st.issuerSince))/float64(rampFor))
		}
	}
	quota := func(full int) int { return max(1, int(math.Ceil(float64(full)*ramp-1e-9))) }
	share := personaPending
	if s.trusted(a.persona) > 1 {
		share = personaPending / 2
	}
	switch {
	case st.pending >= quota(identityPending):
		return refusal.New(refusal.RateLimited, "you have too many friend requests pending here").After(retryPending)
	case st.today >= quota(identityDaily):
		return refusal.New(refusal.RateLimited, "you have sent too many friend requests today").After(st.oldestToday.Add(day).Sub(now))
	case st.personaPending >= personaPending, st.issuerPending >= quota(share):
		return refusal.New(refusal.RateLimited, "this persona has too many friend requests pending").After(retryPending)
	}
	return nil
}

// trusted counts the issuers that may ask this persona. When there are several,
// none may fill more than half of what it holds pending.
func (s *Store) trusted(p persona.Persona) int {
	n, may := 0, allowed(p)
	for _, i := range s.o.Verifier.Issuers() {
		if i.Provenance != nil && may(i) {
			n++
		}
	}
	return n
}

func readStanding(ctx context.Context, tx pgx.Tx, now time.Time, a ask) (standing, error) {
	var st standing
	err := tx.QueryRow(ctx, `
		SELECT
			EXISTS (SELECT FROM friend_block b WHERE b.owner = $1 AND b.identity = $3),
			EXISTS (SELECT FROM friend_request r WHERE r.owner = $1 AND r.persona_id = $2 AND r.identity = $3 AND r.state = 'pending' AND r.expires_at > $6),
			(SELECT g.id FROM friend_grant g
			 WHERE g.owner = $1 AND g.persona_id = $2 AND g.key_thumbprint = $4
			   AND g.state IN ('active', 'paused') AND g.expires_at > $6 AND g.id IS DISTINCT FROM $5::uuid),
			EXISTS (SELECT FROM friend_grant g
			 WHERE g.owner = $1 AND g.id = $5::uuid AND g.persona_id = $2 AND g.identity = $3
			   AND g.state IN ('active', 'paused') AND g.expires_at > $6),
			(SELECT count(*) FROM friend_request r WHERE r.identity = $3 AND r.state = 'pending' AND r.expires_at > $6),
			(SELECT count(*) FROM friend_request r WHERE r.identity = $3 AND r.created_at > $6 - interval '1 day'),
			(SELECT min(r.created_at) FROM friend_request r WHERE r.identity = $3 AND r.created_at > $6 - interval '1 day'),
			(SELECT count(*) FROM friend_request r WHERE r.owner = $1 AND r.persona_id = $2 AND r.state = 'pending' AND r.expires_at > $6),
			(SELECT count(*) FROM friend_request r
			 WHERE r.owner = $1 AND r.persona_id = $2 AND r.issuer_entry = $7 AND r.state = 'pending' AND r.expires_at > $6),
			(SELECT i.first_seen FROM friend_issuer i WHERE i.entry = $7)`,
		a.persona.Owner, a.persona.ID, a.who.Hash, a.jkt, nilIfZero(a.supersedes), now, a.entry.Issuer).
		Scan(&st.blocked, &st.pendingHere, &st.keyGrant, &st.supersededLives,
			&st.pending, &st.today, &st.oldestToday, &st.personaPending, &st.issuerPending, &st.issuerSince)
	if err != nil {
		return st, fmt.Errorf("read the requester's standing: %w", err)
	}
	err = tx.QueryRow(ctx, `
		SELECT r.decided_at, r.may_ask_again FROM friend_request r
		WHERE r.owner = $1 AND r.persona_id = $2 AND r.identity = $3 AND r.state = 'declined'
		ORDER BY r.decided_at DESC LIMIT 1`, a.persona.Owner, a.persona.ID, a.who.Hash).Scan(&st.declinedAt, &st.mayAskAgain)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return st, fmt.Errorf("read the last refusal: %w", err)
	}
	return st, nil
}
