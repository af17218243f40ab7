package friend_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// The tests that confirm the decision which founded this project, as far as this
// package can break them. Over the wire they stand in internal/server.

func TestFounding_RequestCreatesAPendingEdgeThatGrantsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	r := b.pending(from{key: key})

	require.Equal(t, b.bob, r.Owner)
	require.Equal(t, "alice", r.Identity.Subject)
	require.Equal(t, key.Thumbprint(), r.Key)
	require.Nil(t, r.Artifact)
	require.Zero(t, b.count(`SELECT count(*) FROM friend_grant`))
	require.Zero(t, b.count(`SELECT count(*) FROM test_endpoint`))
	require.Equal(t, "ready", b.text(`SELECT state FROM test_todo WHERE request = $1`, r.ID), "the decision waits in bob's inbox")
	grants, _, err := b.store.GrantsOut(t.Context(), r.Identity.Hash, "", 0)
	require.NoError(t, err)
	require.Empty(t, grants)
}

func TestFounding_ApprovalMintsRequestedMeetNarrowedNeverWider(t *testing.T) {
	t.Parallel()
	b := setup(t)
	queues := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"reviews", "triage", "inbox"}), 1, 3, rapid.ID)
	verbs := rapid.SliceOfNDistinct(rapid.SampledFrom(scope.Verbs()), 1, 3, rapid.ID)
	limit := func(t *rapid.T, name string, from, to int64) *int64 {
		if rapid.Bool().Draw(t, name+" is left out") {
			return nil
		}
		v := rapid.Int64Range(from, to).Draw(t, name)
		return &v
	}
	anyScope := func(t *rapid.T, name string) scope.Asked {
		return scope.Asked{Queues: queues.Draw(t, name+" queues"), Verbs: verbs.Draw(t, name+" verbs"), Limits: scope.Partial{
			MaxOpen: limit(t, name+" max_open", 0, 32), ExpiresInDays: limit(t, name+" days", 1, 200),
		}}
	}
	granted := 0
	rapid.Check(t, func(rt *rapid.T) {
		asked := anyScope(rt, "asked")
		requested, inside := scope.Resolve(asked, offers())
		r, err := b.submit(from{sub: uuid.NewString(), scope: &asked})
		if inside != nil {
			refused(t, refusal.InvalidArgument, err)
			return
		}
		require.NoError(t, err)
		allowed := anyScope(rt, "allowed")
		g, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{Scope: &allowed})
		if err != nil {
			refused(t, refusal.InvalidArgument, err)
			_, err = b.store.Decline(t.Context(), b.bob, r.ID, friend.Refusal{})
			require.NoError(t, err)
			return
		}
		granted++
		require.True(t, g.Scope.Narrower(requested), "%v is wider than %v", g.Scope, requested)
		require.NoError(t, g.Scope.Inside(offers()))
		var vended scope.Scope
		require.NoError(t, json.Unmarshal([]byte(b.text(`SELECT scope::text FROM test_endpoint WHERE id = $1`, g.EndpointID)), &vended))
		require.Equal(t, g.Scope, vended)
	})
	require.Equal(t, granted, b.count(`SELECT count(*) FROM friend_grant`))
}

func TestFounding_OneDirectionOnlyAndRevokingOneLeavesTheOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := uuid.Must(uuid.NewV7())
	b.newPersona(alice, "release-bot")

	there := b.granted(from{sub: "alice"})
	mine, _, err := b.store.Grants(t.Context(), alice, "", 0)
	require.NoError(t, err)
	require.Empty(t, mine, "what bob granted gives bob nothing at alice's")

	back := b.granted(from{sub: "bob", persona: "release-bot"})
	_, err = b.store.Revoke(t.Context(), b.bob, back.ID, false)
	refused(t, refusal.NotFound, err)
	_, err = b.store.Revoke(t.Context(), b.bob, there.ID, false)
	require.NoError(t, err)
	still, err := b.store.Grant(t.Context(), alice, back.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantActive, still.State)
	require.Equal(t, "active", b.text(`SELECT state FROM test_endpoint WHERE id = $1`, back.EndpointID))
}

func TestFounding_NoFriendRequestCarriesWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := b.sign(from{})
	for _, smuggled := range []string{"todo", "todos", "work", "task", "payload", "items", "create_for"} {
		var part map[string]any
		require.NoError(t, json.Unmarshal(good.Part, &part))
		part[smuggled] = map[string]any{"queue": "reviews", "title": "do this"}
		raw, err := json.Marshal(part)
		require.NoError(t, err)
		sub := good
		sub.Part = raw
		b.refusedStoringNothing(refusal.InvalidArgument, func() error { _, _, err := b.store.Submit(t.Context(), sub); return err })
	}
}

