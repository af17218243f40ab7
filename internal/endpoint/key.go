package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/provenance"
)

// AccessLifetime is how long an access token is good.
const AccessLifetime = 15 * time.Minute

// RegisterKey remembers an agent's public key and that it has a stored request
// at the persona (slug), in the transaction that stores the request. identity is
// nil while nobody has signed in for it; then it is forgotten after a day, unless
// it is registered again.
func (s *Store) RegisterKey(ctx context.Context, tx pgx.Tx, jkt string, jwk json.RawMessage, persona string, identity []byte) error {
	key, err := provenance.ParsePublicKey(jwk)
	if err != nil {
		return fmt.Errorf("register key: %w", err)
	}
	if key.Thumbprint() != jkt {
		return errors.New("register key: the thumbprint is another key's")
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO endpoint_key (thumbprint, jwk) VALUES ($1, $2)
		ON CONFLICT (thumbprint) DO UPDATE SET created_at = clock_timestamp()`, jkt, key.JWK()); err != nil {
		return fmt.Errorf("register key: %w", err)
	}
	if identity == nil {
		identity = []byte{} // nobody's: see target
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO endpoint_key_persona (thumbprint, persona, identity) VALUES ($1, $2, $3)
		ON CONFLICT (thumbprint, persona, identity) DO UPDATE SET created_at = clock_timestamp()`, jkt, persona, identity); err != nil {
		return fmt.Errorf("register key: %w", err)
	}
	return nil
}

// KeyGrant is a client_credentials request of specs/protocol.md section 4.1,
// already form-decoded.
type KeyGrant struct {
	Assertion string   // client_assertion
	ClientID  string   // optional
	Resource  string   // exact URL
	Scope     []string // optional
	ProofKey  string   // thumbprint of a valid DPoP proof's key when one came along (must equal the assertion's key)
}

// Token is what a token request is answered with.
type Token struct {
	Access, Refresh string
	ExpiresIn       time.Duration
	Scope           []string // verb:queue; nil where scopes mean nothing
	DPoP            bool
}

// IssueForKey gives an agent's key a token for the peer endpoint that was vended
// to it, or for the A2A resource of a persona at which it has a stored request.
// Errors are *OAuthError: invalid_client for an unknown key or a bad assertion,
// then invalid_dpop_proof, invalid_target, invalid_scope. An assertion is used
// up once it has been verified, also by a request that is then refused.
func (s *Store) IssueForKey(ctx context.Context, g KeyGrant) (Token, error) {
	jkt, err := s.VerifyAssertion(ctx, g.Assertion, g.ClientID)
	if err != nil {
		return Token{}, err
	}
	return s.IssueForVerifiedKey(ctx, jkt, g)
}

// IssueForVerifiedKey is IssueForKey after VerifyAssertion, for a transport that
// looks at other things in between.
func (s *Store) IssueForVerifiedKey(ctx context.Context, jkt string, g KeyGrant) (Token, error) {
	if g.ProofKey != "" && g.ProofKey != jkt {
		return Token{}, errProof.because(errors.New("the proof is by another key than the assertion"))
	}
	r, ok := s.resource(g.Resource)
	if !ok {
		return Token{}, errTarget
	}
	if r.persona != "" {
		if len(g.Scope) > 0 {
			return Token{}, errScopeUnless(s.knows(ctx, jkt, r.persona))
		}
		return s.issueA2A(ctx, jkt, r.persona, g.ProofKey)
	}
	return s.issuePeer(ctx, jkt, r.endpoint, g)
}

// errScopeUnless keeps the order of refusals: a target that is not open comes
// before a scope that means nothing there.
func errScopeUnless(known bool, err error) error {
	switch {
	case err != nil:
		return err
	case !known:
		return errTarget
	}
	return errScope
}

