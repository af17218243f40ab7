package provenance

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"switchboard/internal/scope"
)

const (
	testAud     = "https://bob.example"
	testPersona = "reviewer"
	testClient  = "friend-client"
)

// testNow is fixed: times reach the package as arguments only.
var testNow = time.Unix(1_790_000_000, 0)

// testIssuer is an OpenID issuer over HTTP with real keys.
type testIssuer struct {
	*httptest.Server
	fetches   atomic.Int64 // of the key set
	mu        sync.Mutex
	keys      []jose.JSONWebKey
	broken    bool
	cache     string
	documents func(w http.ResponseWriter) // replaces the discovery document
}

// rsaKeys are slow to make and shared.
var rsaKeys = sync.OnceValue(func() map[string]*rsa.PrivateKey {
	out := map[string]*rsa.PrivateKey{}
	for name, bits := range map[string]int{"a": 2048, "b": 2048, "short": 1024} {
		k, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			panic(err)
		}
		out[name] = k
	}
	return out
})

func newTestIssuer(t testing.TB) *testIssuer {
	t.Helper()
	i := &testIssuer{cache: "max-age=3600"}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if i.documents != nil {
			i.documents(w)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.broken {
			http.Error(w, "down", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Cache-Control", i.cache)
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: i.keys})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	i.publish(jose.JSONWebKey{Key: rsaKeys()["a"].Public(), KeyID: "a", Algorithm: "RS256", Use: "sig"})
	return i
}

func (i *testIssuer) publish(keys ...jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
}

func (i *testIssuer) setBroken(b bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.broken = b
}

func (i *testIssuer) entry() Issuer {
	return Issuer{
		Issuer: i.URL, Name: "test", Algs: []string{"RS256", "ES256", "EdDSA", "Ed25519"}, Identity: []string{"iss", "sub"},
		Provenance: &ProvenanceClients{ClientIDs: []string{testClient}},
		Login:      &LoginClient{ClientID: "login-client"},
	}
}

// jwt signs claims with any key and any header, sound or not.
func jwt(t testing.TB, key crypto.Signer, alg string, header map[string]any, claims any) string {
	t.Helper()
	h := map[string]any{"alg": alg}
	for k, v := range header {
		h[k] = v
	}
	head, err := json.Marshal(h)
	require.NoError(t, err)
	body, ok := claims.([]byte)
	if !ok {
		body, err = json.Marshal(claims)
		require.NoError(t, err)
	}
	return signRaw(t, key, alg, head, body)
}

func signRaw(t testing.TB, key crypto.Signer, alg string, head, body []byte) string {
	t.Helper()
	input := encode64(head) + "." + encode64(body)
	var sig []byte
	var err error
	switch k := key.(type) {
	case *rsa.PrivateKey:
		sum := crypto.SHA256.New()
		sum.Write([]byte(input))
		sig, err = k.Sign(rand.Reader, sum.Sum(nil), crypto.SHA256)
	case ed25519.PrivateKey:
		sig = ed25519.Sign(k, []byte(input))
	case *ecdsa.PrivateKey:
		hash := map[string]crypto.Hash{"ES256": crypto.SHA256, "ES384": crypto.SHA384}[alg]
		sum := hash.New()
		sum.Write([]byte(input))
		size := (k.Params().BitSize + 7) / 8
		r, s, e := ecdsa.Sign(rand.Reader, k, sum.Sum(nil))
		err = e
		sig = make([]byte, 2*size)
		r.FillBytes(sig[:size])
		s.FillBytes(sig[size:])
	default:
		t.Fatalf("cannot sign with %T", key)
	}
	require.NoError(t, err)
	return input + "." + encode64(sig)
}

func newES256(t testing.TB) *Key {
	t.Helper()
	p, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	k, err := keyOf(p)
	require.NoError(t, err)
	return k
}

func newTestKey(t testing.TB) *Key {
	t.Helper()
	k, err := NewKey()
	require.NoError(t, err)
	return k
}

func testRequest() Request {
	open := int64(20)
	return Request{
		From:   From{Name: "release-bot", Card: "https://alice.example/a2a/release-bot/.well-known/agent-card.json"},
		Reason: "Hand you pull requests that touch billing for review.",
		Scope:  scope.Asked{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Partial{MaxOpen: &open}},
	}
}

func (i *testIssuer) claims(nonce string) map[string]any {
	return map[string]any{
		"iss": i.URL, "sub": "alice", "aud": testClient, "azp": testClient, "nonce": nonce, "iat": testNow.Unix(), "exp": testNow.Unix() + 300,
		"auth_time": testNow.Unix(), "email": "alice@alice.example", "email_verified": true, "name": "Alice",
	}
}

// obtain answers a good ID token for the nonce, changed by bend.
func (i *testIssuer) obtain(t testing.TB, bend func(map[string]any)) func(context.Context, string) (string, error) {
	return func(_ context.Context, nonce string) (string, error) {
		c := i.claims(nonce)
		if bend != nil {
			bend(c)
		}
		return jwt(t, rsaKeys()["a"], "RS256", map[string]any{"kid": "a", "typ": "JWT"}, c), nil
	}
}

func testTarget() Target {
	return Target{Aud: testAud, Persona: testPersona, Allowed: Anyone(), Now: testNow}
}

func at(now time.Time) func() time.Time { return func() time.Time { return now } }

// good builds a request that must pass and everything to check it with.
func good(t testing.TB, i *testIssuer, k *Key, bend func(map[string]any)) Part {
	t.Helper()
	raw, err := Build(t.Context(), k, testRequest(), To{testAud, testPersona}, at(testNow), i.obtain(t, bend))
	require.NoError(t, err)
	p, err := DecodePart(raw)
	require.NoError(t, err)
	return p
}

func newTestVerifier(entries ...Issuer) *Verifier {
	return NewVerifier(entries, NewKeys(GuardedClient(true)))
}
