package friend_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

func num(v int64) *int64 { return &v }

func TestApprove_GrantsWhatTheHumanAllowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	r := b.pending(from{key: key})
	require.Equal(t, int64(180), r.Scope.Limits.ExpiresInDays, "left out: the offer's")

	g, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{
		Scope: &scope.Asked{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor}, Limits: scope.Partial{MaxOpen: num(3), ExpiresInDays: num(90)}},
		Note:  "welcome", ExpiresInDays: num(30), OfferVersion: &r.OfferVersion,
	})
	require.NoError(t, err)
	want := r.Scope
	want.Verbs, want.Limits.MaxOpen, want.Limits.ExpiresInDays = []scope.Verb{scope.CreateFor}, 3, 30
	require.Equal(t, want, g.Scope)
	require.Equal(t, want, g.Approved)
	require.Equal(t, r.Scope, g.Requested)
	require.Equal(t, 30*24*time.Hour, g.ExpiresAt.Sub(g.ApprovedAt))
	require.Equal(t, publicURL+"/mcp/"+g.EndpointID.String(), g.EndpointURL)

	own, err := b.store.GetOwn(t.Context(), friend.Asker{Persona: slug, Key: key.Thumbprint()}, r.ID)
	require.NoError(t, err)
	require.Equal(t, friend.Approved, own.State)
	require.Equal(t, "welcome", own.Note)
	require.Equal(t, &friend.Artifact{
		MCPEndpoint: g.EndpointURL, ResourceMetadata: publicURL + "/.well-known/oauth-protected-resource/mcp/" + g.EndpointID.String(),
		AuthorizationServer: publicURL, GrantedScope: g.Scope, GrantID: g.ID, ExpiresAt: g.ExpiresAt,
	}, own.Artifact)
	require.Equal(t, "done", b.text(`SELECT state FROM test_todo WHERE request = $1`, r.ID))

	// The task is terminal: what becomes of the grant does not show in it.
	_, err = b.store.Narrow(t.Context(), b.bob, g.ID, scope.Asked{Queues: g.Scope.Queues, Verbs: g.Scope.Verbs, Limits: scope.Partial{MaxOpen: num(1)}}, nil)
	require.NoError(t, err)
	_, err = b.store.Revoke(t.Context(), b.bob, g.ID, false)
	require.NoError(t, err)
	after, err := b.store.GetOwn(t.Context(), friend.Asker{Persona: slug, Key: key.Thumbprint()}, r.ID)
	require.NoError(t, err)
	require.Equal(t, own, after)
}

func TestApprove_RefusesWhatIsWiderAndWhatTheOfferNoLongerHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.pending(from{})
	as := func(change func(*scope.Asked)) friend.Approval {
		a := r.Scope.Asked()
		change(&a)
		return friend.Approval{Scope: &a}
	}
	refuse := func(want refusal.Code, a friend.Approval) {
		t.Helper()
		b.refusedStoringNothing(want, func() error { _, err := b.store.Approve(t.Context(), b.bob, r.ID, a); return err })
	}
	refuse(refusal.InvalidArgument, as(func(a *scope.Asked) { a.Verbs = append(a.Verbs, scope.ListCreated) })) // offered, not asked for
	refuse(refusal.InvalidArgument, as(func(a *scope.Asked) { a.Queues = []string{"triage"} }))
	refuse(refusal.InvalidArgument, as(func(a *scope.Asked) { a.Limits.MaxOpen = num(31) }))
	refuse(refusal.InvalidArgument, as(func(a *scope.Asked) { a.Limits.MaxOpen = num(-1) }))
	refuse(refusal.InvalidArgument, as(func(a *scope.Asked) { a.Verbs = nil }))
	refuse(refusal.InvalidArgument, friend.Approval{ExpiresInDays: num(181)})
	refuse(refusal.InvalidArgument, friend.Approval{ExpiresInDays: num(0)})
	refuse(refusal.InvalidArgument, friend.Approval{Note: "a\x00b"})

	fewer := []scope.Offer{{Queue: "reviews", Verbs: []scope.Verb{scope.CreateFor}}}
	p, err := b.personas.Update(t.Context(), b.bob, b.persona.ID, persona.Patch{Offers: &fewer})
	require.NoError(t, err)
	refuse(refusal.Conflict, friend.Approval{OfferVersion: &r.OfferVersion})
	refuse(refusal.Conflict, friend.Approval{})
	seen, err := b.store.GetIncoming(t.Context(), b.bob, r.ID)
	require.NoError(t, err)
	require.Equal(t, p.OfferVersion, seen.OfferVersion, "the page is shown with the offer of now")
	require.Equal(t, fewer, seen.Offered)
	a := as(func(a *scope.Asked) {
		a.Verbs, a.Limits = []scope.Verb{scope.CreateFor}, scope.Partial{MaxOpen: num(20), ExpiresInDays: num(90)}
	})
	a.OfferVersion = &seen.OfferVersion
	_, err = b.store.Approve(t.Context(), b.bob, r.ID, a)
	require.NoError(t, err)
}

