package persona_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/activity"
	"switchboard/internal/persona"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// queues are what package todo would know.
type queues []string

func (q queues) QueuesExist(_ context.Context, _ uuid.UUID, names []string) error {
	for _, n := range names {
		if !slices.Contains(q, n) {
			return refusal.Invalid("queues", "there is no queue %s", n)
		}
	}
	return nil
}

type testBundle struct {
	store *persona.Store
	pool  *pgxpool.Pool
	owner uuid.UUID
	agent persona.Agent

	mu    sync.Mutex
	kinds []string
	lives string // what the next delete finds alive
}

func (b *testBundle) spec(slug string) persona.Spec {
	return persona.Spec{
		AgentID: b.agent.ID, Slug: slug, Name: "Reviewer", Description: "Reviews.", Prompt: "You review.",
		Queues: []string{"reviews", "builds"},
		Offers: []scope.Offer{{Queue: "reviews", Verbs: []scope.Verb{scope.TodoStatus, scope.CreateFor}}},
	}
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	b := &testBundle{pool: pgtest.Pool(t), owner: uuid.Must(uuid.NewV7())}
	b.store = persona.New(b.pool, persona.Options{
		Queues: queues{"reviews", "builds"},
		Record: func(_ context.Context, _ pgx.Tx, events ...activity.Event) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, e := range events {
				b.kinds = append(b.kinds, e.Kind)
			}
			return nil
		},
		Dependents: []persona.Dependents{func(context.Context, pgx.Tx, uuid.UUID, uuid.UUID, uuid.UUID) (string, error) { return b.lives, nil }},
	})
	var err error
	b.agent, err = b.store.CreateAgent(t.Context(), b.owner, "bot", "")
	require.NoError(t, err)
	return b
}

func refused(t *testing.T, err error, code refusal.Code, field string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, refusal.CodeOf(err), "%v", err)
	require.Equal(t, field, refusal.From(err).Field)
}

func TestAPersonaIsFoundByItsSlugUnlessItIsOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	p, err := b.store.Create(ctx, b.owner, b.spec("reviewer"))
	require.NoError(t, err)
	require.Equal(t, persona.Listed, p.Visibility)

	found, err := b.store.BySlug(ctx, "reviewer")
	require.NoError(t, err)
	require.Equal(t, p, found)

	off := persona.Off
	_, err = b.store.Update(ctx, b.owner, p.ID, persona.Patch{Visibility: &off})
	require.NoError(t, err)
	_, gone := b.store.BySlug(ctx, "reviewer")
	_, unknown := b.store.BySlug(ctx, "nobody-has-this")
	refused(t, gone, refusal.NotFound, "")
	require.Equal(t, refusal.From(unknown), refusal.From(gone), "off and unknown are the same from outside")
	_, err = b.store.BySlug(ctx, "No Slug\x00")
	require.Equal(t, refusal.From(unknown), refusal.From(err))

	mine, err := b.store.Get(ctx, b.owner, p.ID)
	require.NoError(t, err, "its owner still sees it")
	require.Equal(t, persona.Off, mine.Visibility)
	_, err = b.store.Get(ctx, uuid.New(), p.ID)
	refused(t, err, refusal.NotFound, "")
}

