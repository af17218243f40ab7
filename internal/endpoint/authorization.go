package endpoint

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Lifetimes of the code flow.
const (
	CodeLifetime          = time.Minute
	RefreshLifetime       = 30 * 24 * time.Hour // from each use
	AuthorizationLifetime = 90 * 24 * time.Hour // from consent; then the human is asked again
)

// Person is who is signed in at the authorization endpoint.
type Person struct {
	Human    uuid.UUID
	Identity []byte
}

// Target is what a person is about to let a client use.
type Target struct {
	Resource string
	Endpoint *Endpoint // nil for a persona's A2A resource
	Persona  string    // slug
	Scope    []string  // verb:queue as asked; nil = everything there
}

// Authorizable returns the target of an authorization request when the person
// may let a client use it: an active endpoint of their own or of a grant to
// their identity, or the A2A resource of a persona at which their identity has a
// stored request. Otherwise *OAuthError: invalid_target, one for all reasons, or
// invalid_scope.
func (s *Store) Authorizable(ctx context.Context, p Person, resource string, scope []string) (Target, error) {
	return s.target(ctx, s.pool, p, resource, scope)
}

func (s *Store) target(ctx context.Context, q querier, p Person, url string, scope []string) (Target, error) {
	r, ok := s.resource(url)
	if !ok || len(p.Identity) == 0 {
		return Target{}, errTarget
	}
	// A client asks for it to get a refresh token; here it always does.
	scope = slices.DeleteFunc(slices.Clone(scope), func(v string) bool { return v == "offline_access" })
	t := Target{Resource: url, Persona: r.persona}
	var granted []string
	if r.persona != "" {
		var known bool
		err := q.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM endpoint_key_persona WHERE identity = $1 AND persona = $2)`, p.Identity, r.persona).Scan(&known)
		if err != nil {
			return Target{}, fmt.Errorf("look for a person's requests: %w", err)
		}
		if !known {
			return Target{}, errTarget
		}
	} else {
		e, err := scanned(q.QueryRow(ctx, `
			SELECT `+columns+`
			FROM endpoint_route r
			JOIN endpoint e ON e.owner = r.owner AND e.id = r.id
			WHERE r.id = $1 AND e.state = 'active' AND e.expires_at > clock_timestamp()
				AND (e.owner = $2 OR e.kind = 'peer' AND e.identity = $3)`, r.endpoint, p.Human, p.Identity))
		if none(err) {
			return Target{}, errTarget
		}
		if err != nil {
			return Target{}, fmt.Errorf("look for a person's endpoint: %w", err)
		}
		t.Endpoint, t.Persona, granted = &e, e.Persona, e.Scope.Strings()
	}
	var err error
	t.Scope, err = within(scope, granted)
	return t, err
}

// Authorization is a request of the code flow that its person has allowed.
type Authorization struct {
	Person
	Client      string // client id
	ClientName  string
	RedirectURI string   // as the client sent it
	Registered  string   // the registered redirect that it matches
	Resource    string   // exact URL
	Scope       []string // nil = everything
	Challenge   string   // PKCE, S256
	ProofKey    string   // dpop_jkt (RFC 9449 §10), "" when absent
}

// actor names the person in the owner's record: a requester by the identity
// that the owner knows from the grant.
func (p Person) actor(owner uuid.UUID) string {
	if p.Human == owner {
		return byHuman(owner)
	}
	return "identity:" + hex.EncodeToString(p.Identity)
}

func (a Authorization) consentID() []byte {
	return hashOf("consent", a.Human.String(), a.Client, a.Registered, a.Resource)
}

// Consented reports whether the person has allowed as much before: the same
// client, redirect and resource, and no wider scope.
func (s *Store) Consented(ctx context.Context, a Authorization) (bool, error) {
	var before []string
	err := s.pool.QueryRow(ctx, `SELECT scope FROM endpoint_consent WHERE id = $1`, a.consentID()).Scan(&before)
	if none(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for consent: %w", err)
	}
	if before == nil {
		return true, nil
	}
	return a.Scope != nil && !slices.ContainsFunc(a.Scope, func(v string) bool { return !slices.Contains(before, v) }), nil
}

// Authorize remembers the consent and returns a code. Whether the person may is
// looked at once more. Errors as in Authorizable.
func (s *Store) Authorize(ctx context.Context, a Authorization) (code string, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	code, codeID := newSecret(codePrefix)
	err = s.in(ctx, "authorize a client", func(tx pgx.Tx) error {
		t, err := s.target(ctx, tx, a.Person, a.Resource, a.Scope)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO endpoint_consent (id, human, client, resource, scope)
			VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (id) DO UPDATE SET scope = excluded.scope, created_at = clock_timestamp()`,
			a.consentID(), a.Human, a.Client, a.Resource, t.Scope); err != nil {
			return err
		}
		var owner, endpoint *uuid.UUID
		var persona *string
		event := Endpoint{Owner: a.Human}
		if t.Endpoint != nil {
			event, owner, endpoint = *t.Endpoint, &t.Endpoint.Owner, &t.Endpoint.ID
		} else {
			persona = &t.Persona
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO endpoint_authorization (id, human, identity, client, client_name, owner, endpoint_id, persona, scope, proof_key,
				code, challenge, redirect_uri, code_expires_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
				clock_timestamp() + make_interval(secs => $14), clock_timestamp() + make_interval(secs => $15))`,
			id, a.Human, a.Identity, a.Client, a.ClientName, owner, endpoint, persona, t.Scope, a.ProofKey,
			codeID, a.Challenge, a.RedirectURI, CodeLifetime.Seconds(), AuthorizationLifetime.Seconds()); err != nil {
			return err
		}
		return s.record(ctx, tx, "client.authorized", a.actor(event.Owner), event, map[string]any{"client": a.Client, "resource": a.Resource})
	})
	if err != nil {
		return "", err
	}
	return code, nil
}

// CodeGrant is an authorization_code request, already form-decoded.
type CodeGrant struct {
	Code, ClientID, RedirectURI, Verifier string
	Resource                              string // "" = the one of the authorization
	ProofKey                              string // thumbprint of a valid DPoP proof's key, "" when none came along
}

// authorization is a stored one, its row locked.
type authorization struct {
	id                               uuid.UUID
	client, challenge, redirect      string
	proofKey                         string
	identity                         []byte
	owner, endpoint                  *uuid.UUID
	persona                          *string
	scope                            []string
	redeemed, codeExpired, isExpired bool
}

func lockAuthorization(ctx context.Context, tx pgx.Tx, where string, arg any) (authorization, error) {
	var a authorization
	err := tx.QueryRow(ctx, `
		SELECT id, client, challenge, redirect_uri, proof_key, identity, owner, endpoint_id, persona, scope,
			redeemed_at IS NOT NULL, code_expires_at <= clock_timestamp(), expires_at <= clock_timestamp()
		FROM endpoint_authorization
		WHERE `+where+` = $1
		FOR UPDATE`, arg).Scan(&a.id, &a.client, &a.challenge, &a.redirect, &a.proofKey, &a.identity, &a.owner, &a.endpoint, &a.persona, &a.scope,
		&a.redeemed, &a.codeExpired, &a.isExpired)
	if none(err) {
		return authorization{}, errGrant.because(errors.New("unknown"))
	}
	return a, err
}

// reusedError ends the transaction that found a code or refresh token used twice;
// the authorization is then removed in one of its own.
type reusedError struct{ authorization uuid.UUID }

func (reusedError) Error() string { return "used before" }

// Offered returns invalid_grant for what is no code and no refresh token of ours:
// a stranger's proof is not worth a row that remembers it.
func (s *Store) Offered(ctx context.Context, secret string) error {
	if !plausible(secret, codePrefix, refreshPrefix) {
		return errGrant
	}
	var known bool
	err := s.pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM endpoint_authorization WHERE code = $1) OR EXISTS (SELECT FROM endpoint_refresh WHERE id = $1)`,
		secretID(secret)).Scan(&known)
	if err != nil {
		return fmt.Errorf("look for a grant: %w", err)
	}
	if !known {
		return errGrant.because(errors.New("unknown"))
	}
	return nil
}