func TestApprove_TwoAtOnceMakeOneGrant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for round := range 5 {
		r := b.pending(from{})
		errs := make([]error, 6)
		together(len(errs), func(i int) {
			switch {
			case i < 4:
				_, errs[i] = b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
			case i == 4:
				_, errs[i] = b.store.Decline(t.Context(), b.bob, r.ID, friend.Refusal{MayAskAgain: new(bool)})
			default:
				_, errs[i] = b.store.Withdraw(t.Context(), friend.Asker{Identity: r.Identity.Hash}, r.ID)
			}
		})
		ok := 0
		for _, err := range errs {
			if err == nil {
				ok++
				continue
			}
			refused(t, refusal.Conflict, err)
		}
		require.Equal(t, 1, ok, "round %d", round)
		b.exec(`UPDATE friend_request SET may_ask_again = true`)
	}
	require.Equal(t, b.count(`SELECT count(*) FROM friend_request WHERE state = 'approved'`), b.count(`SELECT count(*) FROM friend_grant`))
	require.Equal(t, b.count(`SELECT count(*) FROM friend_grant`), b.count(`SELECT count(*) FROM test_endpoint`))
	require.Zero(t, b.count(`SELECT count(*) FROM test_todo WHERE state = 'ready'`))
}

func TestApprove_IsOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	old := b.granted(from{key: key})
	r := b.pending(from{key: key, supersedes: old.ID})
	b.neighbours.failVend = errors.New("the disk is full")
	b.refusedStoringNothing(refusal.Internal, func() error {
		_, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
		return err
	})
	still, err := b.store.Grant(t.Context(), b.bob, old.ID)
	require.NoError(t, err)
	require.Equal(t, old, still)
	seen, err := b.store.GetIncoming(t.Context(), b.bob, r.ID)
	require.NoError(t, err)
	require.Equal(t, friend.Pending, seen.State)
}

func TestApprove_SupersedingKeepsTheLineWhateverTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.granted(from{})
	newKey := newKey(t)
	second := b.granted(from{key: newKey, supersedes: first.ID})
	require.Equal(t, first.Line, second.Line)
	require.NotEqual(t, first.EndpointID, second.EndpointID)
	old, err := b.store.Grant(t.Context(), b.bob, first.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantEnded, old.State)
	require.NotNil(t, old.EndedAt)
	require.Equal(t, "ended", b.text(`SELECT state FROM test_endpoint WHERE id = $1`, first.EndpointID))
	require.Equal(t, second.Line.String(), b.text(`SELECT line::text FROM test_endpoint WHERE id = $1`, second.EndpointID))

	// A paused one can be replaced, and one that ends while the request waits
	// still hands its line on.
	_, err = b.store.Pause(t.Context(), b.bob, second.ID)
	require.NoError(t, err)
	r := b.pending(from{key: newKey, supersedes: second.ID})
	_, err = b.store.Revoke(t.Context(), b.bob, second.ID, true)
	require.NoError(t, err)
	third, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
	require.NoError(t, err)
	require.Equal(t, first.Line, third.Line)
	old, err = b.store.Grant(t.Context(), b.bob, second.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantRevoked, old.State)
}

func TestApprove_AKeyGetsOneLiveGrantAPersona(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	alices := b.pending(from{key: key})
	carols := b.pending(from{sub: "carol", key: key}) // the same agent, signed for by two people
	g, err := b.store.Approve(t.Context(), b.bob, alices.ID, friend.Approval{})
	require.NoError(t, err)
	b.refusedStoringNothing(refusal.Conflict, func() error {
		_, err := b.store.Approve(t.Context(), b.bob, carols.ID, friend.Approval{})
		return err
	})
	// Once its time is over it stands in nobody's way, swept or not.
	b.exec(`UPDATE friend_grant SET expires_at = approved_at WHERE id = $1`, g.ID)
	_, err = b.store.Approve(t.Context(), b.bob, carols.ID, friend.Approval{})
	require.NoError(t, err)
	over, err := b.store.Grant(t.Context(), b.bob, g.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantExpired, over.State)
	require.Equal(t, "expired", b.text(`SELECT state FROM test_endpoint WHERE id = $1`, g.EndpointID))
}

func TestDecline_TellsTheRequesterAndEndsTheTodo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.pending(from{})
	rung, end := b.store.Follow(r.ID)
	defer end()
	d, err := b.store.Decline(t.Context(), b.bob, r.ID, friend.Refusal{Note: "Not this month."})
	require.NoError(t, err)
	require.Equal(t, friend.Declined, d.State)
	<-rung
	own, err := b.store.GetOwn(t.Context(), friend.Asker{Identity: r.Identity.Hash}, r.ID)
	require.NoError(t, err)
	require.Equal(t, "Not this month.", own.Note)
	require.Nil(t, own.Artifact)
	for name, again := range map[string]func() error{
		"approve": func() error { _, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{}); return err },
		"decline": func() error { _, err := b.store.Decline(t.Context(), b.bob, r.ID, friend.Refusal{}); return err },
		"withdraw": func() error {
			_, err := b.store.Withdraw(t.Context(), friend.Asker{Identity: r.Identity.Hash}, r.ID)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { b.refusedStoringNothing(refusal.Conflict, again) })
	}
	b.refusedStoringNothing(refusal.NotFound, func() error {
		_, err := b.store.Decline(t.Context(), uuid.Must(uuid.NewV7()), r.ID, friend.Refusal{})
		return err
	})
}

