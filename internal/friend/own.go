package friend

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

// Asker is whom a token (key or identity) or session (identity) speaks for, at one persona ("" = all, session only).
type Asker struct {
	Persona  string
	Key      string
	Identity []byte
}

// AskerFilter narrows ListOwn.
type AskerFilter struct {
	State RequestState // "" = all
	Since *time.Time   // updated after
}

// own returns the condition that selects the asker's requests. A sign-in that
// was not redeemed in time is gone.
func (s *Store) own(ctx context.Context, a Asker) (where string, args []any, err error) {
	switch {
	case a.Key != "":
		where, args = `r.key_thumbprint = $1`, []any{a.Key}
	case len(a.Identity) > 0:
		where, args = `r.identity = $1`, []any{a.Identity}
	default:
		return "", nil, noRequest()
	}
	if a.Persona == "" {
		if a.Key != "" {
			return "", nil, noRequest() // a key speaks at one persona only
		}
		where += ` AND $2::uuid IS NULL`
		args = append(args, nil)
	} else {
		p, err := s.o.Personas.BySlug(ctx, a.Persona)
		if err != nil {
			return "", nil, err
		}
		where += ` AND r.persona_id = $2`
		args = append(args, p.ID)
	}
	return where + ` AND (r.todo_id IS NOT NULL OR r.expires_at > clock_timestamp())`, args, nil
}

// GetOwn returns one request of the asker; anything else is refusal.NotFound.
func (s *Store) GetOwn(ctx context.Context, a Asker, id uuid.UUID) (Request, error) {
	where, args, err := s.own(ctx, a)
	if err != nil {
		return Request{}, err
	}
	r, err := s.request(ctx, s.pool, `WHERE `+where+` AND r.id = $3`, append(args, id)...)
	if err != nil {
		return Request{}, err
	}
	return s.completed(ctx, r)
}

// completed adds what stands in other rooms.
func (s *Store) completed(ctx context.Context, r Request) (Request, error) {
	rs := []Request{r}
	err := s.offersNow(ctx, rs)
	return rs[0], err
}

// ListOwn returns the asker's requests, newest-updated first; total counts all
// that match.
func (s *Store) ListOwn(ctx context.Context, a Asker, f AskerFilter, cursor string, limit int) (rs []Request, next string, total int, err error) {
	where, args, err := s.own(ctx, a)
	if err != nil {
		return nil, "", 0, err
	}
	const state = `CASE WHEN r.state = 'pending' AND r.expires_at <= clock_timestamp() THEN 'expired' ELSE r.state END`
	where += ` AND ($3 = '' OR ` + state + ` = $3) AND ($4::timestamptz IS NULL OR r.updated_at > $4)`
	args = append(args, string(f.State), f.Since)
	if err := s.pool.QueryRow(ctx, `SELECT count(*) FROM friend_request r WHERE `+where, args...).Scan(&total); err != nil {
		return nil, "", 0, fmt.Errorf("count own friend requests: %w", err)
	}

	bind := postgres.BindCursor("friend requests, own", a.Persona, a.Key, hex.EncodeToString(a.Identity), string(f.State), timeText(f.Since))
	var before *time.Time
	var beforeID uuid.UUID
	if cursor != "" {
		at, id, err := postgres.DecodeCursorAt(bind, cursor)
		if err != nil {
			return nil, "", 0, err
		}
		before, beforeID = &at, id
	}
	limit = pageSize(limit)
	rs, err = s.requests(ctx, s.pool, `WHERE `+where+`
		AND ($5::timestamptz IS NULL OR (r.updated_at, r.id) < ($5, $6))
		ORDER BY r.updated_at DESC, r.id DESC LIMIT $7`, append(args, before, beforeID, limit+1)...)
	if err != nil {
		return nil, "", 0, err
	}
	if len(rs) > limit {
		rs = rs[:limit]
		next = postgres.EncodeCursorAt(bind, rs[limit-1].UpdatedAt, rs[limit-1].ID)
	}
	return rs, next, total, s.offersNow(ctx, rs)
}

func timeText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// pageSize bounds how many rows a list returns.
func pageSize(limit int) int {
	if limit <= 0 || limit > 100 {
		return 100
	}
	return limit
}

// Withdraw takes the asker's request back. A decided one is refusal.Conflict.
func (s *Store) Withdraw(ctx context.Context, a Asker, id uuid.UUID) (Request, error) {
	where, args, err := s.own(ctx, a)
	if err != nil {
		return Request{}, err
	}
	var r Request
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if r, err = s.request(ctx, tx, `WHERE `+where+` AND r.id = $3 FOR UPDATE OF r`, append(args, id)...); err != nil {
			return err
		}
		if r.State != Pending && r.State != AwaitingSignIn {
			return decided(r)
		}
		if r.State == Pending {
			if err := s.withdrawPending(ctx, tx, r); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `
			UPDATE friend_request SET state = 'withdrawn', decided_at = clock_timestamp(), updated_at = clock_timestamp()
			WHERE owner = $1 AND id = $2`, r.Owner, r.ID); err != nil {
			return fmt.Errorf("withdraw the friend request: %w", err)
		}
		r, err = s.request(ctx, tx, `WHERE r.owner = $1 AND r.id = $2`, r.Owner, r.ID)
		return err
	})
	if err != nil {
		return Request{}, err
	}
	s.changed(r.Owner, r.ID)
	return r, nil
}

func (s *Store) withdrawPending(ctx context.Context, tx pgx.Tx, r Request) error {
	if err := s.finishConsent(ctx, tx, r, todo.Canceled, Withdrawn, uuid.Nil); err != nil {
		return err
	}
	return s.record(ctx, tx, activity.Event{
		Owner: r.Owner, Kind: "friend_request.withdrawn", Actor: actorIdentity(r.Identity.Hash), Object: "friend_request", ObjectID: r.ID,
		Detail: map[string]any{"persona": r.Persona},
	})
}

// decided refuses to change what has ended.
func decided(r Request) error {
	return refusal.New(refusal.Conflict, "this friend request is already %s", r.State)
}

// KnownRequester reports whether this identity has a request or a grant here,
// which is what lets a guest sign in.
func (s *Store) KnownRequester(ctx context.Context, identity []byte) (bool, error) {
	var known bool
	err := s.pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM friend_request WHERE identity = $1)
		    OR EXISTS (SELECT FROM friend_grant WHERE identity = $1)`, identity).Scan(&known)
	if err != nil {
		return false, fmt.Errorf("look for a requester: %w", err)
	}
	return known, nil
}
