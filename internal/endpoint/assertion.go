package endpoint

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"switchboard/internal/provenance"
)

// ClientIDPrefix stands before a key's RFC 7638 thumbprint in its client id
// (RFC 9278).
const ClientIDPrefix = "urn:ietf:params:oauth:jwk-thumbprint:sha-256:"

const (
	maxAssertion     = 8 << 10 // bytes
	maxJTI           = 256     // bytes
	assertionSeconds = 300
	leewaySeconds    = 60
)

// assertionClaims are those of RFC 7523 §3. aud is a string here: an assertion
// for several audiences could be replayed at another.
type assertionClaims struct {
	Iss string   `json:"iss"`
	Sub string   `json:"sub"`
	Aud string   `json:"aud"`
	JTI string   `json:"jti"`
	Exp *float64 `json:"exp"`
	Iat *float64 `json:"iat"`
	Nbf *float64 `json:"nbf"`
}

// issuerOf reads the thumbprint of the key that an assertion claims to be by.
// Nothing is verified: it only says which key to look for.
func issuerOf(assertion string) (thumbprint string, err error) {
	if len(assertion) > maxAssertion {
		return "", errors.New("assertion too long")
	}
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return "", errors.New("not a compact JWS")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("payload: %w", err)
	}
	var claims struct {
		Iss string `json:"iss"`
	}
	if err := jsonv2.Unmarshal(payload, &claims); err != nil {
		return "", fmt.Errorf("payload: %w", err)
	}
	thumbprint, ok := strings.CutPrefix(claims.Iss, ClientIDPrefix)
	if !ok || len(thumbprint) != base64.RawURLEncoding.EncodedLen(32) {
		return "", errors.New("iss names no key")
	}
	return thumbprint, nil
}

// checkAssertion verifies an assertion by this key (specs/protocol.md section
// 4.1) and returns its jti and when it stops being good, leeway included.
func checkAssertion(assertion, clientID, audience string, key provenance.PublicKey, now time.Time) (jti string, until time.Time, err error) {
	payload, err := provenance.VerifyJWT(assertion, key, "")
	if err != nil {
		return "", time.Time{}, err
	}
	var c assertionClaims
	if err := jsonv2.Unmarshal(payload, &c); err != nil {
		return "", time.Time{}, fmt.Errorf("claims: %w", err)
	}
	id := ClientIDPrefix + key.Thumbprint()
	seconds := float64(now.UnixMicro()) / 1e6
	switch {
	case c.Iss != id || c.Sub != id:
		return "", time.Time{}, errors.New("iss and sub are not the key's client id")
	case clientID != "" && clientID != id:
		return "", time.Time{}, errors.New("client_id is another")
	case c.Aud != audience:
		return "", time.Time{}, errors.New("aud is not this instance")
	case c.JTI == "" || len(c.JTI) > maxJTI:
		return "", time.Time{}, errors.New("jti is missing or too long")
	case c.Exp == nil:
		return "", time.Time{}, errors.New("exp is missing")
	case *c.Exp+leewaySeconds <= seconds:
		return "", time.Time{}, errors.New("expired")
	case *c.Exp > seconds+assertionSeconds+leewaySeconds:
		return "", time.Time{}, errors.New("exp is too far ahead")
	case c.Iat != nil && *c.Iat > seconds+leewaySeconds:
		return "", time.Time{}, errors.New("iat is in the future")
	case c.Nbf != nil && *c.Nbf > seconds+leewaySeconds:
		return "", time.Time{}, errors.New("not yet good")
	}
	return c.JTI, time.UnixMicro(int64((*c.Exp + leewaySeconds) * 1e6)), nil
}

// VerifyAssertion verifies a client assertion by a registered key and returns
// its thumbprint. It is good once: a second time it is refused, on any replica.
// Whatever is wrong, the error is invalid_client; slow_down is for a key that
// asks too often.
func (s *Store) VerifyAssertion(ctx context.Context, assertion, clientID string) (thumbprint string, err error) {
	thumbprint, err = issuerOf(assertion)
	if err != nil {
		return "", errClient.because(err)
	}
	var jwk []byte
	err = s.pool.QueryRow(ctx, `SELECT jwk FROM endpoint_key WHERE thumbprint = $1`, thumbprint).Scan(&jwk)
	if none(err) {
		return "", errClient.because(errors.New("unknown key"))
	}
	if err != nil {
		return "", fmt.Errorf("find the key of an assertion: %w", err)
	}
	key, err := provenance.ParsePublicKey(jwk)
	if err != nil {
		return "", fmt.Errorf("stored key %s: %w", thumbprint, err)
	}
	return thumbprint, s.VerifyAssertionBy(ctx, assertion, clientID, key)
}

// VerifyAssertionBy is VerifyAssertion for a key that is not registered yet: the
// key of a friend request whose sign-in is being completed.
func (s *Store) VerifyAssertionBy(ctx context.Context, assertion, clientID string, key provenance.PublicKey) error {
	if len(assertion) > maxAssertion {
		return errClient.because(errors.New("assertion too long"))
	}
	var now time.Time
	if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	jti, until, err := checkAssertion(assertion, clientID, s.o.PublicURL, key, now)
	if err != nil {
		return errClient.because(err)
	}
	if !s.keys.allow(key.Thumbprint()) { // whoever signs, and before anything is stored
		return errSlow
	}
	tag, err := s.pool.Exec(ctx, `
		INSERT INTO endpoint_seen (id, until) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`,
		hashOf("assertion", key.Thumbprint(), jti), until)
	if err != nil {
		return fmt.Errorf("remember an assertion: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errClient.because(errors.New("jti was used before"))
	}
	return nil
}