func TestWhatAPersonaMustNotBe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tests := map[string]struct {
		bend  func(*persona.Spec)
		field string
	}{
		"slug of another alphabet":   {func(s *persona.Spec) { s.Slug = "Reviewer" }, "slug"},
		"slug too long":              {func(s *persona.Spec) { s.Slug = strings.Repeat("a", 64) }, "slug"},
		"no name":                    {func(s *persona.Spec) { s.Name = " " }, "name"},
		"name too long":              {func(s *persona.Spec) { s.Name = strings.Repeat("é", 101) }, "name"},
		"name of two lines":          {func(s *persona.Spec) { s.Name = "a\nb" }, "name"},
		"description too long":       {func(s *persona.Spec) { s.Description = strings.Repeat("x", 2001) }, "description"},
		"NUL in the prompt":          {func(s *persona.Spec) { s.Prompt = "a\x00b" }, "prompt"},
		"prompt too long":            {func(s *persona.Spec) { s.Prompt = strings.Repeat("x", 16<<10+1) }, "prompt"},
		"prompt no UTF-8":            {func(s *persona.Spec) { s.Prompt = "\xff" }, "prompt"},
		"unknown visibility":         {func(s *persona.Spec) { s.Visibility = "secret" }, "visibility"},
		"inbox":                      {func(s *persona.Spec) { s.Queues = []string{"inbox"} }, "queues"},
		"unknown queue":              {func(s *persona.Spec) { s.Queues, s.Offers = []string{"nope"}, nil }, "queues"},
		"queue twice":                {func(s *persona.Spec) { s.Queues = []string{"reviews", "reviews"} }, "queues"},
		"offer on a foreign queue":   {func(s *persona.Spec) { s.Offers[0].Queue = "deploys" }, "offers"},
		"offer on inbox":             {func(s *persona.Spec) { s.Offers[0].Queue = "inbox" }, "offers"},
		"offer of an unknown verb":   {func(s *persona.Spec) { s.Offers[0].Verbs = []scope.Verb{"approve"} }, "offers"},
		"agent of nobody":            {func(s *persona.Spec) { s.AgentID = uuid.New() }, "agent_id"},
		"an empty list of issuers":   {func(s *persona.Spec) { s.WhoMayAsk.Issuers = []string{} }, "who_may_ask"},
		"nobody and a list":          {func(s *persona.Spec) { s.WhoMayAsk = persona.WhoMayAsk{Nobody: true, Issuers: []string{"x"}} }, "who_may_ask"},
		"control character in there": {func(s *persona.Spec) { s.WhoMayAsk.Issuers = []string{"https://a\x00"} }, "who_may_ask"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := b.spec("bent")
			tt.bend(&spec)
			_, err := b.store.Create(context.Background(), b.owner, spec)
			refused(t, err, refusal.InvalidArgument, tt.field)
		})
	}
	t.Cleanup(func() {
		list, _, err := b.store.List(context.Background(), b.owner, "", 0)
		require.NoError(t, err)
		require.Empty(t, list, "a refusal stores nothing")
	})
}

func TestASlugBelongsToWhoHadItFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	p, err := b.store.Create(ctx, b.owner, b.spec("reviewer"))
	require.NoError(t, err)
	_, err = b.store.Create(ctx, b.owner, b.spec("reviewer"))
	refused(t, err, refusal.Conflict, "")

	require.NoError(t, b.store.Delete(ctx, b.owner, p.ID))
	_, err = b.store.BySlug(ctx, "reviewer")
	refused(t, err, refusal.NotFound, "")

	carol := uuid.Must(uuid.NewV7())
	hers, err := b.store.CreateAgent(ctx, carol, "bot", "")
	require.NoError(t, err)
	spec := b.spec("reviewer")
	spec.AgentID = hers.ID
	_, err = b.store.Create(ctx, carol, spec)
	refused(t, err, refusal.Conflict, "")

	again, err := b.store.Create(ctx, b.owner, b.spec("reviewer"))
	require.NoError(t, err)
	require.NotEqual(t, p.ID, again.ID)
}

func TestOfferVersionFollowsTheOffersAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	p, err := b.store.Create(ctx, b.owner, b.spec("reviewer"))
	require.NoError(t, err)

	name := "Another"
	same := []scope.Offer{{Queue: "reviews", Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}}}
	p2, err := b.store.Update(ctx, b.owner, p.ID, persona.Patch{Name: &name, Offers: &same})
	require.NoError(t, err)
	require.Equal(t, p.OfferVersion, p2.OfferVersion, "the same offers in another order")
	require.Equal(t, p.Version+1, p2.Version)

	five := int64(5)
	wider := []scope.Offer{{Queue: "reviews", Verbs: same[0].Verbs, Limits: scope.Partial{MaxOpen: &five}}}
	p3, err := b.store.Update(ctx, b.owner, p.ID, persona.Patch{Offers: &wider, IfVersion: &p2.Version})
	require.NoError(t, err)
	require.Equal(t, p.OfferVersion+1, p3.OfferVersion)

	_, err = b.store.Update(ctx, b.owner, p.ID, persona.Patch{Name: &name, IfVersion: &p2.Version})
	refused(t, err, refusal.PreconditionFailed, "")

	fewer := []string{"builds"}
	_, err = b.store.Update(ctx, b.owner, p.ID, persona.Patch{Queues: &fewer})
	refused(t, err, refusal.InvalidArgument, "offers")
	require.Contains(t, b.kinds, "persona.changed")
}

