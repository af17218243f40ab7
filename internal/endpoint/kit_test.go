package endpoint_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/persona"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const public = "https://bob.example"

// personas holds one persona, as package persona would.
type personas struct{ one persona.Persona }

func (p personas) Hold(_ context.Context, _ pgx.Tx, owner, id uuid.UUID) (persona.Persona, error) {
	if owner != p.one.Owner || id != p.one.ID {
		return persona.Persona{}, refusal.New(refusal.NotFound, "there is no such persona")
	}
	return p.one, nil
}

// testBundle is bob's instance: one persona, alice's key.
type testBundle struct {
	url     string
	pool    *pgxpool.Pool
	store   *endpoint.Store
	other   *endpoint.Store // another replica
	persona persona.Persona
	alice   *provenance.Key
	aliceID []byte // identity hash

	mu     sync.Mutex
	events []activity.Event
	woken  []uuid.UUID
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	b := &testBundle{url: pgtest.URL(t), aliceID: []byte("alice's identity, thirty-two byte")}
	b.pool = pgtest.Open(t, b.url)
	b.persona = persona.Persona{ID: newID(), Owner: newID(), AgentID: newID(), Slug: "reviewer", Queues: []string{"reviews", "builds"}}
	options := endpoint.Options{
		PublicURL: public, Personas: personas{b.persona},
		Record: func(_ context.Context, _ pgx.Tx, events ...activity.Event) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, events...)
			return nil
		},
		OnChange: func(_, id uuid.UUID) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.woken = append(b.woken, id)
		},
	}
	b.store = endpoint.New(b.pool, options)
	b.other = endpoint.New(b.pool, options)
	var err error
	b.alice, err = provenance.NewKey()
	require.NoError(t, err)
	return b
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

func (b *testBundle) owner() uuid.UUID { return b.persona.Owner }

func (b *testBundle) kinds() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kinds []string
	for _, e := range b.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func (b *testBundle) home(t *testing.T) (endpoint.Endpoint, string) {
	t.Helper()
	e, credential, err := b.store.CreateHome(t.Context(), b.owner(), endpoint.HomeSpec{AgentID: b.persona.AgentID, PersonaID: b.persona.ID})
	require.NoError(t, err)
	return e, credential
}

var granted = scope.Scope{
	Queues: []string{"builds", "reviews"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Defaults(),
}

// peer vends a peer endpoint to the key, as an approval does.
func (b *testBundle) peer(t *testing.T, key *provenance.Key) uuid.UUID {
	t.Helper()
	id := newID()
	b.tx(t, func(tx pgx.Tx) error {
		if err := b.store.RegisterKey(t.Context(), tx, key.Thumbprint(), key.Public().JWK(), b.persona.Slug, b.aliceID); err != nil {
			return err
		}
		return b.store.VendPeer(t.Context(), tx, endpoint.PeerSpec{
			ID: id, Owner: b.owner(), AgentID: b.persona.AgentID, PersonaID: b.persona.ID, Persona: b.persona.Slug,
			GrantID: newID(), Line: newID(), Scope: granted, Identity: b.aliceID, CallsItself: "release-bot",
			KeyThumbprint: key.Thumbprint(), ExpiresAt: time.Now().Add(90 * 24 * time.Hour),
		})
	})
	return id
}

func (b *testBundle) tx(t *testing.T, f func(tx pgx.Tx) error) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, f))
}

// change changes a peer endpoint as package friend does: commit, then Changed.
func (b *testBundle) change(t *testing.T, id uuid.UUID, c endpoint.Change) error {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error { return b.store.ChangePeer(t.Context(), tx, b.owner(), id, c) })
	if err == nil {
		b.store.Changed(id)
	}
	return err
}

// turn changes the state of a peer endpoint.
func (b *testBundle) turn(t *testing.T, id uuid.UUID, to endpoint.State) error {
	t.Helper()
	return b.change(t, id, endpoint.Change{State: &to})
}

// sign makes a client assertion with these claims over good ones; nil removes.
func sign(t *testing.T, key *provenance.Key, bend map[string]any) string {
	t.Helper()
	id := endpoint.ClientIDPrefix + key.Thumbprint()
	claims := map[string]any{"iss": id, "sub": id, "aud": public, "jti": rand.Text(), "iat": time.Now().Unix(), "exp": time.Now().Unix() + 60}
	for k, v := range bend {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	jwt, err := key.SignJWT(map[string]any{"typ": "JWT"}, claims)
	require.NoError(t, err)
	return jwt
}

func (b *testBundle) token(t *testing.T, key *provenance.Key, resource string, scope ...string) (endpoint.Token, error) {
	t.Helper()
	return b.store.IssueForKey(t.Context(), endpoint.KeyGrant{Assertion: sign(t, key, nil), Resource: resource, Scope: scope})
}

func mcpURL(id uuid.UUID) string { return public + "/mcp/" + id.String() }

func oauthError(t *testing.T, err error, code string) *endpoint.OAuthError {
	t.Helper()
	var e *endpoint.OAuthError
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	return e
}

// unauthenticated requires the one answer.
func unauthenticated(t *testing.T, err error) {
	t.Helper()
	var e *refusal.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, refusal.Unauthenticated, e.Code)
	require.Equal(t, "invalid token", e.Message)
}

func refused(t *testing.T, err error, code refusal.Code) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, refusal.CodeOf(err), "%v", err)
}
