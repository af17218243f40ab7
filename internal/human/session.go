package human

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/refusal"
)

// How long a session lasts (specs/protocol.md sections 6 and 7).
const (
	SessionIdle  = 12 * time.Hour
	SessionLife  = 30 * 24 * time.Hour
	FreshFor     = 12 * time.Hour
	seenInterval = time.Minute // last_seen is not written more often
)

// Session is a signed-in browser.
type Session struct {
	ID                  uuid.UUID
	Human               Human
	AuthTime            time.Time // when the issuer last authenticated the person
	Fresh               bool      // signed in within 12 hours: may approve, vend, resume, unblock, make tokens
	CSRF                string    // token for forms
	CreatedAt, LastSeen time.Time
	UserAgent           string
}

var errSignedOut = refusal.New(refusal.Unauthenticated, "sign in first")

// newSession makes a session of h within tx and returns the cookie's token.
func (s *Store) newSession(ctx context.Context, tx pgx.Tx, h Human, authTime time.Time, userAgent string) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make session: %w", err)
	}
	token := newToken("")
	if len(userAgent) > 400 {
		userAgent = userAgent[:400]
	}
	_, err = tx.Exec(ctx, `
		WITH gone AS (
			DELETE FROM session
			WHERE human = $1 AND (last_seen < clock_timestamp() - $6::interval OR created_at < clock_timestamp() - $7::interval)
			RETURNING id
		), gone_tokens AS (
			DELETE FROM session_token WHERE human = $1 AND session IN (SELECT id FROM gone)
		), new AS (
			INSERT INTO session (human, id, auth_time, user_agent)
			VALUES ($1, $2, least($3, clock_timestamp()), $4)
		)
		INSERT INTO session_token (hash, human, session) VALUES ($5, $1, $2)`,
		h.ID, id, authTime, clean(userAgent), hash(token), SessionIdle, SessionLife)
	if err != nil {
		return "", fmt.Errorf("make session: %w", err)
	}
	return token, s.config.Record(ctx, tx, activity.Event{
		Owner: h.ID, Kind: "session.started", Actor: "human:" + h.ID.String(), Object: "session", ObjectID: id,
		Personal: map[string]string{"user_agent": clean(userAgent)},
	})
}

// Authenticate resolves a session cookie; refusal.Unauthenticated otherwise. It slides the 12 h idle limit.
func (s *Store) Authenticate(ctx context.Context, token string) (Session, error) {
	if token == "" {
		return Session{}, errSignedOut
	}
	var v Session
	var slide bool
	h, err := s.scanHuman(s.pool.QueryRow(ctx, `
		SELECT `+humanColumns+`, s.id, s.auth_time, s.created_at, s.last_seen, s.user_agent,
		       s.auth_time > clock_timestamp() - $2::interval,
		       s.last_seen < clock_timestamp() - $5::interval
		FROM session_token t
		JOIN session s ON s.human = t.human AND s.id = t.session
		JOIN human h ON h.id = t.human
		WHERE t.hash = $1
		  AND s.last_seen > clock_timestamp() - $3::interval
		  AND s.created_at > clock_timestamp() - $4::interval`,
		hash(token), FreshFor, SessionIdle, SessionLife, seenInterval),
		&v.ID, &v.AuthTime, &v.CreatedAt, &v.LastSeen, &v.UserAgent, &v.Fresh, &slide)
	if errors.Is(err, pgx.ErrNoRows) {
		return Session{}, errSignedOut
	}
	if err != nil {
		return Session{}, fmt.Errorf("authenticate session: %w", err)
	}
	v.Human, v.CSRF = h, csrf(token)
	if slide {
		_, err := s.pool.Exec(ctx, `UPDATE session SET last_seen = clock_timestamp() WHERE human = $1 AND id = $2`, h.ID, v.ID)
		if err != nil {
			return Session{}, fmt.Errorf("slide session: %w", err)
		}
	}
	return v, nil
}

// Alive reports whether the token's session has not ended. Unlike Authenticate it
// is no use of the session: a page that is merely open keeps nobody signed in.
func (s *Store) Alive(ctx context.Context, token string) (bool, error) {
	var alive bool
	err := s.pool.QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM session_token t JOIN session s ON s.human = t.human AND s.id = t.session
			WHERE t.hash = $1 AND s.last_seen > clock_timestamp() - $2::interval AND s.created_at > clock_timestamp() - $3::interval)`,
		hash(token), SessionIdle, SessionLife).Scan(&alive)
	if err != nil {
		return false, fmt.Errorf("look at session: %w", err)
	}
	return alive, nil
}

// SignOut ends the session of this token; an unknown one is no error.
func (s *Store) SignOut(ctx context.Context, token string) error {
	var human, session uuid.UUID
	err := s.pool.QueryRow(ctx, `SELECT human, session FROM session_token WHERE hash = $1`, hash(token)).Scan(&human, &session)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	err = s.EndSession(ctx, human, session)
	if refusal.CodeOf(err) == refusal.NotFound { // signed out twice at once
		return nil
	}
	return err
}

// Sessions lists the human's live sessions, the one seen last first. CSRF is not set.
func (s *Store) Sessions(ctx context.Context, human uuid.UUID) ([]Session, error) {
	h, err := s.Get(ctx, human)
	if err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, `
		SELECT id, auth_time, created_at, last_seen, user_agent, auth_time > clock_timestamp() - $2::interval
		FROM session
		WHERE human = $1 AND last_seen > clock_timestamp() - $3::interval AND created_at > clock_timestamp() - $4::interval
		ORDER BY last_seen DESC, id`, human, FreshFor, SessionIdle, SessionLife)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Session, error) {
		v := Session{Human: h}
		return v, row.Scan(&v.ID, &v.AuthTime, &v.CreatedAt, &v.LastSeen, &v.UserAgent, &v.Fresh)
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return out, nil
}

// EndSession signs one browser of the human out; refusal.NotFound when there is no such session of theirs.
func (s *Store) EndSession(ctx context.Context, human, session uuid.UUID) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM session_token WHERE human = $1 AND session = $2`, human, session); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `DELETE FROM session WHERE human = $1 AND id = $2`, human, session)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return refusal.New(refusal.NotFound, "there is no such session")
		}
		return s.config.Record(ctx, tx, activity.Event{
			Owner: human, Kind: "session.ended", Actor: "human:" + human.String(), Object: "session", ObjectID: session,
		})
	})
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}

// Run removes what has expired, once an hour, until ctx ends. Any number of replicas may run it.
func (s *Store) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Hour)
	defer ticker.Stop()
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "sessions were not swept", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Store) sweep(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		WITH gone AS (
			DELETE FROM session
			WHERE last_seen < clock_timestamp() - $1::interval OR created_at < clock_timestamp() - $2::interval
			RETURNING human, id
		)
		DELETE FROM session_token t USING gone WHERE t.human = gone.human AND t.session = gone.id`, SessionIdle, SessionLife)
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `DELETE FROM form_once WHERE at < clock_timestamp() - interval '1 day'`)
	return err
}

// newToken returns 256 random bits as text, behind a prefix that scanners for leaked secrets can know.
func newToken(prefix string) string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

func hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// csrf is derived, not stored: whoever can compute it holds the session already.
func csrf(token string) string {
	sum := sha256.Sum256([]byte("csrf " + token))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}