func TestIncoming_PagesAndStates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	people := []string{"alice", "carol", "dave"}
	for _, sub := range people {
		b.pending(from{sub: sub})
	}
	var seen []string
	cursor := ""
	for range people {
		rs, next, err := b.store.Incoming(t.Context(), b.bob, friend.Pending, cursor, 1)
		require.NoError(t, err)
		require.Len(t, rs, 1)
		require.Equal(t, offers(), rs[0].Offered)
		seen = append(seen, rs[0].Identity.Subject)
		cursor = next
	}
	require.Equal(t, []string{"dave", "carol", "alice"}, seen)
	require.Empty(t, cursor)
	_, next, err := b.store.Incoming(t.Context(), b.bob, friend.Pending, "", 1)
	require.NoError(t, err)
	_, _, err = b.store.Incoming(t.Context(), b.bob, friend.Declined, next, 1)
	refused(t, refusal.InvalidArgument, err)
	_, _, err = b.store.Incoming(t.Context(), uuid.Must(uuid.NewV7()), friend.Pending, next, 1)
	refused(t, refusal.InvalidArgument, err)
}

func TestListOwn_NewestUpdatedFirstWithTotal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []uuid.UUID
	var alice []byte
	for i := range 3 {
		slug := "p-" + string(rune('a'+i))
		b.newPersona(b.bob, slug)
		r := b.pending(from{persona: slug})
		ids, alice = append(ids, r.ID), r.Identity.Hash
	}
	b.pending(from{sub: "carol"})
	// The first is touched last.
	_, err := b.store.Decline(t.Context(), b.bob, ids[0], friend.Refusal{})
	require.NoError(t, err)

	asker := friend.Asker{Identity: alice}
	var got []uuid.UUID
	cursor := ""
	for {
		rs, next, total, err := b.store.ListOwn(t.Context(), asker, friend.AskerFilter{}, cursor, 2)
		require.NoError(t, err)
		require.Equal(t, 3, total)
		for _, r := range rs {
			got = append(got, r.ID)
		}
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, []uuid.UUID{ids[0], ids[2], ids[1]}, got)
	rs, _, total, err := b.store.ListOwn(t.Context(), asker, friend.AskerFilter{State: friend.Declined}, "", 0)
	require.NoError(t, err)
	require.Equal(t, 1, total)
	require.Equal(t, ids[0], rs[0].ID)
	_, _, total, err = b.store.ListOwn(t.Context(), asker, friend.AskerFilter{Since: &rs[0].UpdatedAt}, "", 0)
	require.NoError(t, err)
	require.Zero(t, total)

	known, err := b.store.KnownRequester(t.Context(), alice)
	require.NoError(t, err)
	require.True(t, known)
	known, err = b.store.KnownRequester(t.Context(), []byte("nobody"))
	require.NoError(t, err)
	require.False(t, known)
}

func TestRequest_SaysWhetherTheyHaveBeenHereBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.newPersona(b.bob, "second")
	first := b.pending(from{})
	second := b.pending(from{persona: "second"})
	require.Zero(t, first.Earlier)
	require.Equal(t, 1, second.Earlier)
	require.Equal(t, first.CreatedAt, second.FirstSeen)
	require.Equal(t, "alice@alice.example", second.Identity.Text())
	require.Equal(t, "alice at https://i.example", friend.Identity{Issuer: "https://i.example", Subject: "alice"}.Text())
	require.Contains(t, b.text(`SELECT title FROM test_todo WHERE request = $1`, first.ID), "alice@alice.example")
}

func TestDependents_KeepAPersonaWhileItIsAskedOrGranted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	personas := persona.New(b.pool, persona.Options{Queues: b.neighbours, Dependents: []persona.Dependents{friend.Dependents}})
	r := b.pending(from{})
	remove := func() error { return personas.Delete(t.Context(), b.bob, b.persona.ID) }
	b.refusedStoringNothing(refusal.Conflict, remove)
	g, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
	require.NoError(t, err)
	b.refusedStoringNothing(refusal.Conflict, remove)
	_, err = b.store.Revoke(t.Context(), b.bob, g.ID, true)
	require.NoError(t, err)
	require.NoError(t, remove())
	seen, err := b.store.GetIncoming(t.Context(), b.bob, r.ID)
	require.NoError(t, err, "decisions are kept for ever")
	require.Equal(t, friend.Approved, seen.State)
}
