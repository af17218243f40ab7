package endpoint_test

import (
	"encoding/base64"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/provenance"
	"switchboard/internal/scope"
)

func TestAKeyOpensWhatWasVendedToIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	token, err := b.token(t, b.alice, mcpURL(id))
	require.NoError(t, err)
	require.Regexp(t, `^sbt_[A-Za-z0-9_-]{43}$`, token.Access)
	require.Empty(t, token.Refresh)
	require.Equal(t, 15*time.Minute, token.ExpiresIn)
	require.Equal(t, granted.Strings(), token.Scope)
	require.False(t, token.DPoP)

	c, err := b.store.Authenticate(ctx, id, token.Access)
	require.NoError(t, err)
	require.Equal(t, granted, c.Effective())
	require.Nil(t, c.TokenScope)
	require.WithinDuration(t, time.Now().Add(15*time.Minute), c.Until, 30*time.Second)

	_, err = b.store.AuthenticateRequester(ctx, b.persona.Slug, token.Access)
	unauthenticated(t, err)

	a2a, err := b.token(t, b.alice, public+"/a2a/reviewer")
	require.NoError(t, err)
	require.Nil(t, a2a.Scope)
	who, err := b.store.AuthenticateRequester(ctx, b.persona.Slug, a2a.Access)
	require.NoError(t, err)
	require.Equal(t, endpoint.Requester{Persona: "reviewer", Key: b.alice.Thumbprint()}, who)
	_, err = b.store.AuthenticateRequester(ctx, "another", a2a.Access)
	unauthenticated(t, err)
	_, err = b.store.Authenticate(ctx, id, a2a.Access)
	unauthenticated(t, err)
}

func TestATokenMayBeNarrowerThanItsEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.peer(t, b.alice)
	token, err := b.token(t, b.alice, mcpURL(id), "todo_status:reviews", "create_for:builds", "todo_status:reviews")
	require.NoError(t, err)
	require.Equal(t, []string{"todo_status:reviews", "create_for:builds"}, token.Scope)
	c, err := b.store.Authenticate(t.Context(), id, token.Access)
	require.NoError(t, err)
	require.True(t, c.May(scope.TodoStatus, "reviews"))
	require.True(t, c.May(scope.CreateFor, "builds"))
	require.False(t, c.May(scope.CreateFor, "reviews"), "a pair that is not in the token")
	require.True(t, c.HasTool("create_for") && c.HasTool("todo_status") && c.HasTool("whoami"))
	require.False(t, c.HasTool("cancel_todo"))

	narrow := granted
	narrow.Queues = []string{"builds"}
	require.NoError(t, b.change(t, id, endpoint.Change{Scope: &narrow}))
	c, err = b.store.Refresh(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, []scope.Verb{scope.CreateFor}, c.Effective().Verbs)
	require.False(t, c.HasTool("todo_status"), "its only queue is gone")

	for _, beyond := range []string{"cancel_todo:reviews", "create_for:reviews", "create_for:deploys", "create_for", "*", "offline_access"} {
		_, err = b.token(t, b.alice, mcpURL(id), beyond)
		oauthError(t, err, "invalid_scope")
	}
}

// What a key may not have has one answer, byte for byte, whatever the reason.
func TestWhatAKeyMayNotHaveLooksTheSame(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	carol, err := provenance.NewKey()
	require.NoError(t, err)
	foreign := b.peer(t, carol)
	home, _ := b.home(t)
	paused, revoked, expired := b.peer(t, b.alice), b.peer(t, b.alice), b.peer(t, b.alice)
	require.NoError(t, b.turn(t, paused, endpoint.Paused))
	require.NoError(t, b.turn(t, revoked, endpoint.Revoked))
	_, err = b.pool.Exec(t.Context(), `UPDATE endpoint SET expires_at = clock_timestamp() WHERE id = $1`, expired)
	require.NoError(t, err)
	good := b.peer(t, b.alice)

	for name, resource := range map[string]string{
		"unknown endpoint":      mcpURL(newID()),
		"somebody else's":       mcpURL(foreign),
		"a home endpoint":       mcpURL(home.ID),
		"paused":                mcpURL(paused),
		"revoked":               mcpURL(revoked),
		"expired":               mcpURL(expired),
		"upper case":            public + "/mcp/" + strings.ToUpper(good.String()),
		"trailing slash":        mcpURL(good) + "/",
		"query":                 mcpURL(good) + "?x=1",
		"another instance":      "https://carol.example/mcp/" + good.String(),
		"the instance":          public,
		"nothing":               "",
		"persona never asked":   public + "/a2a/builder",
		"persona with a slash":  public + "/a2a/reviewer/",
		"no slug":               public + "/a2a/",
		"a slug with NUL":       public + "/a2a/\x00",
		"a path that is not us": public + "/v1/me",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.token(t, b.alice, resource)
			e := oauthError(t, err, "invalid_target")
			require.Equal(t, "the resource is not open to this client", e.Description)
			require.Equal(t, 400, e.Status())
		})
	}
	_, err = b.token(t, b.alice, mcpURL(good))
	require.NoError(t, err)
}

