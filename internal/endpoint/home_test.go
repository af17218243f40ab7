package endpoint_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

func TestAHomeEndpointIsOpenedByItsCredentialAlone(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	e, credential := b.home(t)
	require.Regexp(t, `^sbe_[A-Za-z0-9_-]{43}$`, credential)
	require.Equal(t, []string{"builds", "reviews"}, e.Scope.Queues)
	require.Nil(t, e.Tools)
	require.Equal(t, b.persona.AgentID, e.Line)

	c, err := b.store.Authenticate(ctx, e.ID, credential)
	require.NoError(t, err)
	require.Equal(t, e, c.Endpoint)
	require.Equal(t, e.ExpiresAt, c.Until)
	again, err := b.store.Authenticate(ctx, e.ID, credential)
	require.NoError(t, err)
	require.Equal(t, c, again, "out of the cache")

	another, theirs := b.home(t)
	for name, try := range map[string]struct {
		id     uuid.UUID
		bearer string
	}{
		"unknown endpoint":      {newID(), credential},
		"another endpoint":      {another.ID, credential},
		"another's credential":  {e.ID, theirs},
		"no token":              {e.ID, ""},
		"something":             {e.ID, "sbe_x"},
		"a credential's prefix": {e.ID, "sbt_" + credential[4:]},
		"NUL":                   {e.ID, credential[:46] + "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.store.Authenticate(ctx, try.id, try.bearer)
			unauthenticated(t, err)
		})
	}

	var plain int
	require.NoError(t, b.pool.QueryRow(ctx, `SELECT count(*) FROM endpoint_token t WHERE strpos(t::text, $1) > 0`, credential[4:]).Scan(&plain))
	require.Zero(t, plain, "kept as a hash only")
}

func TestWhatAHomeEndpointMustNotBe(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	for name, tt := range map[string]struct {
		bend  func(*endpoint.HomeSpec)
		field string
	}{
		"another's persona":           {func(s *endpoint.HomeSpec) { s.PersonaID = newID() }, "persona_id"},
		"another agent":               {func(s *endpoint.HomeSpec) { s.AgentID = newID() }, "agent_id"},
		"queue the persona works not": {func(s *endpoint.HomeSpec) { s.Queues = []string{"deploys"} }, "queues"},
		"inbox":                       {func(s *endpoint.HomeSpec) { s.Queues = []string{"inbox"} }, "queues"},
		"no queue":                    {func(s *endpoint.HomeSpec) { s.Queues = []string{} }, "queues"},
		"queue twice":                 {func(s *endpoint.HomeSpec) { s.Queues = []string{"reviews", "reviews"} }, "queues"},
		"a peer's tool":               {func(s *endpoint.HomeSpec) { s.Tools = []string{"create_for"} }, "verbs"},
		"no tool":                     {func(s *endpoint.HomeSpec) { s.Tools = []string{} }, "verbs"},
		"tool twice":                  {func(s *endpoint.HomeSpec) { s.Tools = []string{"claim", "claim"} }, "verbs"},
		"longer than a year":          {func(s *endpoint.HomeSpec) { s.ExpiresInDays = 366 }, "expires_in_days"},
		"ended before it began":       {func(s *endpoint.HomeSpec) { s.ExpiresInDays = -1 }, "expires_in_days"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := endpoint.HomeSpec{AgentID: b.persona.AgentID, PersonaID: b.persona.ID}
			tt.bend(&spec)
			_, credential, err := b.store.CreateHome(t.Context(), b.owner(), spec)
			refused(t, err, refusal.InvalidArgument)
			require.Equal(t, tt.field, refusal.From(err).Field)
			require.Empty(t, credential)
		})
	}
	list, _, err := b.store.List(t.Context(), b.owner(), "", 0)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Empty(t, b.kinds())
}