func TestNothingIsDeletedUnderWhatLivesOnIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	p, err := b.store.Create(ctx, b.owner, b.spec("reviewer"))
	require.NoError(t, err)

	refused(t, b.store.DeleteAgent(ctx, b.owner, b.agent.ID), refusal.Conflict, "")
	b.lives = "live endpoints"
	refused(t, b.store.Delete(ctx, b.owner, p.ID), refusal.Conflict, "")
	b.lives = ""
	refused(t, b.store.Delete(ctx, uuid.New(), p.ID), refusal.NotFound, "")
	require.NoError(t, b.store.Delete(ctx, b.owner, p.ID))
	require.NoError(t, b.store.DeleteAgent(ctx, b.owner, b.agent.ID))
	refused(t, b.store.DeleteAgent(ctx, b.owner, b.agent.ID), refusal.NotFound, "")
}

func TestTheCatalogHoldsListedPersonasInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, slug := range []string{"c", "a-b", "ab", "hidden", "gone"} {
		spec := b.spec(slug)
		switch slug {
		case "hidden":
			spec.Visibility = persona.Unlisted
		case "gone":
			spec.Visibility = persona.Off
		case "c":
			spec.Description = "Deploys to PRODUCTION."
		}
		_, err := b.store.Create(ctx, b.owner, spec)
		require.NoError(t, err)
	}
	var slugs []string
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		require.Less(t, pages, 5)
		list, next, err := b.store.Catalog(ctx, "", cursor, 1)
		require.NoError(t, err)
		for _, p := range list {
			slugs = append(slugs, p.Slug)
		}
		cursor = next
	}
	require.Equal(t, []string{"a-b", "ab", "c"}, slugs)

	found, _, err := b.store.Catalog(ctx, "production", "", 0)
	require.NoError(t, err)
	require.Len(t, found, 1)
	_, next, err := b.store.Catalog(ctx, "", "", 1)
	require.NoError(t, err)
	_, _, err = b.store.Catalog(ctx, "production", next, 1)
	refused(t, err, refusal.InvalidArgument, "cursor")
}

func TestSkillsComeFromOffersAlone(t *testing.T) {
	t.Parallel()
	five := int64(5)
	offers := []scope.Offer{
		{Queue: "reviews", Verbs: []scope.Verb{scope.CreateFor}, Limits: scope.Partial{PerHour: &five}},
		{Queue: "reviews", Verbs: []scope.Verb{scope.ListCreated}},
	}
	p := persona.Persona{Name: "secret", Description: "secret", Prompt: "secret", Queues: []string{"secret", "reviews"}, Offers: offers}
	skills := p.Skills()
	require.Equal(t, skills, persona.Persona{Offers: offers}.Skills())
	require.Len(t, skills, 2)
	require.Equal(t, []string{"reviews", "reviews.2"}, []string{skills[0].ID, skills[1].ID})
	require.Contains(t, skills[0].Description, "5 an hour")
	require.NotContains(t, skills[1].Description, "create_for")
	require.Empty(t, persona.Persona{}.Skills())
}

func TestWhoMayAskOnTheWire(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"anyone"`, `"nobody"`, `["https://issuer.example"]`, `[]`} {
		var w persona.WhoMayAsk
		require.NoError(t, json.Unmarshal([]byte(text), &w))
		back, err := json.Marshal(w)
		require.NoError(t, err)
		require.Equal(t, text, string(back))
	}
	for _, text := range []string{`null`, `"friends"`, `{}`, `[1]`, `""`} {
		var w persona.WhoMayAsk
		require.Error(t, json.Unmarshal([]byte(text), &w), text)
	}
}