func TestBadAssertionsLookTheSame(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	resource := mcpURL(b.peer(t, b.alice))
	stranger, err := provenance.NewKey()
	require.NoError(t, err)
	now := time.Now().Unix()
	id := endpoint.ClientIDPrefix + b.alice.Thumbprint()
	signed := func(bend map[string]any) string { return sign(t, b.alice, bend) }
	raw := func(header map[string]any, claims any) string {
		jwt, err := b.alice.SignJWT(header, claims)
		require.NoError(t, err)
		return jwt
	}
	good := signed(nil)
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))

	for name, assertion := range map[string]string{
		"nothing":                 "",
		"no JWT":                  "abc",
		"unknown key":             sign(t, stranger, nil),
		"by another key":          sign(t, stranger, map[string]any{"iss": id, "sub": id}),
		"sub of another":          signed(map[string]any{"sub": endpoint.ClientIDPrefix + stranger.Thumbprint()}),
		"iss without prefix":      signed(map[string]any{"iss": b.alice.Thumbprint()}),
		"no sub":                  signed(map[string]any{"sub": nil}),
		"aud of another instance": signed(map[string]any{"aud": "https://carol.example"}),
		"aud with a slash":        signed(map[string]any{"aud": public + "/"}),
		"aud the token endpoint":  signed(map[string]any{"aud": public + "/oauth/token"}),
		"aud a list of one":       signed(map[string]any{"aud": []string{public}}),
		"aud a list":              signed(map[string]any{"aud": []string{public, "https://carol.example"}}),
		"no aud":                  signed(map[string]any{"aud": nil}),
		"no jti":                  signed(map[string]any{"jti": nil}),
		"empty jti":               signed(map[string]any{"jti": ""}),
		"long jti":                signed(map[string]any{"jti": strings.Repeat("x", 257)}),
		"no exp":                  signed(map[string]any{"exp": nil}),
		"exp a string":            signed(map[string]any{"exp": "9999999999"}),
		"expired":                 signed(map[string]any{"exp": now - 61}),
		"exp too far":             signed(map[string]any{"exp": now + 600}),
		"exp beyond all":          signed(map[string]any{"exp": 1e300}),
		"iat in the future":       signed(map[string]any{"iat": now + 120}),
		"not yet":                 signed(map[string]any{"nbf": now + 120}),
		"alg none":                none + "." + parts[1] + ".",
		"no signature":            parts[0] + "." + parts[1] + ".",
		"another's signature":     parts[0] + "." + parts[1] + "." + strings.Split(sign(t, stranger, nil), ".")[2],
		"a statement":             raw(map[string]any{"typ": "friend-statement+jwt"}, map[string]any{"iss": id, "sub": id, "aud": public, "jti": "1", "exp": now + 60}),
		"a DPoP proof":            raw(map[string]any{"typ": "dpop+jwt"}, map[string]any{"iss": id, "sub": id, "aud": public, "jti": "2", "exp": now + 60}),
		"its own key in it":       raw(map[string]any{"jwk": b.alice.Public().JWK()}, map[string]any{"iss": id, "sub": id, "aud": public, "jti": "3", "exp": now + 60}),
		"crit":                    raw(map[string]any{"crit": []string{"exp"}}, map[string]any{"iss": id, "sub": id, "aud": public, "jti": "4", "exp": now + 60}),
		"too long":                signed(map[string]any{"x": strings.Repeat("x", 9000)}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.store.IssueForKey(ctx, endpoint.KeyGrant{Assertion: assertion, Resource: resource})
			e := oauthError(t, err, "invalid_client")
			require.Equal(t, "client authentication failed", e.Description)
			require.Equal(t, 401, e.Status())
		})
	}
	_, err = b.store.IssueForKey(ctx, endpoint.KeyGrant{Assertion: signed(nil), ClientID: endpoint.ClientIDPrefix + "x", Resource: resource})
	oauthError(t, err, "invalid_client")

	for name, assertion := range map[string]string{
		"a minute of leeway": signed(map[string]any{"exp": now - 30, "iat": now + 30}),
		"without iat":        signed(map[string]any{"iat": nil}),
		"fractions":          signed(map[string]any{"exp": float64(now) + 60.5}),
		"no typ":             raw(nil, map[string]any{"iss": id, "sub": id, "aud": public, "jti": "5", "exp": now + 60}),
		"good":               good,
	} {
		_, err := b.store.IssueForKey(ctx, endpoint.KeyGrant{Assertion: assertion, ClientID: id, Resource: resource})
		require.NoError(t, err, name)
	}
}