// Whatever happens to an endpoint makes its version one more, so that a caller
// that was resolved before is found out.
func TestEveryChangeMakesAnotherVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	e, credential := b.home(t)
	version := e.Version
	next := func(e endpoint.Endpoint, err error) {
		t.Helper()
		require.NoError(t, err)
		version++
		require.Equal(t, version, e.Version)
		var seen int64
		require.NoError(t, b.pool.QueryRow(ctx, `SELECT version FROM endpoint_authority WHERE owner = $1 AND id = $2`, b.owner(), e.ID).Scan(&seen))
		require.Equal(t, version, seen)
	}
	next(b.store.NarrowHome(ctx, b.owner(), e.ID, []string{"reviews"}, nil))
	next(b.store.NarrowHome(ctx, b.owner(), e.ID, nil, []string{"complete", "claim"}))
	rotated, fresh, err := b.store.RotateHome(ctx, b.owner(), e.ID)
	next(rotated, err)
	next(b.store.PauseHome(ctx, b.owner(), e.ID))
	resumed, err := b.store.ResumeHome(ctx, b.owner(), e.ID)
	next(resumed, err)
	require.Equal(t, []string{"reviews"}, resumed.Scope.Queues, "resuming restores exactly what was")
	require.Equal(t, []string{"claim", "complete"}, resumed.Tools)

	_, err = b.store.Authenticate(ctx, e.ID, credential)
	unauthenticated(t, err)
	_, err = b.store.Authenticate(ctx, e.ID, fresh)
	require.NoError(t, err)
	holders, err := b.store.Holders(ctx, b.owner(), e.ID)
	require.NoError(t, err)
	require.Len(t, holders, 1)
	require.Equal(t, "static", holders[0].Kind)
	require.NotNil(t, holders[0].LastUsed)
	require.NoError(t, b.store.RevokeHolder(ctx, b.owner(), e.ID, holders[0].ID))
	after, err := b.store.Get(ctx, b.owner(), e.ID)
	next(after, err)
	refused(t, b.store.RevokeHolder(ctx, b.owner(), e.ID, holders[0].ID), refusal.NotFound)
	after, err = b.store.Get(ctx, b.owner(), e.ID)
	require.NoError(t, err)
	require.Equal(t, version, after.Version, "a refusal changes nothing")
	next(b.store.RevokeHome(ctx, b.owner(), e.ID))
	require.Equal(t, []string{
		"endpoint.vended", "endpoint.narrowed", "endpoint.narrowed", "endpoint.rotated", "endpoint.paused", "endpoint.resumed", "holder.revoked", "endpoint.revoked",
	}, b.kinds()[:8])

	id := b.peer(t, b.alice)
	token, err := b.token(t, b.alice, mcpURL(id))
	require.NoError(t, err)
	require.NoError(t, b.store.RevokeToken(ctx, token.Access))
	p, err := b.store.Get(ctx, b.owner(), id)
	require.NoError(t, err)
	require.Equal(t, int64(2), p.Version)
}

func TestAnEndpointOnlyBecomesNarrower(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	e, _ := b.home(t)
	_, err := b.store.NarrowHome(ctx, b.owner(), e.ID, []string{"reviews"}, []string{"claim"})
	require.NoError(t, err)
	_, err = b.store.NarrowHome(ctx, b.owner(), e.ID, []string{"reviews", "builds"}, nil)
	refused(t, err, refusal.InvalidArgument)
	_, err = b.store.NarrowHome(ctx, b.owner(), e.ID, nil, []string{"claim", "complete"})
	refused(t, err, refusal.InvalidArgument)
	_, err = b.store.NarrowHome(ctx, b.owner(), e.ID, nil, nil)
	refused(t, err, refusal.InvalidArgument)
	_, err = b.store.NarrowHome(ctx, newID(), e.ID, []string{"reviews"}, nil)
	refused(t, err, refusal.NotFound)

	id := b.peer(t, b.alice)
	_, err = b.store.NarrowHome(ctx, b.owner(), id, []string{"reviews"}, nil)
	refused(t, err, refusal.NotFound) // a grant's endpoint is changed through the grant
	wider := granted
	wider.Limits.MaxOpen++
	refused(t, b.change(t, id, endpoint.Change{Scope: &wider}), refusal.InvalidArgument)
	p, err := b.store.Get(ctx, b.owner(), id)
	require.NoError(t, err)
	later := p.ExpiresAt.Add(1)
	later = later.Add(999)
	refused(t, b.change(t, id, endpoint.Change{ExpiresAt: &later}), refusal.InvalidArgument)
	require.Equal(t, granted, p.Scope)
	require.Equal(t, int64(1), p.Version)
}

