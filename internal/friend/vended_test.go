package friend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// vending is a bundle whose endpoints are real.
func vending(t *testing.T) (*bundle, *endpoint.Store) {
	t.Helper()
	b := setup(t)
	endpoints := endpoint.New(b.pool, endpoint.Options{PublicURL: publicURL, Personas: b.personas, Record: activity.Record})
	b.options.Endpoints = endpoints
	b.store = friend.New(b.pool, b.options)
	return b, endpoints
}

func TestVended_TheKeysTokenFollowsTheGrantAtOnce(t *testing.T) {
	t.Parallel()
	b, endpoints := vending(t)
	key := newKey(t)
	token := func(resource string) (endpoint.Token, error) {
		assertion, err := provenance.ClientAssertion(key, publicURL, time.Now())
		require.NoError(t, err)
		return endpoints.IssueForKey(t.Context(), endpoint.KeyGrant{Assertion: assertion, Resource: resource})
	}
	persona := publicURL + "/a2a/" + slug
	_, err := token(persona)
	require.Error(t, err, "nothing for a key that never asked")
	r := b.pending(from{key: key})
	tok, err := token(persona)
	require.NoError(t, err, "from its first stored request")
	who, err := endpoints.AuthenticateRequester(t.Context(), slug, tok.Access)
	require.NoError(t, err)
	own, err := b.store.GetOwn(t.Context(), friend.Asker{Persona: slug, Key: who.Key}, r.ID)
	require.NoError(t, err)
	require.Equal(t, friend.Pending, own.State)

	g, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
	require.NoError(t, err)
	tok, err = token(g.EndpointURL)
	require.NoError(t, err)
	authenticate := func() (endpoint.Caller, error) {
		return endpoints.Authenticate(t.Context(), g.EndpointID, tok.Access)
	}
	dead := func() {
		t.Helper()
		_, err := authenticate()
		refused(t, refusal.Unauthenticated, err)
		_, err = token(g.EndpointURL)
		require.Error(t, err)
	}
	c, err := authenticate()
	require.NoError(t, err)
	require.Equal(t, g.Scope, c.Effective())
	require.Equal(t, g.Line, c.Endpoint.Line)
	require.Equal(t, "alice@alice.example", c.Endpoint.IdentityText)
	require.Equal(t, "release-bot", c.Endpoint.CallsItself)

	n, err := b.store.Narrow(t.Context(), b.bob, g.ID, scope.Asked{Queues: g.Scope.Queues, Verbs: []scope.Verb{scope.TodoStatus}}, nil)
	require.NoError(t, err)
	c, err = authenticate()
	require.NoError(t, err)
	require.Equal(t, n.Scope, c.Effective())

	_, err = b.store.PauseAll(t.Context(), b.bob)
	require.NoError(t, err)
	dead()
	_, err = b.store.Resume(t.Context(), b.bob, g.ID)
	require.NoError(t, err)
	c, err = authenticate()
	require.NoError(t, err)
	require.Equal(t, n.Scope, c.Effective())

	second := b.granted(from{supersedes: g.ID})
	dead()
	old, err := b.store.Grant(t.Context(), b.bob, g.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantEnded, old.State)
	require.Equal(t, g.Line, second.Line)
	_, err = token(second.EndpointURL)
	require.Error(t, err, "the line went on with another key")

	g, tok = b.granted(from{key: key}), endpoint.Token{}
	tok, err = token(g.EndpointURL)
	require.NoError(t, err)
	_, err = b.store.Revoke(t.Context(), b.bob, g.ID, false)
	require.NoError(t, err)
	dead()
	b.exec(`UPDATE friend_grant SET expires_at = approved_at WHERE id = $1`, second.ID)
	b.exec(`UPDATE endpoint SET expires_at = created_at WHERE id = $1`, second.EndpointID)
	require.NoError(t, b.store.Sweep(t.Context()))
	require.Equal(t, "expired", b.text(`SELECT state FROM endpoint WHERE id = $1`, second.EndpointID))
}
