package provenance

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// Key is an agent's private key. It stays with the requester; no server of ours
// ever sees one.
type Key struct {
	private crypto.Signer // ed25519.PrivateKey or *ecdsa.PrivateKey on P-256
	public  PublicKey
}

// NewKey makes an Ed25519 key.
func NewKey() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return KeyOf(private)
}

// KeyOf wraps an ed25519.PrivateKey or an *ecdsa.PrivateKey on P-256.
func KeyOf(private any) (*Key, error) {
	switch k := private.(type) {
	case ed25519.PrivateKey:
		x := encode64(k.Public().(ed25519.PublicKey))
		return &Key{private: k, public: PublicKey{KTY: "OKP", Crv: "Ed25519", X: x}}, nil
	case *ecdsa.PrivateKey:
		if k.Curve != elliptic.P256() {
			break
		}
		point, err := k.PublicKey.ECDH()
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		b := point.Bytes() // 4 || x || y
		return &Key{private: k, public: PublicKey{KTY: "EC", Crv: "P-256", X: encode64(b[1:33]), Y: encode64(b[33:])}}, nil
	}
	return nil, errors.New("key: neither Ed25519 nor P-256")
}

// ParseKey reads a PKCS #8 PEM block.
func ParseKey(text []byte) (*Key, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("key: no PEM block PRIVATE KEY")
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("key: not PKCS #8") // the cause could quote the key
	}
	return KeyOf(private)
}

// PEM returns the key as a PKCS #8 PEM block.
func (k *Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, errors.New("key: cannot be encoded")
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// LoadKey reads a key file. A file that others than its owner can read is
// refused, as ssh does.
func LoadKey(path string) (*Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("load key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("load key: others can read %s; chmod 600 it", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load key: %w", err)
	}
	return ParseKey(text)
}

// Save writes the key to a new private file; it never overwrites one, since an
// overwritten key loses its grants.
func (k *Key) Save(path string) error {
	text, err := k.PEM()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("save key: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("save key: %w", err)
	}
	if _, err := f.Write(text); err != nil {
		_ = f.Close()
		return fmt.Errorf("save key: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("save key: %w", err)
	}
	return nil
}

// Public returns the public half.
func (k *Key) Public() PublicKey { return k.public }

// Thumbprint returns the RFC 7638 thumbprint of the public half.
func (k *Key) Thumbprint() string { return k.public.Thumbprint() }

// SignJWT returns claims as a compact JWS. alg is set from the key; header
// gives the other members, say typ, or typ and jwk for a DPoP proof.
func (k *Key) SignJWT(header map[string]any, claims any) (string, error) {
	h := map[string]any{"alg": "EdDSA"}
	if k.public.KTY == "EC" {
		h["alg"] = "ES256"
	}
	for name, value := range header {
		h[name] = value
	}
	head, err := jsonv2.Marshal(h, jsonv2.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("sign: header: %w", err)
	}
	body, err := jsonv2.Marshal(claims, jsonv2.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("sign: claims: %w", err)
	}
	input := encode64(head) + "." + encode64(body)
	sig, err := k.sign([]byte(input))
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return input + "." + encode64(sig), nil
}

func (k *Key) sign(input []byte) ([]byte, error) {
	switch p := k.private.(type) {
	case ed25519.PrivateKey:
		return ed25519.Sign(p, input), nil
	case *ecdsa.PrivateKey:
		sum := sha256.Sum256(input)
		r, s, err := ecdsa.Sign(rand.Reader, p, sum[:])
		if err != nil {
			return nil, err
		}
		sig := make([]byte, 64) // RFC 7518 §3.4
		r.FillBytes(sig[:32])
		s.FillBytes(sig[32:])
		return sig, nil
	}
	return nil, errors.New("no private key")
}

// ThumbprintURN is the name that a key has as an OAuth client
// (specs/protocol.md section 4).
func ThumbprintURN(jkt string) string { return "urn:ietf:params:oauth:jwk-thumbprint:sha-256:" + jkt }

// ClientAssertion returns the RFC 7523 assertion by which the key asks the
// authorization server aud for a token, good for five minutes and for one use.
func ClientAssertion(k *Key, aud string, now time.Time) (string, error) {
	name := ThumbprintURN(k.Thumbprint())
	return k.SignJWT(map[string]any{"typ": "JWT"}, map[string]any{
		"iss": name, "sub": name, "aud": aud, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	})
}
