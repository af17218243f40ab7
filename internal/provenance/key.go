package provenance

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	"filippo.io/edwards25519"
	jsonv2 "github.com/go-json-experiment/json"

	"switchboard/internal/refusal"
)

// PublicKey is an agent's key as a JWK with exactly the members that RFC 7638
// hashes: OKP with Ed25519, or EC with P-256.
type PublicKey struct {
	KTY string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y,omitempty"`
}

// ParsePublicKey decodes a JWK strictly: no other members, canonical base64url
// without padding, a point on the curve that is not of small order. Anything
// else is refusal.InvalidArgument.
func ParsePublicKey(raw []byte) (PublicKey, error) {
	var k PublicKey
	if err := parse(raw, true); err != nil {
		return PublicKey{}, err
	}
	if err := jsonv2.Unmarshal(raw, &k, jsonv2.RejectUnknownMembers(true)); err != nil {
		return PublicKey{}, refusal.Invalid("key", "key must hold exactly the members of RFC 7638").Because(err)
	}
	return k, k.check()
}

func (k PublicKey) check() error {
	if _, err := k.public(); err != nil {
		return refusal.Invalid("key", "%v", err)
	}
	return nil
}

func (k PublicKey) public() (crypto.PublicKey, error) {
	x, err := coordinate("x", k.X)
	if err != nil {
		return nil, err
	}
	switch {
	case k.KTY == "OKP" && k.Crv == "Ed25519":
		if k.Y != "" {
			return nil, errors.New("an OKP key has no y")
		}
		return edKey(x)
	case k.KTY == "EC" && k.Crv == "P-256":
		y, err := coordinate("y", k.Y)
		if err != nil {
			return nil, err
		}
		return ecKey(x, y)
	}
	return nil, errors.New("key must be OKP with Ed25519 or EC with P-256")
}

// edKey refuses what is no point, a second spelling of one, and the points of
// small order: for those anybody can make signatures that verify.
func edKey(x []byte) (crypto.PublicKey, error) {
	p, err := new(edwards25519.Point).SetBytes(x)
	if err != nil || string(p.Bytes()) != string(x) {
		return nil, errors.New("key.x is no point of Ed25519")
	}
	if new(edwards25519.Point).MultByCofactor(p).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return nil, errors.New("key.x is a point of small order")
	}
	return ed25519.PublicKey(x), nil
}

func ecKey(x, y []byte) (crypto.PublicKey, error) {
	if _, err := ecdh.P256().NewPublicKey(append(append([]byte{4}, x...), y...)); err != nil {
		return nil, errors.New("key is no point of P-256")
	}
	return &ecdsa.PublicKey{Curve: elliptic.P256(), X: new(big.Int).SetBytes(x), Y: new(big.Int).SetBytes(y)}, nil
}

func coordinate(name, text string) ([]byte, error) {
	b, err := decode64(text)
	if err != nil || len(b) != 32 {
		return nil, fmt.Errorf("key.%s must be 32 bytes in base64url without padding", name)
	}
	return b, nil
}

// Public returns the key for crypto: an ed25519.PublicKey, an
// *ecdsa.PublicKey, or nil for a PublicKey that was never checked.
func (k PublicKey) Public() crypto.PublicKey {
	p, err := k.public()
	if err != nil {
		return nil
	}
	return p
}

// JWK returns the key as canonical JSON.
func (k PublicKey) JWK() json.RawMessage { return canonicalOf(k) }

// Thumbprint returns the RFC 7638 SHA-256 thumbprint in base64url.
func (k PublicKey) Thumbprint() string { return hash64(k.JWK()) }

// Nonce returns the OpenID nonce that binds an ID token to one request at one
// persona of one instance by one key (specs/protocol.md section 3).
func Nonce(aud, persona, jkt, digest, salt string) string {
	return hash64(canonicalOf(map[string]any{
		"v": 1, "aud": aud, "persona": persona, "jkt": jkt, "digest": digest, "salt": salt,
	}))
}

// canonicalOf returns the RFC 8785 form of a value of ours. Values of ours have
// one; a failure is a fault of this package.
func canonicalOf(v any) json.RawMessage {
	b, err := jsonv2.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("provenance: a value of ours is no JSON: %v", err))
	}
	c, err := canonical(b)
	if err != nil {
		panic(fmt.Sprintf("provenance: a value of ours is no I-JSON: %v", err))
	}
	return c
}

func hash64(b []byte) string {
	sum := sha256.Sum256(b)
	return encode64(sum[:])
}

func encode64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode64 takes the one canonical spelling only: Go's decoder alone would
// skip line breaks and stray bits.
func decode64(s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || encode64(b) != s {
		return nil, errors.New("not canonical base64url without padding")
	}
	return b, nil
}