// knows reports whether the key has a stored request at the persona.
func (s *Store) knows(ctx context.Context, jkt, persona string) (bool, error) {
	var known bool
	err := s.pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM endpoint_key_persona WHERE thumbprint = $1 AND persona = $2)`, jkt, persona).Scan(&known)
	if err != nil {
		return false, fmt.Errorf("look for a key's requests: %w", err)
	}
	return known, nil
}

// IssueForRequester gives a registered key, whose holder has been authenticated
// otherwise, a token for the A2A resource of the persona.
func (s *Store) IssueForRequester(ctx context.Context, jkt, persona, proofKey string) (Token, error) {
	if proofKey != "" && proofKey != jkt {
		return Token{}, errProof
	}
	return s.issueA2A(ctx, jkt, persona, proofKey)
}

func (s *Store) issueA2A(ctx context.Context, jkt, persona, proofKey string) (Token, error) {
	bearer, token, holder, err := newToken()
	if err != nil {
		return Token{}, err
	}
	tag, err := s.pool.Exec(ctx, `
		INSERT INTO endpoint_token (id, holder, kind, persona, client, proof_key, expires_at)
		SELECT $1, $2, 'key', $3, $4, $5, clock_timestamp() + make_interval(secs => $6)
		WHERE EXISTS (SELECT FROM endpoint_key_persona WHERE thumbprint = $4 AND persona = $3)`,
		token, holder, persona, jkt, proofKey, AccessLifetime.Seconds())
	if err != nil {
		return Token{}, fmt.Errorf("issue a token: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return Token{}, errTarget
	}
	return Token{Access: bearer, ExpiresIn: AccessLifetime, DPoP: proofKey != ""}, nil
}

func (s *Store) issuePeer(ctx context.Context, jkt string, id uuid.UUID, g KeyGrant) (Token, error) {
	e, err := scanned(s.pool.QueryRow(ctx, `
		SELECT `+columns+`
		FROM endpoint_route r
		JOIN endpoint e ON e.owner = r.owner AND e.id = r.id
		WHERE r.id = $1 AND e.kind = 'peer' AND e.key_thumbprint = $2
			AND e.state = 'active' AND e.expires_at > clock_timestamp()`, id, jkt))
	if none(err) {
		return Token{}, errTarget
	}
	if err != nil {
		return Token{}, fmt.Errorf("find the endpoint of a key: %w", err)
	}
	asked, err := within(g.Scope, e.Scope.Strings())
	if err != nil {
		return Token{}, err
	}
	t := access{kind: "key", client: jkt, scope: asked, proofKey: g.ProofKey}
	return t.issue(ctx, s.pool, e)
}

// within checks that what was asked is among what was granted; nothing asked is
// nil, which follows the grant.
func within(asked, granted []string) ([]string, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	var list []string
	for _, a := range asked {
		if !slices.Contains(granted, a) {
			return nil, errScope
		}
		if !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list, nil
}

// access is an access token for an endpoint that is about to be issued.
type access struct {
	kind          string // key, code
	client        string
	identity      []byte
	scope         []string // nil = the endpoint's whole
	proofKey      string
	authorization *uuid.UUID // of a code-flow token; its holder too
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// issue stores the token unless the endpoint has stopped being active. It gives
// no authority of its own: whatever happens to the endpoint later happens to it.
func (t access) issue(ctx context.Context, q querier, e Endpoint) (Token, error) {
	bearer, token, holder, err := newToken()
	if err != nil {
		return Token{}, err
	}
	if t.authorization != nil {
		holder = *t.authorization
	}
	var seconds int64
	err = q.QueryRow(ctx, `
		INSERT INTO endpoint_token (id, holder, kind, owner, endpoint_id, client, identity, scope, proof_key, authorization_id, expires_at)
		SELECT $1, $2, $3, e.owner, e.id, $6, $7, $8, $9, $10, least(e.expires_at, clock_timestamp() + make_interval(secs => $11))
		FROM endpoint e
		WHERE e.owner = $4 AND e.id = $5 AND e.state = 'active' AND e.expires_at > clock_timestamp()
		RETURNING ceil(extract(epoch FROM expires_at - clock_timestamp()))::bigint`,
		token, holder, t.kind, e.Owner, e.ID, t.client, t.identity, t.scope, t.proofKey, t.authorization, AccessLifetime.Seconds()).Scan(&seconds)
	if none(err) {
		return Token{}, errTarget
	}
	if err != nil {
		return Token{}, fmt.Errorf("issue a token: %w", err)
	}
	granted := t.scope
	if granted == nil && e.Kind == Peer {
		granted = e.Scope.Strings()
	}
	return Token{Access: bearer, ExpiresIn: time.Duration(seconds) * time.Second, Scope: granted, DPoP: t.proofKey != ""}, nil
}

func newToken() (bearer string, id []byte, holder uuid.UUID, err error) {
	if holder, err = uuid.NewV7(); err != nil {
		return "", nil, uuid.Nil, fmt.Errorf("make an id: %w", err)
	}
	bearer, id = newSecret(accessPrefix)
	return bearer, id, holder, nil
}
