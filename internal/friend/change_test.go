package friend_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

func TestNarrow_OnlyNarrowerAndTheEndpointWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := b.granted(from{})
	asked := func(change func(*scope.Asked)) scope.Asked {
		a := scope.Asked{Queues: g.Scope.Queues, Verbs: g.Scope.Verbs}
		change(&a)
		return a
	}
	refuse := func(want refusal.Code, a scope.Asked, version *int64) {
		t.Helper()
		b.refusedStoringNothing(want, func() error { _, err := b.store.Narrow(t.Context(), b.bob, g.ID, a, version); return err })
	}
	refuse(refusal.InvalidArgument, asked(func(a *scope.Asked) { a.Verbs = scope.Verbs() }), nil)
	refuse(refusal.InvalidArgument, asked(func(a *scope.Asked) { a.Limits.PerHour = num(61) }), nil)
	refuse(refusal.InvalidArgument, asked(func(a *scope.Asked) { a.Limits.ExpiresInDays = num(181) }), nil)
	refuse(refusal.InvalidArgument, asked(func(a *scope.Asked) { a.Queues = nil }), nil)
	refuse(refusal.PreconditionFailed, asked(func(*scope.Asked) {}), num(7))

	n, err := b.store.Narrow(t.Context(), b.bob, g.ID, asked(func(a *scope.Asked) { a.Limits = scope.Partial{MaxOpen: num(2), ExpiresInDays: num(10)} }), num(g.Version))
	require.NoError(t, err)
	require.Equal(t, g.Version+1, n.Version)
	require.Equal(t, int64(2), n.Scope.Limits.MaxOpen)
	require.Equal(t, int64(60), n.Scope.Limits.PerHour, "left out: the current one")
	require.Equal(t, g.ApprovedAt.Add(10*24*time.Hour), n.ExpiresAt, "days count from the approval")
	require.Equal(t, g.Approved, n.Approved)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM test_endpoint e JOIN friend_grant g ON g.endpoint_id = e.id AND g.scope = e.scope AND g.expires_at = e.expires_at`))

	b.exec(`UPDATE friend_grant SET approved_at = approved_at - interval '5 days'`)
	refuse(refusal.InvalidArgument, asked(func(a *scope.Asked) { a.Limits = scope.Partial{MaxOpen: num(2), ExpiresInDays: num(5)} }), nil)
	_, err = b.store.Revoke(t.Context(), b.bob, g.ID, false)
	require.NoError(t, err)
	refuse(refusal.Conflict, n.Scope.Asked(), nil)
}

func TestPause_IsAStateAndResumeRestoresExactly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := b.granted(from{})
	paused, err := b.store.Pause(t.Context(), b.bob, g.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantPaused, paused.State)
	require.Equal(t, g.Scope, paused.Scope)
	require.Equal(t, "paused", b.text(`SELECT state FROM test_endpoint`))
	again, err := b.store.Pause(t.Context(), b.bob, g.ID)
	require.NoError(t, err)
	require.Equal(t, paused, again)

	resumed, err := b.store.Resume(t.Context(), b.bob, g.ID)
	require.NoError(t, err)
	g.Version = resumed.Version
	require.Equal(t, g, resumed)
	require.Equal(t, "active", b.text(`SELECT state FROM test_endpoint`))
	_, err = b.store.Revoke(t.Context(), b.bob, g.ID, true)
	require.NoError(t, err)
	for _, f := range []func(context.Context, uuid.UUID, uuid.UUID) (friend.Grant, error){b.store.Pause, b.store.Resume} {
		b.refusedStoringNothing(refusal.Conflict, func() error { _, err := f(t.Context(), b.bob, g.ID); return err })
	}
}

func TestRevoke_CancelsOrFinishesOpenTodos(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cancel, finish := b.granted(from{}), b.granted(from{})
	for _, c := range []struct {
		g        friend.Grant
		finish   bool
		canceled int
	}{{cancel, false, 1}, {finish, true, 0}} {
		g, err := b.store.Revoke(t.Context(), b.bob, c.g.ID, c.finish)
		require.NoError(t, err)
		require.Equal(t, friend.GrantRevoked, g.State)
		require.NotNil(t, g.EndedAt)
		require.Equal(t, c.canceled, b.count(`SELECT count(*) FROM test_endpoint WHERE id = $1 AND state = 'revoked' AND canceled IS NOT NULL`, c.g.EndpointID))
		require.Equal(t, "revoked", b.text(`SELECT state FROM test_endpoint WHERE id = $1`, c.g.EndpointID))
		b.refusedStoringNothing(refusal.Conflict, func() error { _, err := b.store.Revoke(t.Context(), b.bob, c.g.ID, c.finish); return err })
	}
}

func TestLeave_IsTheRequestersOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g, carols := b.granted(from{}), b.granted(from{sub: "carol"})
	b.refusedStoringNothing(refusal.NotFound, func() error { _, err := b.store.Leave(t.Context(), carols.Identity.Hash, g.ID); return err })
	_, err := b.store.GrantOut(t.Context(), carols.Identity.Hash, g.ID)
	refused(t, refusal.NotFound, err)
	out, next, err := b.store.GrantsOut(t.Context(), g.Identity.Hash, "", 0)
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, []friend.Grant{g}, out)

	left, err := b.store.Leave(t.Context(), g.Identity.Hash, g.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantEnded, left.State)
	require.Equal(t, "ended", b.text(`SELECT state FROM test_endpoint WHERE id = $1`, g.EndpointID))
	_, err = b.store.Leave(t.Context(), g.Identity.Hash, g.ID)
	refused(t, refusal.Conflict, err)
}

func TestPauseAll_PausesEveryActiveGrantOfTheOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := uuid.Must(uuid.NewV7())
	b.newPersona(alice, "release-bot")
	hers := b.granted(from{sub: "bob", persona: "release-bot"})
	for range 3 {
		b.granted(from{})
	}
	already := b.granted(from{sub: "carol"})
	_, err := b.store.Pause(t.Context(), b.bob, already.ID)
	require.NoError(t, err)

	counts := make([]int, 4)
	together(len(counts), func(i int) { counts[i], _ = b.store.PauseAll(t.Context(), b.bob) })
	require.Equal(t, 3, counts[0]+counts[1]+counts[2]+counts[3])
	require.Equal(t, 4, b.count(`SELECT count(*) FROM friend_grant g JOIN test_endpoint e ON e.id = g.endpoint_id AND e.state = 'paused' WHERE g.state = 'paused'`))
	still, err := b.store.Grant(t.Context(), alice, hers.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantActive, still.State)
}

func TestRun_ExpiresWhatIsOverAndReminds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := b.granted(from{})
	r := b.pending(from{sub: "carol"})
	b.exec(`UPDATE friend_request SET expires_at = created_at WHERE id = $1`, r.ID)
	b.exec(`UPDATE friend_replay SET keep_until = clock_timestamp() - interval '1 second'`)

	// Readers see it before anybody has swept.
	seen, err := b.store.GetIncoming(t.Context(), b.bob, r.ID)
	require.NoError(t, err)
	require.Equal(t, friend.RequestExpired, seen.State)
	b.refusedStoringNothing(refusal.Conflict, func() error { _, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{}); return err })

	rung, end := b.store.Follow(r.ID)
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- b.store.Run(ctx) }()
	for b.text(`SELECT state FROM friend_request WHERE id = $1`, r.ID) != "expired" {
		<-rung
	}
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, "failed", b.text(`SELECT state FROM test_todo WHERE request = $1`, r.ID))

	require.NoError(t, b.store.Sweep(t.Context()))
	require.Zero(t, b.count(`SELECT count(*) FROM friend_replay`))
	remindersAfter := func(left string) int {
		b.exec(`UPDATE friend_grant SET expires_at = clock_timestamp() + $1::interval, approved_at = clock_timestamp() - interval '60 days'`, left)
		require.NoError(t, b.store.Sweep(t.Context()))
		require.NoError(t, b.store.Sweep(t.Context()))
		return b.count(`SELECT count(*) FROM test_notice WHERE kind = 'grant.ending'`)
	}
	require.Equal(t, 0, remindersAfter("15 days"))
	require.Equal(t, 1, remindersAfter("13 days"))
	b.exec(`UPDATE friend_grant SET reminded_at = clock_timestamp() - interval '12 days'`)
	require.Equal(t, 2, remindersAfter("1 day"))
	remindersAfter("-1 second")
	over, err := b.store.Grant(t.Context(), b.bob, g.ID)
	require.NoError(t, err)
	require.Equal(t, friend.GrantExpired, over.State)
	require.Equal(t, "expired", b.text(`SELECT state FROM test_endpoint WHERE id = $1`, g.EndpointID))
	for name, f := range map[string]func() error{
		"narrow": func() error { _, err := b.store.Narrow(t.Context(), b.bob, g.ID, g.Scope.Asked(), nil); return err },
		"resume": func() error { _, err := b.store.Resume(t.Context(), b.bob, g.ID); return err },
		"revoke": func() error { _, err := b.store.Revoke(t.Context(), b.bob, g.ID, false); return err },
	} {
		t.Run(name, func(t *testing.T) { b.refusedStoringNothing(refusal.Conflict, f) })
	}
}
