package human

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/refusal"
)

// APITokenPrefix begins every API token of a human.
const APITokenPrefix = "sba_"

// maxAPITokens bounds what one human can have, so that a loop fills no table.
const maxAPITokens = 100

// APIToken is a human's sba_ token: it may read, narrow, pause, revoke and decline.
type APIToken struct {
	ID        uuid.UUID
	Name      string
	CreatedAt time.Time
	LastUsed  *time.Time
}

// CreateAPIToken makes a token; its text is returned this once.
func (s *Store) CreateAPIToken(ctx context.Context, human uuid.UUID, name string) (t APIToken, token string, err error) {
	if name, err = plainName(name); err != nil {
		return APIToken{}, "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return APIToken{}, "", fmt.Errorf("create API token: %w", err)
	}
	t, token = APIToken{ID: id, Name: name}, newToken(APITokenPrefix)
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var n int
		// The human's row serialises the count.
		err := tx.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM api_token a WHERE a.human = h.id) FROM human h WHERE h.id = $1 FOR NO KEY UPDATE`, human).Scan(&n)
		if errors.Is(err, pgx.ErrNoRows) {
			return errNobody
		}
		if err != nil {
			return err
		}
		if n >= maxAPITokens {
			return refusal.New(refusal.QuotaExceeded, "there are already %d API tokens; delete one first", n)
		}
		err = tx.QueryRow(ctx, `INSERT INTO api_token (human, id, name) VALUES ($1, $2, $3) RETURNING created_at`, human, id, name).Scan(&t.CreatedAt)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO api_token_hash (hash, human, token) VALUES ($1, $2, $3)`, hash(token), human, id); err != nil {
			return err
		}
		return s.config.Record(ctx, tx, activity.Event{
			Owner: human, Kind: "api_token.created", Actor: "human:" + human.String(), Object: "api_token", ObjectID: id,
			Personal: map[string]string{"name": name},
		})
	})
	if err != nil {
		return APIToken{}, "", fmt.Errorf("create API token: %w", err)
	}
	return t, token, nil
}

// plainName is a token's name as it is kept.
func plainName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if name == "" || utf8.RuneCountInString(name) > 100 || strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) {
		return "", refusal.Invalid("name", "name must be 1 to 100 characters of plain text")
	}
	return name, nil
}

// APITokens lists the human's tokens, newest first.
func (s *Store) APITokens(ctx context.Context, human uuid.UUID) ([]APIToken, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT id, name, created_at, last_used FROM api_token WHERE human = $1 ORDER BY id DESC`, human)
	if err != nil {
		return nil, fmt.Errorf("list API tokens: %w", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[APIToken])
	if err != nil {
		return nil, fmt.Errorf("list API tokens: %w", err)
	}
	return out, nil
}

// DeleteAPIToken ends a token at once; refusal.NotFound when the human has no such token.
func (s *Store) DeleteAPIToken(ctx context.Context, human, id uuid.UUID) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM api_token_hash WHERE human = $1 AND token = $2`, human, id); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `DELETE FROM api_token WHERE human = $1 AND id = $2`, human, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return refusal.New(refusal.NotFound, "there is no such API token")
		}
		return s.config.Record(ctx, tx, activity.Event{
			Owner: human, Kind: "api_token.deleted", Actor: "human:" + human.String(), Object: "api_token", ObjectID: id,
		})
	})
	if err != nil {
		return fmt.Errorf("delete API token: %w", err)
	}
	return nil
}

// AuthenticateAPIToken resolves an sba_ token of a resident; refusal.Unauthenticated otherwise.
func (s *Store) AuthenticateAPIToken(ctx context.Context, token string) (Human, error) {
	errBad := refusal.New(refusal.Unauthenticated, "the token is not valid")
	if !strings.HasPrefix(token, APITokenPrefix) {
		return Human{}, errBad
	}
	var id uuid.UUID
	var touch bool
	h, err := s.scanHuman(s.pool.QueryRow(ctx, `
		SELECT `+humanColumns+`, a.id, coalesce(a.last_used < clock_timestamp() - $2::interval, true)
		FROM api_token_hash t
		JOIN api_token a ON a.human = t.human AND a.id = t.token
		JOIN human h ON h.id = t.human
		WHERE t.hash = $1 AND h.resident`, hash(token), seenInterval), &id, &touch)
	if errors.Is(err, pgx.ErrNoRows) {
		return Human{}, errBad
	}
	if err != nil {
		return Human{}, fmt.Errorf("authenticate API token: %w", err)
	}
	if !h.Resident {
		return Human{}, errBad
	}
	if touch {
		_, err := s.pool.Exec(ctx, `UPDATE api_token SET last_used = clock_timestamp() WHERE human = $1 AND id = $2`, h.ID, id)
		if err != nil {
			return Human{}, fmt.Errorf("note use of API token: %w", err)
		}
	}
	return h, nil
}