func TestAnAssertionIsGoodOnceOnAllReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resource := mcpURL(b.peer(t, b.alice))
	assertion := sign(t, b.alice, nil)
	var good atomic.Int64
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			store := b.store
			if n%2 == 1 {
				store = b.other
			}
			if _, err := store.IssueForKey(t.Context(), endpoint.KeyGrant{Assertion: assertion, Resource: resource}); err == nil {
				good.Add(1)
			}
		})
	}
	all.Wait()
	require.Equal(t, int64(1), good.Load())

	// Used up by a request that was refused for something else, too.
	spent := sign(t, b.alice, nil)
	_, err := b.store.IssueForKey(t.Context(), endpoint.KeyGrant{Assertion: spent, Resource: public})
	oauthError(t, err, "invalid_target")
	_, err = b.store.IssueForKey(t.Context(), endpoint.KeyGrant{Assertion: spent, Resource: resource})
	oauthError(t, err, "invalid_client")
}

func TestAKeyIsKnownFromItsFirstStoredRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	_, err := b.token(t, b.alice, public+"/a2a/reviewer")
	oauthError(t, err, "invalid_client")

	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, b.store.RegisterKey(ctx, tx, b.alice.Thumbprint(), b.alice.Public().JWK(), "reviewer", nil))
	_, err = b.token(t, b.alice, public+"/a2a/reviewer")
	oauthError(t, err, "invalid_client") // not committed
	require.NoError(t, tx.Commit(ctx))
	_, err = b.token(t, b.alice, public+"/a2a/reviewer")
	require.NoError(t, err)
	_, err = b.token(t, b.alice, public+"/a2a/reviewer", "create_for:reviews")
	oauthError(t, err, "invalid_scope")
	_, err = b.token(t, b.alice, public+"/a2a/builder", "create_for:reviews")
	oauthError(t, err, "invalid_target")

	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		return b.store.RegisterKey(ctx, tx, "another", b.alice.Public().JWK(), "reviewer", nil)
	})
	require.ErrorContains(t, err, "thumbprint")
}

// A cached caller stays what it was; what counts is that it is found out.
func TestRevokingIsSeenAtOnceOnEveryReplica(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for name, stop := range map[string]func(t *testing.T, id uuid.UUID, token string){
		"revoke": func(t *testing.T, id uuid.UUID, _ string) { require.NoError(t, b.turn(t, id, endpoint.Revoked)) },
		"pause":  func(t *testing.T, id uuid.UUID, _ string) { require.NoError(t, b.turn(t, id, endpoint.Paused)) },
		"leave":  func(t *testing.T, id uuid.UUID, _ string) { require.NoError(t, b.turn(t, id, endpoint.Ended)) },
		"expire": func(t *testing.T, id uuid.UUID, _ string) {
			now := time.Now().Add(-time.Hour)
			require.NoError(t, b.change(t, id, endpoint.Change{ExpiresAt: &now}))
		},
		"token revoked": func(t *testing.T, _ uuid.UUID, token string) { require.NoError(t, b.store.RevokeToken(ctx, token)) },
	} {
		t.Run(name, func(t *testing.T) {
			id := b.peer(t, b.alice)
			token, err := b.token(t, b.alice, mcpURL(id))
			require.NoError(t, err)
			there, err := b.other.Authenticate(ctx, id, token.Access)
			require.NoError(t, err)
			live, err := b.other.Live(ctx, there)
			require.NoError(t, err)
			require.Equal(t, there, live)

			stop(t, id, token.Access)

			cached, err := b.other.Authenticate(ctx, id, token.Access)
			require.NoError(t, err, "the other replica has not looked yet")
			_, err = b.other.Live(ctx, cached)
			unauthenticated(t, err)
			_, err = b.other.Authenticate(ctx, id, token.Access)
			unauthenticated(t, err)
			_, err = b.store.Authenticate(ctx, id, token.Access)
			unauthenticated(t, err)
			require.Contains(t, b.woken, id, "waiting calls look again")
		})
	}
}

