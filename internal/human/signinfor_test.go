package human_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/human"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
)

func TestSignInFor_GivesTheTokenAndNoSession(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	who := url.Values{"prompt": {"none"}, "login_hint": {"alice"}}
	redirect, state, err := b.store.BeginFor(t.Context(), "", who, "a nonce of the caller's", `{"kept":"<&>"}`)
	require.NoError(t, err)
	answer := visit(t, redirect)
	token, client, keep, err := b.store.FinishFor(t.Context(), state, answer)
	require.NoError(t, err)
	require.Equal(t, []string{devidp.LoginClient, `{"kept":"<&>"}`}, []string{client, keep})
	claims, err := provenance.NewKeys(provenance.GuardedClient(true)).VerifyToken(t.Context(), b.issuer, token)
	require.NoError(t, err)
	require.Contains(t, string(claims), "a nonce of the caller's")
	require.Empty(t, b.arrivals.ids, "nobody has signed in here")

	// What was begun for one purpose ends for no other.
	redirect, state, err = b.store.BeginFor(t.Context(), "", who, "n", "kept")
	require.NoError(t, err)
	_, _, err = b.store.Finish(t.Context(), state, visit(t, redirect), "Browser/1")
	require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
	redirect, state, err = b.store.Begin(t.Context(), "", who, "/")
	require.NoError(t, err)
	token, _, keep, err = b.store.FinishFor(t.Context(), state, visit(t, redirect))
	require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
	require.Empty(t, token+keep)

	// A no of the issuer tells the caller whose errand failed; another's answer does not.
	redirect, state, err = b.store.BeginFor(t.Context(), "", url.Values{"prompt": {"none"}}, "n", "kept")
	require.NoError(t, err)
	_, _, keep, err = b.store.FinishFor(t.Context(), state, visit(t, redirect))
	require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
	require.Equal(t, "kept", keep)
	_, _, keep, err = b.store.FinishFor(t.Context(), state, answer)
	require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
	require.Empty(t, keep)
}

func TestSignInFor_AsksTheIssuerForWhatProvenanceWants(t *testing.T) {
	t.Parallel()
	b := setup(t, "*")
	b.issuer.Provenance = &provenance.ProvenanceClients{MaxAuthAge: 10 * time.Minute, ACR: []string{"phr", "phrh"}}
	store := b.another(t, *b.issuer)
	redirect, _, err := store.BeginFor(t.Context(), "", nil, "n", "kept")
	require.NoError(t, err)
	u, err := url.Parse(redirect)
	require.NoError(t, err)
	require.Equal(t, []string{"600", "phr phrh", "n"}, []string{u.Query().Get("max_age"), u.Query().Get("acr_values"), u.Query().Get("nonce")})
	redirect, _, err = store.Begin(t.Context(), "", nil, "/")
	require.NoError(t, err)
	require.NotContains(t, redirect, "max_age", "a login is no provenance")
}

// another is a store on the same database with another issuer entry.
func (b *testBundle) another(t *testing.T, entry provenance.Issuer) *human.Store {
	t.Helper()
	client := provenance.GuardedClient(true)
	sealer, err := provenance.NewSealer(make([]byte, 32))
	require.NoError(t, err)
	list, err := human.NewResidents([]string{"*"}, true)
	require.NoError(t, err)
	store, err := human.New(b.pool, human.Config{
		PublicURL: publicURL, Issuers: []provenance.Issuer{entry}, IDTokens: provenance.NewKeys(client), Client: client,
		Sealer: sealer, Residents: list, Arrivals: b.arrivals, Dev: true,
	})
	require.NoError(t, err)
	return store
}