func TestStatesThatAChangeNeeds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	e, _ := b.home(t)
	_, err := b.store.ResumeHome(ctx, b.owner(), e.ID)
	refused(t, err, refusal.Conflict)
	_, err = b.store.PauseHome(ctx, b.owner(), e.ID)
	require.NoError(t, err)
	_, err = b.store.PauseHome(ctx, b.owner(), e.ID)
	refused(t, err, refusal.Conflict)
	_, err = b.store.RevokeHome(ctx, b.owner(), e.ID)
	require.NoError(t, err)
	for _, change := range []func() error{
		func() error { _, err := b.store.RevokeHome(ctx, b.owner(), e.ID); return err },
		func() error { _, err := b.store.ResumeHome(ctx, b.owner(), e.ID); return err },
		func() error { _, err := b.store.NarrowHome(ctx, b.owner(), e.ID, []string{"reviews"}, nil); return err },
		func() error { _, _, err := b.store.RotateHome(ctx, b.owner(), e.ID); return err },
	} {
		refused(t, change(), refusal.Conflict)
	}

	id := b.peer(t, b.alice)
	refused(t, b.turn(t, id, endpoint.Active), refusal.Conflict)
	require.NoError(t, b.turn(t, id, endpoint.Paused))
	require.NoError(t, b.turn(t, id, endpoint.Active))
	_, err = b.pool.Exec(ctx, `UPDATE endpoint SET expires_at = clock_timestamp() WHERE id = $1`, id)
	require.NoError(t, err)
	p, err := b.store.Get(ctx, b.owner(), id)
	require.NoError(t, err)
	require.Equal(t, endpoint.Expired, p.State)
	refused(t, b.turn(t, id, endpoint.Paused), refusal.Conflict)
	require.NoError(t, b.turn(t, id, endpoint.Expired), "it may be marked as what it is")
	refused(t, b.turn(t, id, endpoint.Revoked), refusal.Conflict)
}

func TestAPersonaWithALiveEndpointIsInUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	in := func(agent, persona uuid.UUID) (what string) {
		b.tx(t, func(tx pgx.Tx) (err error) {
			what, err = endpoint.Dependents(ctx, tx, b.owner(), agent, persona)
			return err
		})
		return what
	}
	require.Empty(t, in(b.persona.AgentID, b.persona.ID))
	e, _ := b.home(t)
	require.NotEmpty(t, in(b.persona.AgentID, b.persona.ID))
	require.NotEmpty(t, in(b.persona.AgentID, uuid.Nil))
	require.Empty(t, in(b.persona.AgentID, newID()))
	_, err := b.store.RevokeHome(ctx, b.owner(), e.ID)
	require.NoError(t, err)
	require.Empty(t, in(b.persona.AgentID, uuid.Nil))
}

func TestListsArePagesOfTheOwnersHomeEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	var want []uuid.UUID
	for range 3 {
		e, _ := b.home(t)
		want = append([]uuid.UUID{e.ID}, want...)
	}
	b.peer(t, b.alice)
	var got []uuid.UUID
	for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
		require.Less(t, n, 5)
		list, next, err := b.store.List(ctx, b.owner(), cursor, 2)
		require.NoError(t, err)
		for _, e := range list {
			got = append(got, e.ID)
		}
		cursor = next
	}
	require.Equal(t, want, got)
	_, next, err := b.store.List(ctx, b.owner(), "", 1)
	require.NoError(t, err)
	_, _, err = b.store.List(ctx, newID(), next, 1)
	refused(t, err, refusal.InvalidArgument)
}
