package endpoint_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

const (
	clientID = "https://client.example/app.json"
	redirect = "http://127.0.0.1:53999/callback"
)

func pkce() (verifier, challenge string) {
	verifier = rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	return verifier, base64.RawURLEncoding.EncodeToString(sum[:])
}

// flow is one person's way through the code flow.
type flow struct {
	person   endpoint.Person
	resource string
	scope    []string
	proofKey string
}

func (b *testBundle) aliceFlow(resource string) flow {
	return flow{person: endpoint.Person{Human: newID(), Identity: b.aliceID}, resource: resource}
}

func (f flow) authorization(challenge string) endpoint.Authorization {
	return endpoint.Authorization{
		Person: f.person, Client: clientID, ClientName: "App", RedirectURI: redirect, Registered: "http://127.0.0.1/callback",
		Resource: f.resource, Scope: f.scope, Challenge: challenge, ProofKey: f.proofKey,
	}
}

func (b *testBundle) code(t *testing.T, f flow) endpoint.CodeGrant {
	t.Helper()
	verifier, challenge := pkce()
	code, err := b.store.Authorize(t.Context(), f.authorization(challenge))
	require.NoError(t, err)
	return endpoint.CodeGrant{Code: code, ClientID: clientID, RedirectURI: redirect, Verifier: verifier}
}

func (b *testBundle) tokens(t *testing.T, f flow) endpoint.Token {
	t.Helper()
	token, err := b.store.RedeemCode(t.Context(), b.code(t, f))
	require.NoError(t, err)
	return token
}

func (b *testBundle) refresh(t *testing.T, token string) (endpoint.Token, error) {
	t.Helper()
	return b.store.RefreshToken(t.Context(), endpoint.RefreshGrant{Refresh: token, ClientID: clientID})
}

func TestACodeIsForTheOwnerOrTheGrantsRequester(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	peer := b.peer(t, b.alice)
	home, _ := b.home(t)
	bob := endpoint.Person{Human: b.owner(), Identity: []byte("bob")}
	alice := endpoint.Person{Human: newID(), Identity: b.aliceID}
	carol := endpoint.Person{Human: newID(), Identity: []byte("carol")}
	nobody := endpoint.Person{Human: newID()}
	a2a := public + "/a2a/reviewer"

	for name, tt := range map[string]struct {
		who  endpoint.Person
		what string
		may  bool
	}{
		"bob, home endpoint":      {bob, mcpURL(home.ID), true},
		"bob, alice's endpoint":   {bob, mcpURL(peer), true},
		"alice, her endpoint":     {alice, mcpURL(peer), true},
		"alice, her requests":     {alice, a2a, true},
		"alice, home endpoint":    {alice, mcpURL(home.ID), false},
		"alice, another persona":  {alice, public + "/a2a/builder", false},
		"carol, alice's endpoint": {carol, mcpURL(peer), false},
		"carol, no requests":      {carol, a2a, false},
		"nobody's identity":       {nobody, a2a, false},
		"unknown endpoint":        {alice, mcpURL(newID()), false},
		"the instance":            {bob, public, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.store.Authorizable(ctx, tt.who, tt.what, nil)
			verifier, challenge := pkce()
			code, authorizeErr := b.store.Authorize(ctx, flow{person: tt.who, resource: tt.what}.authorization(challenge))
			if !tt.may {
				require.Equal(t, "the resource is not open to this client", oauthError(t, err, "invalid_target").Description)
				oauthError(t, authorizeErr, "invalid_target")
				return
			}
			require.NoError(t, err)
			require.NoError(t, authorizeErr)
			token, err := b.store.RedeemCode(ctx, endpoint.CodeGrant{Code: code, ClientID: clientID, RedirectURI: redirect, Verifier: verifier, Resource: tt.what})
			require.NoError(t, err)
			if id, _, _ := b.store.ParseResource(tt.what); id != uuid.Nil {
				c, err := b.store.Authenticate(ctx, id, token.Access)
				require.NoError(t, err)
				require.Equal(t, id, c.Endpoint.ID)
			} else {
				who, err := b.store.AuthenticateRequester(ctx, "reviewer", token.Access)
				require.NoError(t, err)
				require.Equal(t, endpoint.Requester{Persona: "reviewer", Identity: b.aliceID}, who)
			}
		})
	}
	require.NoError(t, b.turn(t, peer, endpoint.Paused))
	_, err := b.store.Authorizable(ctx, alice, mcpURL(peer), nil)
	oauthError(t, err, "invalid_target")
}

