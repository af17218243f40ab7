package provenancetest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"
)

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// digestOf is written out here on its own, so that the world does not prove
// the package with the package.
func digestOf(t testing.TB, part map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(part)
	require.NoError(t, err)
	text, err := jcs.Transform(raw)
	if err != nil {
		return "no digest" // a part that has none is refused before anybody looks
	}
	sum := sha256.Sum256(text)
	return encode(sum[:])
}

// jws makes a compact JWS, changed as described.
func (w *World) jws(t testing.TB, how JWS, signer string, header, claims map[string]any) string {
	t.Helper()
	if how.Text != nil {
		return w.text(*how.Text)
	}
	merge(claims, w.expand(how.Claims).(map[string]any))
	merge(header, w.expand(how.Header).(map[string]any))
	if how.Alg != "" {
		header["alg"] = how.Alg
	}
	head, err := json.Marshal(header)
	require.NoError(t, err)
	if how.HeaderRaw != nil {
		head = []byte(w.text(*how.HeaderRaw))
	}
	body, err := json.Marshal(claims)
	require.NoError(t, err)
	if how.Payload != nil {
		body = []byte(w.text(*how.Payload))
	}
	input := encode(head) + "." + encode(body)
	private := w.signer(t, or(how.SignedBy, signer))
	var sig []byte
	if how.HMAC != "" {
		mac := hmac.New(sha256.New, secret(t, how.HMAC, private))
		mac.Write([]byte(input))
		sig = mac.Sum(nil)
	} else {
		sig = sign(t, private, []byte(input))
	}
	sig = spoil(t, how.Signature, sig)
	if how.After != nil {
		merge(claims, w.expand(how.After).(map[string]any))
		body, err = json.Marshal(claims)
		require.NoError(t, err)
		input = encode(head) + "." + encode(body)
	}
	return how.Prepend + input + "." + encode(sig) + how.Append
}

// signer finds a private key by name among the issuers' and the agents'.
func (w *World) signer(t testing.TB, name string) crypto.Signer {
	t.Helper()
	if s, ok := signers()[name]; ok {
		return s
	}
	key, ok := w.agents[name]
	require.True(t, ok, "no key %q", name)
	text, err := key.PEM()
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	return private.(crypto.Signer)
}

func sign(t testing.TB, key crypto.Signer, input []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(input)
	switch k := key.(type) {
	case ed25519.PrivateKey:
		return ed25519.Sign(k, input)
	case *rsa.PrivateKey:
		sig, err := rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
		require.NoError(t, err)
		return sig
	case *ecdsa.PrivateKey:
		size := (k.Params().BitSize + 7) / 8
		r, s, err := ecdsa.Sign(rand.Reader, k, sum[:])
		require.NoError(t, err)
		sig := make([]byte, 2*size)
		r.FillBytes(sig[:size])
		s.FillBytes(sig[size:])
		return sig
	}
	t.Fatalf("cannot sign with %T", key)
	return nil
}

// secret spells a public key as the HMAC secret that a confused verifier would
// take it for.
func secret(t testing.TB, spelling string, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	switch spelling {
	case "pem":
		return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	case "der":
		return der
	case "jwk":
		b, err := jose.JSONWebKey{Key: key.Public()}.MarshalJSON()
		require.NoError(t, err)
		return b
	case "n":
		return key.Public().(*rsa.PublicKey).N.Bytes()
	case "x":
		return key.Public().(ed25519.PublicKey)
	case "empty":
		return nil
	}
	t.Fatalf("no spelling %q", spelling)
	return nil
}

func spoil(t testing.TB, how string, sig []byte) []byte {
	t.Helper()
	switch how {
	case "":
		return sig
	case "none":
		return nil
	case "zeros":
		return make([]byte, len(sig))
	case "short":
		return sig[:len(sig)-1]
	case "long":
		return append(sig, 0)
	case "flipped":
		sig[len(sig)/2] ^= 1
		return sig
	case "der": // ECDSA in ASN.1, as X.509 has it and JWS has not
		half := len(sig) / 2
		der, err := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(sig[:half]), new(big.Int).SetBytes(sig[half:])})
		require.NoError(t, err)
		return der
	case "random":
		_, err := rand.Read(sig)
		require.NoError(t, err)
		return sig
	}
	t.Fatalf("no spoiling %q", strings.ToLower(how))
	return nil
}

// SignBytes signs header and payload as they are, with a key of the world by
// name.
func (w *World) SignBytes(t testing.TB, signer string, header, payload []byte) string {
	t.Helper()
	input := encode(header) + "." + encode(payload)
	return input + "." + encode(sign(t, w.signer(t, signer), []byte(input)))
}
