package specs_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/provenance"
)

// run runs one of the Node programs for outsiders; they share no code with the
// server.
func run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	cmd := exec.CommandContext(t.Context(), node, args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, stderr.String())
	return string(bytes.TrimSpace(out))
}

func TestVectorsHoldForAProgramThatSharesNoCode(t *testing.T) {
	t.Parallel()
	t.Log(run(t, nil, "friend-request/verify_vectors.mjs"))
}

func TestTheWorkedExampleMakesAGoodRequest(t *testing.T) {
	t.Parallel()
	idp, err := devidp.Start(t.Context(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, idp.Close()) })
	entry := provenance.Issuer{Issuer: idp.Issuer(), Algs: []string{"ES256"}, Identity: []string{"iss", "sub"},
		Provenance: &provenance.ProvenanceClients{ClientIDs: []string{devidp.FriendClient}}}
	card := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		params := map[string]any{"v": 1, "aud": "https://bob.example", "persona": "reviewer", "issuers": []any{map[string]any{
			"issuer": idp.Issuer(), "client_id": devidp.FriendClient, "redirect_uris": []string{"http://127.0.0.1/callback"}, "scope": "openid email",
		}}}
		_ = json.NewEncoder(w).Encode(map[string]any{"capabilities": map[string]any{"extensions": []any{
			map[string]any{"uri": "urn:switchboard:a2a:friend-request:v1", "params": params},
		}}})
	}))
	t.Cleanup(card.Close)
	env := []string{"LOGIN_HINT=alice", "KEY_FILE=" + filepath.Join(t.TempDir(), "key.pem")}

	raw := run(t, env, "friend-request/example.mjs", "part", card.URL, "reviews", "create_for,todo_status")
	part, err := provenance.DecodePart([]byte(raw))
	require.NoError(t, err)
	v := provenance.NewVerifier([]provenance.Issuer{entry}, provenance.NewKeys(provenance.GuardedClient(true)))
	now := time.Now() // the example and the development issuer run on this machine's clock
	got, err := v.Verify(t.Context(), provenance.Target{Aud: "https://bob.example", Persona: "reviewer", Allowed: provenance.Anyone(), Now: now}, part)
	require.NoError(t, err)
	require.NoError(t, got.CheckTimes(now))
	require.NoError(t, got.CheckConditions())

	assertion := run(t, env, "friend-request/example.mjs", "assertion", "https://bob.example")
	_, err = provenance.VerifyJWT(assertion, part.Key, "")
	require.NoError(t, err)
}