// RedeemCode answers a code with tokens. Errors are *OAuthError: invalid_grant,
// invalid_target, invalid_dpop_proof. A code that comes a second time takes back
// all that it led to (RFC 6749 §4.1.2).
func (s *Store) RedeemCode(ctx context.Context, g CodeGrant) (Token, error) {
	if !plausible(g.Code, codePrefix) {
		return Token{}, errGrant
	}
	var t Token
	err := s.in(ctx, "redeem a code", func(tx pgx.Tx) error {
		a, err := lockAuthorization(ctx, tx, "code", secretID(g.Code))
		if err != nil {
			return err
		}
		switch {
		case a.redeemed:
			return reusedError{a.id}
		case a.codeExpired:
			return errGrant.because(errors.New("code expired"))
		case a.client != g.ClientID || a.redirect != g.RedirectURI:
			return errGrant.because(errors.New("another client or redirect"))
		case !verifies(g.Verifier, a.challenge):
			return errGrant.because(errors.New("code_verifier does not verify"))
		case g.Resource != "" && g.Resource != s.urlOf(a):
			return errTarget
		case a.proofKey != "" && a.proofKey != g.ProofKey:
			return errProof
		}
		a.proofKey = g.ProofKey
		if _, err := tx.Exec(ctx, `
			UPDATE endpoint_authorization SET redeemed_at = clock_timestamp(), proof_key = $2 WHERE id = $1`, a.id, a.proofKey); err != nil {
			return err
		}
		t, err = s.issueBoth(ctx, tx, a, a.scope)
		return err
	})
	return t, s.reused(ctx, err)
}

