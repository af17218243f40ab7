package oauth_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/human"
	"switchboard/internal/oauth"
	"switchboard/internal/persona"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/scope"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// testBundle is bob's instance over HTTP, with alice, bob and carol signed in
// by a cookie of their name.
type testBundle struct {
	url       string // PUBLIC_URL
	endpoints *endpoint.Store
	people    map[string]human.Human
	key       *provenance.Key // alice's agent
	peer      uuid.UUID       // vended to it
	home      uuid.UUID
	signIns   func(ctx context.Context, s oauth.SignIn) error
	client    *document
}

type personas struct{ one persona.Persona }

func (p personas) Hold(context.Context, pgx.Tx, uuid.UUID, uuid.UUID) (persona.Persona, error) {
	return p.one, nil
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

var granted = scope.Scope{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Defaults()}

func setup(t *testing.T) *testBundle {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b := &testBundle{url: server.URL, people: map[string]human.Human{}, client: newDocument(t)}
	for _, name := range []string{"alice", "bob", "carol"} {
		sum := sha256.Sum256([]byte(name))
		b.people[name] = human.Human{ID: newID(), Name: name, Issuer: "https://issuer.example", Subject: name, Identity: sum[:]}
	}
	bob := b.people["bob"]
	p := persona.Persona{ID: newID(), Owner: bob.ID, AgentID: newID(), Slug: "reviewer", Queues: []string{"reviews"}}
	pool := pgtest.Pool(t)
	b.endpoints = endpoint.New(pool, endpoint.Options{PublicURL: b.url, Personas: personas{p}})
	oauth.New(oauth.Deps{
		PublicURL: b.url, Endpoints: b.endpoints, Dev: true, Session: b.session,
		RedeemSignIn: func(ctx context.Context, s oauth.SignIn) error { return b.signIns(ctx, s) },
	}).Routes(mux)

	var err error
	b.key, err = provenance.NewKey()
	require.NoError(t, err)
	b.peer = newID()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		alice := b.people["alice"].Identity
		if err := b.endpoints.RegisterKey(t.Context(), tx, b.key.Thumbprint(), b.key.Public().JWK(), "reviewer", alice); err != nil {
			return err
		}
		return b.endpoints.VendPeer(t.Context(), tx, endpoint.PeerSpec{
			ID: b.peer, Owner: bob.ID, AgentID: p.AgentID, PersonaID: p.ID, Persona: p.Slug, GrantID: newID(), Line: newID(), Scope: granted,
			Identity: alice, CallsItself: "release-bot", KeyThumbprint: b.key.Thumbprint(), ExpiresAt: time.Now().Add(time.Hour),
		})
	}))
	home, _, err := b.endpoints.CreateHome(t.Context(), bob.ID, endpoint.HomeSpec{AgentID: p.AgentID, PersonaID: p.ID})
	require.NoError(t, err)
	b.home = home.ID
	return b
}

func (b *testBundle) session(r *http.Request) (human.Session, bool) {
	c, err := r.Cookie("who")
	if err != nil {
		return human.Session{}, false
	}
	h, ok := b.people[c.Value]
	return human.Session{Human: h, CSRF: "csrf of " + h.Name}, ok
}

func (b *testBundle) mcp() string { return b.url + "/mcp/" + b.peer.String() }

// answer is a response, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &m), a.body)
	return m
}

func (b *testBundle) do(t *testing.T, method, target, who, body string, header map[string]string) answer {
	t.Helper()
	if strings.HasPrefix(target, "/") {
		target = b.url + target
	}
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	require.NoError(t, err)
	if who != "" {
		r.AddCookie(&http.Cookie{Name: "who", Value: who})
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (b *testBundle) token(t *testing.T, form url.Values, header map[string]string) answer {
	t.Helper()
	return b.do(t, http.MethodPost, "/oauth/token", "", form.Encode(), header)
}

func (b *testBundle) assertion(t *testing.T) string {
	t.Helper()
	jwt, err := provenance.ClientAssertion(b.key, b.url, time.Now())
	require.NoError(t, err)
	return jwt
}

// keyGrant is the form of a key's token request.
func (b *testBundle) keyGrant(t *testing.T, resource string) url.Values {
	t.Helper()
	return url.Values{
		"grant_type": {"client_credentials"}, "client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion": {b.assertion(t)}, "resource": {resource},
	}
}

// document is a client that serves its own metadata on loopback.
type document struct {
	id      string
	fetches atomic.Int64
	member  map[string]any
	header  map[string]string
	status  int
}

func newDocument(t *testing.T) *document {
	t.Helper()
	d := &document{status: http.StatusOK, header: map[string]string{"Content-Type": "application/json"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		d.fetches.Add(1)
		for k, v := range d.header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(d.status)
		_ = json.NewEncoder(w).Encode(d.member)
	}))
	t.Cleanup(server.Close)
	d.id = server.URL + "/client.json"
	d.member = map[string]any{
		"client_id": d.id, "client_name": "Checker", "redirect_uris": []string{"http://127.0.0.1/callback"},
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"}, "token_endpoint_auth_method": "none",
	}
	return d
}

const redirect = "http://127.0.0.1:53999/callback"

// request is the query of an authorization request and its verifier.
func (b *testBundle) request(resource string) (url.Values, string) {
	verifier := rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	return url.Values{
		"response_type": {"code"}, "client_id": {b.client.id}, "redirect_uri": {redirect}, "state": {"s t&ate"}, "resource": {resource},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}, verifier
}

func (b *testBundle) authorize(t *testing.T, who string, q url.Values) answer {
	t.Helper()
	return b.do(t, http.MethodGet, "/oauth/authorize?"+q.Encode(), who, "", nil)
}

var input = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// fields are what the form of a consent page would send.
func fields(t *testing.T, page answer) url.Values {
	t.Helper()
	require.Equal(t, http.StatusOK, page.status, page.body)
	f := url.Values{}
	for _, m := range input.FindAllStringSubmatch(page.body, -1) {
		f.Set(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	return f
}

func (b *testBundle) click(t *testing.T, who string, form url.Values, header map[string]string) answer {
	t.Helper()
	sent := map[string]string{"Origin": b.url, "Sec-Fetch-Site": "same-origin"}
	for k, v := range header {
		sent[k] = v
	}
	return b.do(t, http.MethodPost, "/oauth/authorize", who, form.Encode(), sent)
}

// back are the parameters that came back on the redirect.
func (a answer) back(t *testing.T) url.Values {
	t.Helper()
	require.Contains(t, []int{http.StatusFound, http.StatusSeeOther}, a.status, a.body)
	to := a.header.Get("Location")
	require.True(t, strings.HasPrefix(to, redirect+"?"), to)
	u, err := url.Parse(to)
	require.NoError(t, err)
	return u.Query()
}
