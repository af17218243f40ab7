package devidp

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

// RotateKey makes a new signing key. The old ones stay published, as providers
// do while tokens signed with them live; WithdrawOldKeys ends that.
func (p *Provider) RotateKey() error {
	key, err := newKey(p.options.Algorithm)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = append([]jose.JSONWebKey{key}, p.keys...)
	return nil
}

// WithdrawOldKeys leaves only the current signing key published.
func (p *Provider) WithdrawOldKeys() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = p.keys[:1:1]
}

// JWKSFetches returns how often the keys have been fetched.
func (p *Provider) JWKSFetches() int { return int(p.jwksFetches.Load()) }

// Sign returns claims as a JWT under the current key: any ID token that a test
// wants to see judged, true or not.
func (p *Provider) Sign(claims map[string]any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	p.mu.Lock()
	key := p.keys[0]
	p.mu.Unlock()
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("prepare signature: %w", err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("sign claims: %w", err)
	}
	return jws.CompactSerialize()
}

func (p *Provider) serveKeys(w http.ResponseWriter, _ *http.Request) {
	p.jwksFetches.Add(1)
	p.mu.Lock()
	set := jose.JSONWebKeySet{}
	for _, key := range p.keys {
		set.Keys = append(set.Keys, key.Public())
	}
	p.mu.Unlock()
	w.Header().Set("Cache-Control", fmt.Sprintf("max-age=%d", int(p.options.KeysMaxAge.Seconds())))
	writeJSON(w, http.StatusOK, set)
}

// newKey makes a private key whose kid is its RFC 7638 thumbprint.
func newKey(alg jose.SignatureAlgorithm) (jose.JSONWebKey, error) {
	key := jose.JSONWebKey{Algorithm: string(alg), Use: "sig"}
	var err error
	switch alg {
	case jose.RS256:
		key.Key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		key.Key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		err = fmt.Errorf("algorithm %q is neither RS256 nor ES256", alg)
	}
	if err != nil {
		return key, fmt.Errorf("make signing key: %w", err)
	}
	thumbprint, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return key, fmt.Errorf("name signing key: %w", err)
	}
	key.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)
	return key, nil
}
