package provenance

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// compact is a compact JWS taken apart, nothing verified.
type compact struct {
	text      string
	alg       string
	typ       string
	kid       string
	header    map[string]jsontext.Value
	payload   []byte
	signature []byte
}

// parseCompact takes a compact JWS (RFC 7515 §7.1) apart: three segments in
// canonical base64url, a header that is a strict JSON object, a payload that is
// one. It refuses "crit" always: no extension of JWS is understood here, and
// one that is not understood must be refused (RFC 7515 §4.1.11).
func parseCompact(text string) (compact, error) {
	segments := strings.Split(text, ".")
	if len(segments) != 3 {
		return compact{}, errors.New("not a compact JWS of three segments")
	}
	var parts [3][]byte
	for i, s := range segments {
		b, err := decode64(s)
		if err != nil {
			return compact{}, fmt.Errorf("segment %d: %w", i+1, err)
		}
		parts[i] = b
	}
	c := compact{text: text, payload: parts[1], signature: parts[2]}
	if err := parse(parts[0], false); err != nil {
		return compact{}, errors.New("header: " + err.Error()) // unwrapped: a token that is no JSON does not make the body none
	}
	if err := jsonv2.Unmarshal(parts[0], &c.header); err != nil || c.header == nil {
		return compact{}, errors.New("header is no JSON object")
	}
	for name, to := range map[string]*string{"alg": &c.alg, "typ": &c.typ, "kid": &c.kid} {
		raw, there := c.header[name]
		if !there {
			continue
		}
		if raw.Kind() != '"' || jsonv2.Unmarshal(raw, to) != nil {
			return compact{}, fmt.Errorf("header: %s is no string", name)
		}
	}
	if _, there := c.header["crit"]; there {
		return compact{}, errors.New("header: crit is not understood")
	}
	if err := parse(c.payload, false); err != nil {
		return compact{}, errors.New("payload: " + err.Error())
	}
	if jsontext.Value(c.payload).Kind() != '{' {
		return compact{}, errors.New("payload is no JSON object")
	}
	return c, nil
}

// input returns the bytes that were signed.
func (c compact) input() []byte { return []byte(c.text[:strings.LastIndexByte(c.text, '.')]) }

// only reports an error when the header holds another member than these.
func (c compact) only(members ...string) error {
	for name := range c.header {
		if !slices.Contains(members, name) {
			return fmt.Errorf("header: %q has no place here", name)
		}
	}
	return nil
}

// verify checks the signature by an agent's key. The algorithm follows from the
// key, and the header has to agree.
func (c compact) verify(key crypto.PublicKey) error {
	good := false
	switch k := key.(type) {
	case ed25519.PublicKey:
		if c.alg != "EdDSA" && c.alg != "Ed25519" { // RFC 8037; RFC 9864's own name
			return fmt.Errorf("alg %q does not fit an Ed25519 key", c.alg)
		}
		good = len(k) == ed25519.PublicKeySize && ed25519.Verify(k, c.input(), c.signature)
	case *ecdsa.PublicKey:
		if c.alg != "ES256" {
			return fmt.Errorf("alg %q does not fit a P-256 key", c.alg)
		}
		if len(c.signature) == 64 { // RFC 7518 §3.4: r and s, 32 bytes each
			sum := sha256.Sum256(c.input())
			r, s := new(big.Int).SetBytes(c.signature[:32]), new(big.Int).SetBytes(c.signature[32:])
			good = ecdsa.Verify(k, sum[:], r, s)
		}
	default:
		return errors.New("no key to verify with")
	}
	if !good {
		return errors.New("the signature does not verify")
	}
	return nil
}

// VerifyJWT verifies a compact JWS by an agent's key and returns its payload, a
// strict JSON object. typ must be the header's typ exactly; typ "" is for client
// assertions and takes an absent one, JWT, and client-authentication+jwt
// (draft-ietf-oauth-rfc7523bis). The header may hold alg, typ and kid and nothing else, so
// that no key (jwk, jku, x5c, x5u) can come with the token; kid is ignored. The
// error is for the log, not for outside.
func VerifyJWT(token string, key PublicKey, typ string) ([]byte, error) {
	c, err := parseCompact(token)
	if err != nil {
		return nil, err
	}
	if err := c.only("alg", "typ", "kid"); err != nil {
		return nil, err
	}
	if c.typ != typ && (typ != "" || !strings.EqualFold(c.typ, "JWT") && c.typ != "client-authentication+jwt") {
		return nil, fmt.Errorf("header: typ %q", c.typ)
	}
	if err := c.verify(key.Public()); err != nil {
		return nil, err
	}
	return c.payload, nil
}

// VerifyProof verifies a DPoP proof's form and signature (RFC 9449 §4.3, points
// 2 to 7) and returns the key it was made with and its claims; htm, htu, ath,
// iat and jti are the caller's to check.
func VerifyProof(proof string) (PublicKey, []byte, error) {
	c, err := parseCompact(proof)
	if err != nil {
		return PublicKey{}, nil, err
	}
	if err := c.only("alg", "typ", "jwk", "kid"); err != nil {
		return PublicKey{}, nil, err
	}
	if c.typ != "dpop+jwt" {
		return PublicKey{}, nil, fmt.Errorf("header: typ %q", c.typ)
	}
	key, err := ParsePublicKey(c.header["jwk"])
	if err != nil {
		return PublicKey{}, nil, fmt.Errorf("header: jwk: %w", err)
	}
	if err := c.verify(key.Public()); err != nil {
		return PublicKey{}, nil, err
	}
	return key, c.payload, nil
}