func TestWhatDoesNotRedeemACode(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	f := b.aliceFlow(mcpURL(b.peer(t, b.alice)))
	other, _ := pkce()
	for name, bend := range map[string]func(*endpoint.CodeGrant){
		"unknown code":     func(g *endpoint.CodeGrant) { g.Code = "sbc_" + other[:43] },
		"no code":          func(g *endpoint.CodeGrant) { g.Code = "" },
		"another client":   func(g *endpoint.CodeGrant) { g.ClientID = "https://evil.example/app.json" },
		"another redirect": func(g *endpoint.CodeGrant) { g.RedirectURI = "http://127.0.0.1:1/callback" },
		"another verifier": func(g *endpoint.CodeGrant) { g.Verifier = other },
		"no verifier":      func(g *endpoint.CodeGrant) { g.Verifier = "" },
	} {
		t.Run(name, func(t *testing.T) {
			g := b.code(t, f)
			bend(&g)
			_, err := b.store.RedeemCode(t.Context(), g)
			e := oauthError(t, err, "invalid_grant")
			require.Equal(t, "the grant is invalid, expired or was used before", e.Description)
		})
	}
	g := b.code(t, f)
	g.Resource = mcpURL(newID())
	_, err := b.store.RedeemCode(t.Context(), g)
	oauthError(t, err, "invalid_target")

	g = b.code(t, f)
	_, err = b.pool.Exec(t.Context(), `UPDATE endpoint_authorization SET code_expires_at = clock_timestamp()`)
	require.NoError(t, err)
	_, err = b.store.RedeemCode(t.Context(), g)
	oauthError(t, err, "invalid_grant")
}

func TestACodeUsedTwiceTakesBackWhatItGave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	g := b.code(t, b.aliceFlow(mcpURL(id)))
	token, err := b.store.RedeemCode(ctx, g)
	require.NoError(t, err)
	c, err := b.other.Authenticate(ctx, id, token.Access)
	require.NoError(t, err)
	_, err = b.store.RedeemCode(ctx, g)
	oauthError(t, err, "invalid_grant")
	_, err = b.other.Live(ctx, c)
	unauthenticated(t, err)
	_, err = b.refresh(t, token.Refresh)
	oauthError(t, err, "invalid_grant")
}

func TestRefreshTokensRotate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	f := b.aliceFlow(mcpURL(id))
	first := b.tokens(t, f)
	require.Regexp(t, `^sbr_`, first.Refresh)
	require.Equal(t, granted.Strings(), first.Scope)

	second, err := b.refresh(t, first.Refresh)
	require.NoError(t, err)
	require.NotEqual(t, first.Refresh, second.Refresh)
	_, err = b.store.Authenticate(ctx, id, first.Access)
	require.NoError(t, err, "an access token lives out its time")

	narrower, err := b.store.RefreshToken(ctx, endpoint.RefreshGrant{Refresh: second.Refresh, ClientID: clientID, Scope: []string{"todo_status:builds"}})
	require.NoError(t, err)
	c, err := b.store.Authenticate(ctx, id, narrower.Access)
	require.NoError(t, err)
	require.Equal(t, []string{"todo_status:builds"}, c.TokenScope)
	full, err := b.refresh(t, narrower.Refresh)
	require.NoError(t, err)
	require.Equal(t, granted.Strings(), full.Scope, "a narrower token does not narrow the authorization")

	_, err = b.store.RefreshToken(ctx, endpoint.RefreshGrant{Refresh: full.Refresh, ClientID: clientID, Scope: []string{"cancel_todo:builds"}})
	oauthError(t, err, "invalid_scope")
	_, err = b.store.RefreshToken(ctx, endpoint.RefreshGrant{Refresh: full.Refresh, ClientID: "https://evil.example/app.json"})
	oauthError(t, err, "invalid_grant")
	_, err = b.store.RefreshToken(ctx, endpoint.RefreshGrant{Refresh: full.Refresh, ClientID: clientID, Resource: public + "/a2a/reviewer"})
	oauthError(t, err, "invalid_target")
	last, err := b.refresh(t, full.Refresh)
	require.NoError(t, err, "a refused refresh uses nothing up")

	require.NoError(t, b.turn(t, id, endpoint.Paused))
	_, err = b.refresh(t, last.Refresh)
	oauthError(t, err, "invalid_grant")
	require.NoError(t, b.turn(t, id, endpoint.Active))
	_, err = b.refresh(t, last.Refresh)
	require.NoError(t, err, "resuming restores exactly what was")
}

