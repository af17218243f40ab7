package provenance_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
)

func TestAnAgentsKeyIsKeptInAPrivateFile(t *testing.T) {
	t.Parallel()
	key, err := provenance.NewKey()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "keys", "grant.pem")
	require.NoError(t, key.Save(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	loaded, err := provenance.LoadKey(path)
	require.NoError(t, err)
	require.Equal(t, key.Thumbprint(), loaded.Thumbprint())
	require.ErrorIs(t, key.Save(path), os.ErrExist, "an overwritten key would lose its grants")
	require.NoError(t, os.Chmod(path, 0o640))
	_, err = provenance.LoadKey(path)
	require.ErrorContains(t, err, "others can read")
}

func TestAClientAssertionIsWhatTheTokenEndpointAsksFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"agent", "es256"} {
		key := w.Agent(name)
		text, err := provenance.ClientAssertion(key, testAud, testNow)
		require.NoError(t, err)
		payload, err := provenance.VerifyJWT(text, key.Public(), "")
		require.NoError(t, err)
		var claims struct {
			Iss, Sub, Aud, JTI string
			Iat, Exp           int64
		}
		require.NoError(t, json.Unmarshal(payload, &claims))
		require.Equal(t, "urn:ietf:params:oauth:jwk-thumbprint:sha-256:"+key.Thumbprint(), claims.Iss)
		require.Equal(t, claims.Iss, claims.Sub)
		require.Equal(t, testAud, claims.Aud)
		require.Equal(t, int64(300), claims.Exp-claims.Iat)
		require.NotEmpty(t, claims.JTI)
		_, err = provenance.VerifyJWT(text, key.Public(), provenance.StatementType)
		require.Error(t, err, "an assertion is no statement")
		_, err = provenance.VerifyJWT(text, w.Agent("other").Public(), "")
		require.Error(t, err)
	}
}

func TestAProofBringsItsKeyAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.Agent("es256")
	proof, err := key.SignJWT(map[string]any{"typ": "dpop+jwt", "jwk": key.Public()}, map[string]any{"jti": "1"})
	require.NoError(t, err)
	got, payload, err := provenance.VerifyProof(proof)
	require.NoError(t, err)
	require.Equal(t, key.Thumbprint(), got.Thumbprint())
	require.JSONEq(t, `{"jti":"1"}`, string(payload))
	for name, header := range map[string]map[string]any{
		"another key":   {"typ": "dpop+jwt", "jwk": w.Agent("other-es256").Public()},
		"a private key": {"typ": "dpop+jwt", "jwk": map[string]any{"kty": "EC", "crv": "P-256", "x": key.Public().X, "y": key.Public().Y, "d": "AA"}},
		"no key":        {"typ": "dpop+jwt"},
		"no typ":        {"jwk": key.Public()},
	} {
		proof, err := key.SignJWT(header, map[string]any{"jti": "1"})
		require.NoError(t, err)
		_, _, err = provenance.VerifyProof(proof)
		require.Error(t, err, name)
	}
}
