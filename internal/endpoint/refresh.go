package endpoint

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// RefreshGrant is a refresh_token request, already form-decoded.
type RefreshGrant struct {
	Refresh, ClientID string
	Resource          string   // "" = the one of the authorization
	Scope             []string // narrower than the authorization's; nil = the same
	ProofKey          string
}

// RefreshToken answers a refresh token with a new pair; the old one is then used up.
// One that comes a second time was copied by somebody, and nobody can tell by
// whom: everything of its authorization ends (RFC 9700 §4.14.2).
func (s *Store) RefreshToken(ctx context.Context, g RefreshGrant) (Token, error) {
	if !plausible(g.Refresh, refreshPrefix) {
		return Token{}, errGrant
	}
	id := secretID(g.Refresh)
	var t Token
	err := s.in(ctx, "refresh a token", func(tx pgx.Tx) error {
		var of uuid.UUID
		err := tx.QueryRow(ctx, `SELECT authorization_id FROM endpoint_refresh WHERE id = $1`, id).Scan(&of)
		if none(err) {
			return errGrant.because(errors.New("unknown refresh token"))
		}
		if err != nil {
			return err
		}
		// The authorization's lock orders all uses of its tokens; what the token's
		// own row says is read after it.
		a, err := lockAuthorization(ctx, tx, "id", of)
		if err != nil {
			return err
		}
		switch {
		case a.client != g.ClientID:
			return errGrant.because(errors.New("another client"))
		case a.isExpired:
			return errGrant.because(errors.New("authorization expired"))
		case a.proofKey != g.ProofKey:
			return errProof
		case g.Resource != "" && g.Resource != s.urlOf(a):
			return errTarget
		}
		var reused, expired bool
		if err := tx.QueryRow(ctx, `
			SELECT used_at IS NOT NULL, expires_at <= clock_timestamp() FROM endpoint_refresh WHERE id = $1`, id).Scan(&reused, &expired); err != nil {
			return err
		}
		if reused {
			return reusedError{a.id}
		}
		if expired {
			return errGrant.because(errors.New("refresh token expired"))
		}
		if _, err := tx.Exec(ctx, `UPDATE endpoint_refresh SET used_at = clock_timestamp() WHERE id = $1`, id); err != nil {
			return err
		}
		scope := a.scope
		if asked := slices.DeleteFunc(slices.Clone(g.Scope), func(v string) bool { return v == "offline_access" }); len(asked) > 0 {
			if scope, err = s.narrower(ctx, tx, a, asked); err != nil {
				return err
			}
		}
		t, err = s.issueBoth(ctx, tx, a, scope)
		return err
	})
	return t, s.reused(ctx, err)
}

// narrower checks the scope of a refresh against the authorization's.
func (s *Store) narrower(ctx context.Context, tx pgx.Tx, a authorization, asked []string) ([]string, error) {
	granted := a.scope
	if granted == nil && a.endpoint != nil {
		e, err := scanned(tx.QueryRow(ctx, `SELECT `+columns+` FROM endpoint e WHERE owner = $1 AND id = $2`, a.owner, a.endpoint))
		if err != nil {
			return nil, err
		}
		granted = e.Scope.Strings()
	}
	return within(asked, granted)
}