func TestFounding_WithoutValidProvenanceRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.personas.Update(t.Context(), b.bob, b.persona.ID, persona.Patch{WhoMayAsk: &persona.WhoMayAsk{Issuers: []string{b.idp.URL("plain")}}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		want refusal.Code
		f    from
	}{
		"issuer that this persona does not trust": {refusal.IssuerUntrusted, from{issuer: "shunned"}},
		"issuer that nobody trusts":               {refusal.IssuerUntrusted, from{issuer: "unknown"}},
		"forged signature":                        {refusal.IDTokenSignature, from{token: provenancetest.JWS{SignedBy: "b"}}},
		"token for signing in":                    {refusal.IDTokenAudience, from{token: provenancetest.JWS{Claims: map[string]any{"aud": provenancetest.LoginClient, "azp": nil}}}},
		"token for something else":                {refusal.NonceMismatch, from{token: provenancetest.JWS{Claims: map[string]any{"nonce": "another"}}}},
		"old token":                               {refusal.IDTokenExpired, from{token: provenancetest.JWS{Claims: map[string]any{"exp": 1000}}}},
	} {
		t.Run(name, func(t *testing.T) {
			b.refusedStoringNothing(c.want, func() error { _, err := b.submit(c.f); return err })
		})
	}
	bare := b.sign(from{})
	var part map[string]any
	require.NoError(t, json.Unmarshal(bare.Part, &part))
	delete(part, "provenance")
	bare.Part, err = json.Marshal(part)
	require.NoError(t, err)
	b.refusedStoringNothing(refusal.ProvenanceMissing, func() error { _, _, err := b.store.Submit(t.Context(), bare); return err })
}

func TestFounding_FriendingRevealsNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.newPersona(b.bob, "secret-persona")
	carol := b.pending(from{sub: "carol", key: newKey(t)})
	key := newKey(t)
	g := b.granted(from{key: key})

	own, err := b.store.GetOwn(t.Context(), friend.Asker{Persona: slug, Key: key.Thumbprint()}, g.RequestID)
	require.NoError(t, err)
	artifact, err := json.Marshal(own.Artifact)
	require.NoError(t, err)
	for _, hidden := range []string{"secret-persona", "triage", "carol", carol.ID.String(), b.bob.String()} {
		require.NotContains(t, string(artifact), hidden)
	}
	for name, asker := range map[string]friend.Asker{
		"her key":                   {Persona: slug, Key: key.Thumbprint()},
		"her identity":              {Persona: slug, Identity: g.Identity.Hash},
		"her session":               {Identity: g.Identity.Hash},
		"her key at another":        {Persona: "secret-persona", Key: key.Thumbprint()},
		"her key without a persona": {Key: key.Thumbprint()},
		"nobody":                    {Persona: slug},
	} {
		t.Run(name, func(t *testing.T) {
			_, foreign := b.store.GetOwn(t.Context(), asker, carol.ID)
			_, unknown := b.store.GetOwn(t.Context(), asker, uuid.Must(uuid.NewV7()))
			refused(t, refusal.NotFound, foreign)
			require.Equal(t, unknown, foreign, "somebody else's and unknown are told apart")
			_, foreign = b.store.Withdraw(t.Context(), asker, carol.ID)
			require.Equal(t, unknown, foreign)
		})
	}
	rs, _, total, err := b.store.ListOwn(t.Context(), friend.Asker{Identity: g.Identity.Hash}, friend.AskerFilter{}, "", 0)
	require.NoError(t, err)
	require.Equal(t, 1, total)
	require.Equal(t, g.RequestID, rs[0].ID)
}

func TestFounding_NoAgentCanApprove(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	r := b.pending(from{key: key})
	// Whoever is not bob, his agent, persona, endpoint or the request itself
	// included, finds nothing to approve.
	for _, somebody := range []uuid.UUID{uuid.Must(uuid.NewV7()), b.persona.AgentID, b.persona.ID, r.ID, r.TodoID, uuid.Nil} {
		b.refusedStoringNothing(refusal.NotFound, func() error {
			_, err := b.store.Approve(t.Context(), somebody, r.ID, friend.Approval{})
			return err
		})
	}
	own, err := b.store.GetOwn(t.Context(), friend.Asker{Persona: slug, Key: key.Thumbprint()}, r.ID)
	require.NoError(t, err)
	require.Equal(t, friend.Pending, own.State)
}