// reused carries out what reusedError asks for.
func (s *Store) reused(ctx context.Context, err error) error {
	var again reusedError
	if !errors.As(err, &again) {
		return err
	}
	if err := s.endAuthorization(ctx, again.authorization, "authorization.reused", "system"); err != nil {
		return err
	}
	return errGrant.because(err)
}

// issueBoth issues an access token and a refresh token under an authorization.
func (s *Store) issueBoth(ctx context.Context, tx pgx.Tx, a authorization, scope []string) (Token, error) {
	t, err := s.issueUnder(ctx, tx, a, scope)
	if err != nil {
		return Token{}, err
	}
	refresh, id := newSecret(refreshPrefix)
	if _, err := tx.Exec(ctx, `
		INSERT INTO endpoint_refresh (id, authorization_id, expires_at)
		SELECT $1, id, least(expires_at, clock_timestamp() + make_interval(secs => $3)) FROM endpoint_authorization WHERE id = $2`,
		id, a.id, RefreshLifetime.Seconds()); err != nil {
		return Token{}, err
	}
	t.Refresh = refresh
	return t, nil
}

func (s *Store) issueUnder(ctx context.Context, tx pgx.Tx, a authorization, scope []string) (Token, error) {
	if a.endpoint != nil {
		e, err := scanned(tx.QueryRow(ctx, `SELECT `+columns+` FROM endpoint e WHERE owner = $1 AND id = $2`, a.owner, a.endpoint))
		if err != nil {
			return Token{}, err
		}
		t := access{kind: "code", client: a.client, identity: a.identity, scope: scope, proofKey: a.proofKey, authorization: &a.id}
		token, err := t.issue(ctx, tx, e)
		if errors.Is(err, errTarget) {
			err = errGrant.because(err) // revoked since: RFC 6749 §5.2
		}
		return token, err
	}
	bearer, token := newSecret(accessPrefix)
	_, err := tx.Exec(ctx, `
		INSERT INTO endpoint_token (id, holder, kind, persona, client, identity, proof_key, authorization_id, expires_at)
		VALUES ($1, $2, 'code', $3, $4, $5, $6, $2, clock_timestamp() + make_interval(secs => $7))`,
		token, a.id, a.persona, a.client, a.identity, a.proofKey, AccessLifetime.Seconds())
	if err != nil {
		return Token{}, err
	}
	return Token{Access: bearer, ExpiresIn: AccessLifetime, DPoP: a.proofKey != ""}, nil
}

func (s *Store) urlOf(a authorization) string {
	if a.endpoint != nil {
		return s.URL(*a.endpoint)
	}
	return s.o.PublicURL + a2aPath + *a.persona
}

// verifies is PKCE's S256 (RFC 7636 §4.6).
func verifies(verifier, challenge string) bool {
	if len(verifier) < 43 || len(verifier) > 128 {
		return false
	}
	sum := sha256.Sum256([]byte(verifier))
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(challenge)) == 1
}
