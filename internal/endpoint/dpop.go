package endpoint

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"switchboard/internal/provenance"
)

// proofSeconds is how far a proof's iat may lie from the database's clock, to
// either side (RFC 9449 §11.1).
const proofSeconds = 60

const maxProof = 8 << 10 // bytes

// proofClaims are those of RFC 9449 §4.2.
type proofClaims struct {
	JTI string   `json:"jti"`
	HTM string   `json:"htm"`
	HTU string   `json:"htu"`
	Iat *float64 `json:"iat"`
	Ath string   `json:"ath"`
}

// VerifyProof verifies a DPoP proof (RFC 9449 §4.3) for a request with this
// method to this URL, which the caller makes from PUBLIC_URL and never from the
// Host header. accessToken is the bearer that came along, "" at the token
// endpoint. It returns the thumbprint of the proof's key. A proof is good once,
// on any replica. What is wrong with a proof is invalid_dpop_proof.
func (s *Store) VerifyProof(ctx context.Context, method, url, proofHeader, accessToken string) (jkt string, err error) {
	key, c, err := checkProof(method, url, proofHeader, accessToken)
	if err != nil {
		return "", errProof.because(err)
	}
	jkt = key.Thumbprint()
	tag, err := s.pool.Exec(ctx, `
		INSERT INTO endpoint_seen (id, until)
		SELECT $1, to_timestamp($2::float8) + make_interval(secs => $3)
		WHERE abs(extract(epoch FROM clock_timestamp())::float8 - $2::float8) <= $3
		ON CONFLICT (id) DO NOTHING`, hashOf("proof", jkt, c.JTI), *c.Iat, float64(proofSeconds))
	if err != nil {
		return "", fmt.Errorf("remember a proof: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return "", errProof.because(errors.New("iat is too far off, or jti was used before"))
	}
	return jkt, nil
}

// checkProof is VerifyProof without what needs the database.
func checkProof(method, url, proof, accessToken string) (provenance.PublicKey, proofClaims, error) {
	refuse := func(format string, args ...any) (provenance.PublicKey, proofClaims, error) {
		return provenance.PublicKey{}, proofClaims{}, fmt.Errorf(format, args...)
	}
	if len(proof) > maxProof {
		return refuse("proof too long")
	}
	key, payload, err := provenance.VerifyProof(proof)
	if err != nil {
		return refuse("%w", err)
	}
	var c proofClaims
	if err := jsonv2.Unmarshal(payload, &c); err != nil {
		return refuse("claims: %w", err)
	}
	switch {
	case c.JTI == "" || len(c.JTI) > maxJTI:
		return refuse("jti is missing or too long")
	case c.HTM != method:
		return refuse("htm is %q", c.HTM)
	case !sameURL(c.HTU, url):
		return refuse("htu is another URL")
	case c.Iat == nil || *c.Iat < 0 || *c.Iat > 253402300799: // the year 9999
		return refuse("iat is missing or no date")
	}
	if accessToken != "" {
		sum := sha256.Sum256([]byte(accessToken))
		ath := base64.RawURLEncoding.EncodeToString(sum[:])
		if subtle.ConstantTimeCompare([]byte(ath), []byte(c.Ath)) != 1 {
			return refuse("ath is not the access token's")
		}
	}
	return key, c, nil
}

// sameURL compares htu with the request's URL without query and fragment,
// after the normalisation of RFC 3986 §6.2.2 and §6.2.3 that matters here.
func sameURL(htu, target string) bool {
	a, errA := url.Parse(htu)
	b, errB := url.Parse(target)
	if errA != nil || errB != nil || a.User != nil || a.Opaque != "" {
		return false
	}
	return strings.EqualFold(a.Scheme, b.Scheme) && hostOf(a) == hostOf(b) && pathOf(a) == pathOf(b)
}

func hostOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch strings.ToLower(u.Scheme) {
	case "https":
		return strings.TrimSuffix(host, ":443")
	case "http":
		return strings.TrimSuffix(host, ":80")
	}
	return host
}

func pathOf(u *url.URL) string {
	if p := u.EscapedPath(); p != "" {
		return p
	}
	return "/"
}

// Presented is a token as it came in a request.
type Presented struct {
	Scheme string   // of the Authorization header: Bearer or DPoP, any case
	Bearer string   // the token
	Method string   // of the request
	URL    string   // of the request, made from PUBLIC_URL
	Proofs []string // all DPoP headers
}

// Proven checks that what a token is bound to came with it: a bound token needs
// the scheme DPoP and exactly one good proof by that key, a plain one the scheme
// Bearer. proofKey is Caller.ProofKey or Requester.ProofKey. Refused is the
// constant refusal.Unauthenticated, as for an unknown token.
func (s *Store) Proven(ctx context.Context, proofKey string, p Presented) error {
	if proofKey == "" {
		if !strings.EqualFold(p.Scheme, "Bearer") {
			return errBearer
		}
		return nil
	}
	if !strings.EqualFold(p.Scheme, "DPoP") || len(p.Proofs) != 1 {
		return errBearer
	}
	jkt, err := s.VerifyProof(ctx, p.Method, p.URL, p.Proofs[0], p.Bearer)
	var refused *OAuthError
	if errors.As(err, &refused) {
		return errBearer.Because(err)
	}
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(jkt), []byte(proofKey)) != 1 {
		return errBearer
	}
	return nil
}
