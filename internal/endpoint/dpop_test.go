package endpoint_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/provenance"
)

// prove makes a DPoP proof with these claims over good ones; nil removes.
func prove(t *testing.T, key *provenance.Key, method, url, accessToken string, bend map[string]any) string {
	t.Helper()
	claims := map[string]any{"jti": rand.Text(), "htm": method, "htu": url, "iat": time.Now().Unix()}
	if accessToken != "" {
		sum := sha256.Sum256([]byte(accessToken))
		claims["ath"] = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	for k, v := range bend {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	proof, err := key.SignJWT(map[string]any{"typ": "dpop+jwt", "jwk": key.Public().JWK()}, claims)
	require.NoError(t, err)
	return proof
}

const tokenURL = public + "/oauth/token"

func TestProofsThatProveNothing(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	now := time.Now().Unix()
	bent := func(bend map[string]any) string { return prove(t, b.alice, "POST", tokenURL, "sbt_x", bend) }
	raw := func(header map[string]any) string {
		sum := sha256.Sum256([]byte("sbt_x"))
		proof, err := b.alice.SignJWT(header, map[string]any{"jti": rand.Text(), "htm": "POST", "htu": tokenURL, "iat": now, "ath": base64.RawURLEncoding.EncodeToString(sum[:])})
		require.NoError(t, err)
		return proof
	}
	stranger, err := provenance.NewKey()
	require.NoError(t, err)
	good := strings.Split(bent(nil), ".")

	for name, proof := range map[string]string{
		"nothing":               "",
		"another method":        bent(map[string]any{"htm": "GET"}),
		"method in lower case":  bent(map[string]any{"htm": "post"}),
		"another URL":           bent(map[string]any{"htu": public + "/oauth/revoke"}),
		"another host":          bent(map[string]any{"htu": "https://carol.example/oauth/token"}),
		"another scheme":        bent(map[string]any{"htu": "http://bob.example/oauth/token"}),
		"no URL":                bent(map[string]any{"htu": nil}),
		"old":                   bent(map[string]any{"iat": now - 120}),
		"of tomorrow":           bent(map[string]any{"iat": now + 120}),
		"no iat":                bent(map[string]any{"iat": nil}),
		"iat of no date":        bent(map[string]any{"iat": 1e300}),
		"negative iat":          bent(map[string]any{"iat": -1}),
		"no jti":                bent(map[string]any{"jti": nil}),
		"long jti":              bent(map[string]any{"jti": strings.Repeat("x", 257)}),
		"of another token":      bent(map[string]any{"ath": "x"}),
		"of no token":           bent(map[string]any{"ath": nil}),
		"no typ":                raw(map[string]any{"jwk": b.alice.Public().JWK()}),
		"typ of an assertion":   raw(map[string]any{"typ": "JWT", "jwk": b.alice.Public().JWK()}),
		"no key":                raw(map[string]any{"typ": "dpop+jwt"}),
		"another's key":         raw(map[string]any{"typ": "dpop+jwt", "jwk": stranger.Public().JWK()}),
		"another's signature":   good[0] + "." + good[1] + "." + strings.Split(prove(t, stranger, "POST", tokenURL, "sbt_x", nil), ".")[2],
		"a private key in it":   raw(map[string]any{"typ": "dpop+jwt", "jwk": map[string]any{"kty": "OKP", "crv": "Ed25519", "x": b.alice.Public().X, "d": "AA"}}),
		"a symmetric key":       raw(map[string]any{"typ": "dpop+jwt", "jwk": map[string]any{"kty": "oct", "k": "AA"}}),
		"longer than we'd read": bent(map[string]any{"x": strings.Repeat("x", 9000)}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.store.VerifyProof(t.Context(), "POST", tokenURL, proof, "sbt_x")
			oauthError(t, err, "invalid_dpop_proof")
		})
	}

	for name, proof := range map[string]string{
		"good":                bent(nil),
		"query and fragment":  bent(map[string]any{"htu": tokenURL + "?x=1#y"}),
		"spelled differently": bent(map[string]any{"htu": "HTTPS://BOB.example:443/oauth/token"}),
		"half a minute off":   bent(map[string]any{"iat": now - 30}),
	} {
		jkt, err := b.store.VerifyProof(t.Context(), "POST", tokenURL, proof, "sbt_x")
		require.NoError(t, err, name)
		require.Equal(t, b.alice.Thumbprint(), jkt)
		_, err = b.other.VerifyProof(t.Context(), "POST", tokenURL, proof, "sbt_x")
		oauthError(t, err, "invalid_dpop_proof") // once, on all replicas
	}
}

func TestABoundTokenNeedsItsProof(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	url := mcpURL(id)
	stranger, err := provenance.NewKey()
	require.NoError(t, err)
	_, err = b.store.IssueForKey(ctx, endpoint.KeyGrant{Assertion: sign(t, b.alice, nil), Resource: url, ProofKey: stranger.Thumbprint()})
	oauthError(t, err, "invalid_dpop_proof")
	bound, err := b.store.IssueForKey(ctx, endpoint.KeyGrant{Assertion: sign(t, b.alice, nil), Resource: url, ProofKey: b.alice.Thumbprint()})
	require.NoError(t, err)
	require.True(t, bound.DPoP)
	c, err := b.store.Authenticate(ctx, id, bound.Access)
	require.NoError(t, err)
	require.Equal(t, b.alice.Thumbprint(), c.ProofKey)

	presented := func(scheme string, proofs ...string) endpoint.Presented {
		return endpoint.Presented{Scheme: scheme, Bearer: bound.Access, Method: "POST", URL: url, Proofs: proofs}
	}
	good := func() string { return prove(t, b.alice, "POST", url, bound.Access, nil) }
	require.NoError(t, b.store.Proven(ctx, c.ProofKey, presented("dpop", good())))
	spent := good()
	require.NoError(t, b.store.Proven(ctx, c.ProofKey, presented("DPoP", spent)))
	for name, p := range map[string]endpoint.Presented{
		"as a plain bearer": presented("Bearer", good()),
		"without proof":     presented("DPoP"),
		"two proofs":        presented("DPoP", good(), good()),
		"a proof again":     presented("DPoP", spent),
		"another's proof":   presented("DPoP", prove(t, stranger, "POST", url, bound.Access, nil)),
		"for another token": presented("DPoP", prove(t, b.alice, "POST", url, "sbt_y", nil)),
		"for another URL":   presented("DPoP", prove(t, b.alice, "POST", tokenURL, bound.Access, nil)),
	} {
		t.Run(name, func(t *testing.T) { unauthenticated(t, b.store.Proven(ctx, c.ProofKey, p)) })
	}
	require.NoError(t, b.store.Proven(ctx, "", presented("bearer")))
	unauthenticated(t, b.store.Proven(ctx, "", presented("DPoP", good())))
}
