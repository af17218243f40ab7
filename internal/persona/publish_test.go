package persona_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/persona"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

func TestProblems_AreToldAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Empty(t, b.spec("reviewer").Problems())
	bad := persona.Spec{Slug: "No Slug", Description: "\x00", Visibility: "hidden", Queues: []string{"inbox"}, Offers: []scope.Offer{{}}, WhoMayAsk: persona.WhoMayAsk{Issuers: []string{}}}
	var fields []string
	for _, err := range bad.Problems() {
		require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
		fields = append(fields, refusal.From(err).Field)
	}
	require.Equal(t, []string{"slug", "name", "description", "visibility", "queues", "offers", "who_may_ask"}, fields)
}

func TestCreateWithAgent_MakesBothOrNeither(t *testing.T) {
	t.Parallel()
	b := setup(t)
	agents := func() int {
		list, _, err := b.store.Agents(t.Context(), b.owner, "", 0)
		require.NoError(t, err)
		return len(list)
	}
	other := uuid.Must(uuid.NewV7())
	stranger, err := b.store.CreateWithAgent(t.Context(), other, b.spec("taken"), "theirs")
	require.NoError(t, err)
	require.NotEqual(t, b.agent.ID, stranger.AgentID, "the agent is the new one, whatever the spec says")

	taken, err := b.store.SlugTaken(t.Context(), b.owner, "taken")
	require.NoError(t, err)
	require.True(t, taken)
	_, err = b.store.CreateWithAgent(t.Context(), b.owner, b.spec("taken"), "laptop")
	refused(t, err, refusal.Conflict, "")
	_, err = b.store.CreateWithAgent(t.Context(), b.owner, b.spec("free"), " ")
	refused(t, err, refusal.InvalidArgument, "agent_name")
	require.Equal(t, 1, agents(), "nothing is left of what was refused")

	p, err := b.store.CreateWithAgent(t.Context(), b.owner, b.spec("free"), "laptop")
	require.NoError(t, err)
	require.Equal(t, 2, agents())
	a, err := b.store.Agent(t.Context(), b.owner, p.AgentID)
	require.NoError(t, err)
	require.Equal(t, "laptop", a.Name)
	require.NoError(t, b.store.Delete(t.Context(), b.owner, p.ID))
	taken, err = b.store.SlugTaken(t.Context(), b.owner, "free")
	require.NoError(t, err)
	require.False(t, taken, "one's own slug comes back")
}
