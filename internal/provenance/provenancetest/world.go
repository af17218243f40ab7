package provenancetest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
)

// Client is the client id that every issuer of a World accepts for provenance.
const Client = "friend-client"

// LoginClient is the instance's own client there.
const LoginClient = "login-client"

// TenantID is the tenant of the person at the issuer "tenants".
const TenantID = "11111111-2222-3333-4444-555555555555"

// World is a target and the issuers around it, whose configuration and keys one
// loopback server hands out:
//
//	plain     accepted, no conditions; has the alias "plain.example"
//	strict    max_auth_age 3600, acr, amr, and all conditions
//	tenants   Entra's template, many tenants
//	login     people sign in there, but it is not trusted for provenance
//	shunned   trusted by the instance, but not by the persona
//	unknown   no entry at all
type World struct {
	Server  *httptest.Server
	Aud     string
	Persona string
	Now     time.Time

	// KeyFetches counts fetches of key sets.
	KeyFetches atomic.Int64
	// Fetches counts fetches of anything else, which nothing may cause except
	// discovery; Discoveries counts that.
	Fetches, Discoveries atomic.Int64

	mu        sync.Mutex
	published []jose.JSONWebKey
	cache     string
	broken    bool
	agents    map[string]*provenance.Key
}

// NewWorld starts a world. now is the time of the requests' tokens.
func NewWorld(t testing.TB, aud, persona string, now time.Time) *World {
	t.Helper()
	w := &World{Aud: aud, Persona: persona, Now: now, cache: "max-age=3600", agents: map[string]*provenance.Key{}}
	w.Server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.Server.Close)
	w.Publish("a", "short", "p256", "p384", "ed25519", "enc")
	for _, name := range []string{"agent", "other"} {
		k, err := provenance.NewKey()
		require.NoError(t, err)
		w.agents[name] = k
	}
	for _, name := range []string{"es256", "other-es256"} {
		w.agents[name] = newES256(t)
	}
	return w
}

func newES256(t testing.TB) *provenance.Key {
	t.Helper()
	p, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	k, err := provenance.KeyOf(p)
	require.NoError(t, err)
	return k
}

// Agent returns the agent's key of that name: agent, other, es256, other-es256.
func (w *World) Agent(name string) *provenance.Key { return w.agents[name] }

// signers are the issuers' private keys, shared by all worlds because RSA keys
// are slow to make. b is never published unless a test does.
var signers = sync.OnceValue(func() map[string]crypto.Signer {
	out := map[string]crypto.Signer{}
	must := func(k crypto.Signer, err error) crypto.Signer {
		if err != nil {
			panic(err)
		}
		return k
	}
	for name, bits := range map[string]int{"a": 2048, "b": 2048, "enc": 2048, "short": 1024} {
		k, err := rsa.GenerateKey(rand.Reader, bits)
		out[name] = must(k, err)
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	out["p256"] = must(k, err)
	k, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	out["p384"] = must(k, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	out["ed25519"] = must(ed, err)
	return out
})

// Publish makes the issuers' key set consist of these keys; kid is the name.
func (w *World) Publish(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published = nil
	for _, name := range names {
		use := "sig"
		if name == "enc" {
			use = "enc"
		}
		w.published = append(w.published, jose.JSONWebKey{Key: signers()[name].Public(), KeyID: name, Use: use})
	}
}

// Break makes the issuers answer 500, or heals them.
func (w *World) Break(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = broken
}

// Cache sets the Cache-Control of the key set.
func (w *World) Cache(value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cache = value
}

// URL returns the issuer of that name, as it stands in tokens. Nobody answers
// there: configuration and keys come from Server, as the entries say.
func (w *World) URL(name string) string {
	switch name {
	case "tenants-literal":
		return "https://tenants.issuer.example/{tenantid}/v2.0"
	case "tenants":
		return "https://tenants.issuer.example/" + TenantID + "/v2.0"
	}
	return "https://" + name + ".issuer.example"
}

// KeySet returns the published keys as a JWK set.
func (w *World) KeySet() jose.JSONWebKeySet {
	w.mu.Lock()
	defer w.mu.Unlock()
	return jose.JSONWebKeySet{Keys: w.published}
}

func (w *World) serve(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.broken:
		http.Error(rw, "down", http.StatusInternalServerError)
	case strings.HasPrefix(r.URL.Path, "/configuration/"):
		w.Discoveries.Add(1)
		issuer := w.URL(strings.TrimPrefix(r.URL.Path, "/configuration/"))
		_ = json.NewEncoder(rw).Encode(map[string]any{
			"issuer": issuer, "jwks_uri": w.Server.URL + "/keys", "authorization_endpoint": w.Server.URL + "/authorize", "token_endpoint": w.Server.URL + "/token",
		})
	case r.URL.Path == "/keys":
		w.KeyFetches.Add(1)
		rw.Header().Set("Cache-Control", w.cache)
		_ = json.NewEncoder(rw).Encode(jose.JSONWebKeySet{Keys: w.published})
	default:
		w.Fetches.Add(1)
		http.NotFound(rw, r)
	}
}

// Entries are the operator's issuer entries.
func (w *World) Entries() []provenance.Issuer {
	entry := func(name string) provenance.Issuer {
		return provenance.Issuer{
			Issuer: w.URL(name), Name: name, Discovery: w.Server.URL + "/configuration/" + name, Algs: []string{"RS256", "ES256", "EdDSA", "Ed25519"}, Identity: []string{"iss", "sub"},
			Provenance: &provenance.ProvenanceClients{ClientIDs: []string{Client, "second-client"}},
			Login:      &provenance.LoginClient{ClientID: LoginClient},
		}
	}
	plain := entry("plain")
	plain.Aliases = []string{"plain.example"}
	plain.EmailAuthoritativeFor = []string{"alice.example"}
	strict := entry("strict")
	strict.Provenance.MaxAuthAge = time.Hour
	strict.Provenance.ACR = []string{"gold", "platinum"}
	strict.Provenance.AMR = []string{"mfa"}
	strict.Conditions = provenance.Conditions{EmailDomain: []string{"alice.example"}, HostedDomain: []string{"alice.example"}, Tenant: []string{TenantID}}
	tenants := entry("tenants-literal")
	tenants.Identity = []string{"iss", "tid", "oid"}
	login := entry("login")
	login.Provenance = nil
	return []provenance.Issuer{plain, strict, tenants, login, entry("shunned")}
}

// MayAsk lists the issuers that the persona lets ask.
func (w *World) MayAsk() []string {
	return []string{w.URL("plain"), w.URL("strict"), w.URL("tenants-literal"), w.URL("login"), w.URL("unknown")}
}

// Target is what the world's requests are checked against.
func (w *World) Target() provenance.Target {
	return provenance.Target{Aud: w.Aud, Persona: w.Persona, Allowed: provenance.Only(w.MayAsk()...), Now: w.Now}
}