func TestRefreshReuseKillsTheFamily(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	f := b.aliceFlow(mcpURL(id))
	first := b.tokens(t, f)
	bystander := b.tokens(t, f)
	second, err := b.refresh(t, first.Refresh)
	require.NoError(t, err)
	c, err := b.other.Authenticate(ctx, id, second.Access)
	require.NoError(t, err)

	_, err = b.refresh(t, first.Refresh)
	oauthError(t, err, "invalid_grant")

	_, err = b.other.Live(ctx, c)
	unauthenticated(t, err)
	_, err = b.store.Authenticate(ctx, id, first.Access)
	unauthenticated(t, err)
	_, err = b.refresh(t, second.Refresh)
	oauthError(t, err, "invalid_grant")
	require.Contains(t, b.kinds(), "authorization.reused")
	_, err = b.refresh(t, bystander.Refresh)
	require.NoError(t, err, "another authorization lives on")
	_, challenge := pkce()
	asked, err := b.store.Consented(ctx, f.authorization(challenge))
	require.NoError(t, err)
	require.False(t, asked, "the human is asked again")
}

// Of many who refresh with one token at once, on any replica, one gets through
// and the others are the reuse.
func TestOneRefreshTokenServesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.tokens(t, b.aliceFlow(mcpURL(b.peer(t, b.alice))))
	var good atomic.Int64
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			store := b.store
			if n%2 == 1 {
				store = b.other
			}
			if _, err := store.RefreshToken(t.Context(), endpoint.RefreshGrant{Refresh: token.Refresh, ClientID: clientID}); err == nil {
				good.Add(1)
			}
		})
	}
	all.Wait()
	require.Equal(t, int64(1), good.Load())
	var left int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM endpoint_refresh`).Scan(&left))
	require.Zero(t, left)
}

func TestRevokingAtTheTokenEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	token := b.tokens(t, b.aliceFlow(mcpURL(id)))
	require.NoError(t, b.store.RevokeToken(ctx, token.Access))
	_, err := b.store.Authenticate(ctx, id, token.Access)
	unauthenticated(t, err)
	token, err = b.refresh(t, token.Refresh)
	require.NoError(t, err, "the refresh token was not meant")
	require.NoError(t, b.store.RevokeToken(ctx, token.Refresh))
	_, err = b.store.Authenticate(ctx, id, token.Access)
	unauthenticated(t, err)
	_, err = b.refresh(t, token.Refresh)
	oauthError(t, err, "invalid_grant")
	for _, unknown := range []string{"", "x", "sbt_" + rand.Text(), token.Access, token.Refresh} {
		require.NoError(t, b.store.RevokeToken(ctx, unknown))
	}

	a2a := b.tokens(t, b.aliceFlow(public+"/a2a/reviewer"))
	require.NoError(t, b.store.RevokeToken(ctx, a2a.Access))
	_, err = b.store.AuthenticateRequester(ctx, "reviewer", a2a.Access)
	unauthenticated(t, err)
}

func TestAHolderIsAClientWithAllItsTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	token := b.tokens(t, b.aliceFlow(mcpURL(id)))
	token, err := b.refresh(t, token.Refresh)
	require.NoError(t, err)
	_, err = b.token(t, b.alice, mcpURL(id))
	require.NoError(t, err)
	b.code(t, b.aliceFlow(mcpURL(id))) // never redeemed: holds nothing

	list, err := b.store.Holders(ctx, b.owner(), id)
	require.NoError(t, err)
	require.Len(t, list, 2)
	key, code := list[0], list[1]
	require.Equal(t, []string{"key", b.alice.Thumbprint()}, []string{key.Kind, key.Client})
	require.Equal(t, []string{"code", clientID}, []string{code.Kind, code.Client})
	require.WithinDuration(t, time.Now().Add(endpoint.AuthorizationLifetime), code.ExpiresAt, time.Minute)

	refused(t, b.store.RevokeHolder(ctx, newID(), id, code.ID), refusal.NotFound)
	require.NoError(t, b.store.RevokeHolder(ctx, b.owner(), id, code.ID))
	_, err = b.refresh(t, token.Refresh)
	oauthError(t, err, "invalid_grant")
	_, err = b.store.Authenticate(ctx, id, token.Access)
	unauthenticated(t, err)
	list, err = b.store.Holders(ctx, b.owner(), id)
	require.NoError(t, err)
	require.Equal(t, []endpoint.Holder{key}, list)
}

func TestConsentIsRememberedForAsMuchAsWasAllowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := b.aliceFlow(mcpURL(b.peer(t, b.alice)))
	f.scope = []string{"todo_status:builds", "todo_status:reviews"}
	_, challenge := pkce()
	remembered := func(bend func(*endpoint.Authorization)) bool {
		t.Helper()
		a := f.authorization(challenge)
		bend(&a)
		yes, err := b.store.Consented(t.Context(), a)
		require.NoError(t, err)
		return yes
	}
	same := func(*endpoint.Authorization) {}
	require.False(t, remembered(same))
	b.code(t, f)
	require.True(t, remembered(same))
	require.True(t, remembered(func(a *endpoint.Authorization) { a.Scope = a.Scope[:1] }))
	require.True(t, remembered(func(a *endpoint.Authorization) { a.RedirectURI = "http://127.0.0.1:7/callback" }), "any loopback port")
	for name, bend := range map[string]func(*endpoint.Authorization){
		"everything":       func(a *endpoint.Authorization) { a.Scope = nil },
		"a wider scope":    func(a *endpoint.Authorization) { a.Scope = append(a.Scope, "create_for:builds") },
		"another client":   func(a *endpoint.Authorization) { a.Client = "https://evil.example/app.json" },
		"another redirect": func(a *endpoint.Authorization) { a.Registered = "https://client.example/cb" },
		"another resource": func(a *endpoint.Authorization) { a.Resource = public + "/a2a/reviewer" },
		"another person":   func(a *endpoint.Authorization) { a.Human = newID() },
	} {
		require.False(t, remembered(bend), name)
	}
}

func TestTokensOfTheCodeFlowMayBeBound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	f := b.aliceFlow(mcpURL(id))
	f.proofKey = b.alice.Thumbprint()
	g := b.code(t, f)
	_, err := b.store.RedeemCode(ctx, g)
	oauthError(t, err, "invalid_dpop_proof")
	g.ProofKey = b.alice.Thumbprint()
	token, err := b.store.RedeemCode(ctx, g)
	require.NoError(t, err)
	require.True(t, token.DPoP)
	c, err := b.store.Authenticate(ctx, id, token.Access)
	require.NoError(t, err)
	require.Equal(t, b.alice.Thumbprint(), c.ProofKey)
	_, err = b.refresh(t, token.Refresh)
	oauthError(t, err, "invalid_dpop_proof") // a copied refresh token is of no use
	_, err = b.store.RefreshToken(ctx, endpoint.RefreshGrant{Refresh: token.Refresh, ClientID: clientID, ProofKey: b.alice.Thumbprint()})
	require.NoError(t, err)
}
