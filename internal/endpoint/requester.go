package endpoint

import (
	"context"
	"fmt"

	"switchboard/internal/scope"
)

// Requester is who an A2A bearer speaks for at one persona: a key, or an
// identity (code flow).
type Requester struct {
	Persona  string
	Key      string // thumbprint; "" for a code-flow token
	Identity []byte // set for a code-flow token
	ProofKey string // DPoP thumbprint the token is bound to; see Proven
}

// AuthenticateRequester resolves a bearer for the A2A resource of persona slug;
// refusal.Unauthenticated otherwise.
func (s *Store) AuthenticateRequester(ctx context.Context, slug, bearer string) (Requester, error) {
	if !plausible(bearer, accessPrefix) || !scope.QueueName(slug) { // no persona has such a slug
		return Requester{}, errBearer
	}
	r := Requester{Persona: slug}
	var kind, client string
	err := s.pool.QueryRow(ctx, `
		SELECT kind, client, identity, proof_key
		FROM endpoint_token
		WHERE id = $1 AND persona = $2 AND expires_at > clock_timestamp()`,
		secretID(bearer), slug).Scan(&kind, &client, &r.Identity, &r.ProofKey)
	if none(err) {
		return Requester{}, errBearer
	}
	if err != nil {
		return Requester{}, fmt.Errorf("resolve a bearer of persona %s: %w", slug, err)
	}
	if kind == "key" {
		r.Key = client
	}
	return r, nil
}