func TestNarrowingIsSeenAtOnceOnEveryReplica(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	token, err := b.token(t, b.alice, mcpURL(id))
	require.NoError(t, err)
	c, err := b.other.Authenticate(ctx, id, token.Access)
	require.NoError(t, err)
	narrow := granted
	narrow.Verbs = []scope.Verb{scope.TodoStatus}
	require.NoError(t, b.change(t, id, endpoint.Change{Scope: &narrow}))
	c, err = b.other.Live(ctx, c)
	require.NoError(t, err)
	require.Equal(t, narrow, c.Endpoint.Scope)
	require.Equal(t, int64(2), c.Endpoint.Version)
}

func TestATokenEndsWithItsEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.peer(t, b.alice)
	soon := time.Now().Add(2 * time.Minute).Truncate(time.Second)
	require.NoError(t, b.change(t, id, endpoint.Change{ExpiresAt: &soon}))
	token, err := b.token(t, b.alice, mcpURL(id))
	require.NoError(t, err)
	require.LessOrEqual(t, token.ExpiresIn, 2*time.Minute)
	c, err := b.store.Authenticate(t.Context(), id, token.Access)
	require.NoError(t, err)
	require.True(t, c.Until.Equal(soon))
}

// Keys are strangers' too, and each token is a row.
func TestAKeyCannotAskWithoutEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.peer(t, b.alice)
	asked := 0
	for ; asked < 2000; asked++ {
		if _, err := b.token(t, b.alice, mcpURL(id)); err != nil {
			oauthError(t, err, "slow_down")
			break
		}
	}
	require.Less(t, asked, 2000)
	var tokens, seen int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM endpoint_token), (SELECT count(*) FROM endpoint_seen)`).Scan(&tokens, &seen))
	require.Equal(t, []int{asked, asked}, []int{tokens, seen}, "what is refused is not stored")

	other, err := provenance.NewKey()
	require.NoError(t, err)
	_, err = b.token(t, other, mcpURL(b.peer(t, other)))
	require.NoError(t, err)
}

// A stranger who never signs in leaves nothing for good.
func TestAKeyThatNobodySignedInForIsForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	register := func(key *provenance.Key, persona string, identity []byte) {
		require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			return b.store.RegisterKey(ctx, tx, key.Thumbprint(), key.Public().JWK(), persona, identity)
		}))
	}
	gone := b.alice
	again, err := provenance.NewKey()
	require.NoError(t, err)
	both, err := provenance.NewKey()
	require.NoError(t, err)
	register(gone, "reviewer", nil)
	register(gone, "builder", nil)
	register(again, "reviewer", nil)
	register(both, "reviewer", nil)
	register(both, "builder", b.aliceID)
	age := func() {
		for _, table := range []string{"endpoint_key", "endpoint_key_persona"} {
			_, err := b.pool.Exec(ctx, `UPDATE `+table+` SET created_at = created_at - interval '25 hours'`)
			require.NoError(t, err)
		}
	}
	age()
	register(again, "reviewer", nil)
	require.NoError(t, b.store.Sweep(ctx))
	_, err = b.token(t, gone, public+"/a2a/reviewer")
	oauthError(t, err, "invalid_client")
	_, err = b.token(t, again, public+"/a2a/reviewer")
	require.NoError(t, err)
	_, err = b.token(t, both, public+"/a2a/builder")
	require.NoError(t, err)
	_, err = b.token(t, both, public+"/a2a/reviewer")
	oauthError(t, err, "invalid_target")
	age()
	require.NoError(t, b.store.Sweep(ctx))
	var keys, requests int
	require.NoError(t, b.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM endpoint_key), (SELECT count(*) FROM endpoint_key_persona)`).Scan(&keys, &requests))
	require.Equal(t, []int{1, 1}, []int{keys, requests})
}

func TestSweepLeavesWhatIsGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.peer(t, b.alice)
	old, err := b.token(t, b.alice, mcpURL(id))
	require.NoError(t, err)
	_, err = b.pool.Exec(ctx, `UPDATE endpoint_token SET expires_at = clock_timestamp() - interval '1 second'`)
	require.NoError(t, err)
	_, err = b.pool.Exec(ctx, `UPDATE endpoint_seen SET until = clock_timestamp() - interval '1 second'`)
	require.NoError(t, err)
	fresh, err := b.token(t, b.alice, mcpURL(id))
	require.NoError(t, err)
	require.NoError(t, b.store.Sweep(ctx))
	_, err = b.store.Authenticate(ctx, id, old.Access)
	unauthenticated(t, err)
	_, err = b.store.Authenticate(ctx, id, fresh.Access)
	require.NoError(t, err)
	var tokens, seen int
	require.NoError(t, b.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM endpoint_token), (SELECT count(*) FROM endpoint_seen)`).Scan(&tokens, &seen))
	require.Equal(t, []int{1, 1}, []int{tokens, seen})
}
