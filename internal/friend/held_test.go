package friend_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
)

func TestAnAskerHoldsItsOwnLiveGrantsAtThisPersonaOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.newPersona(b.bob, "triager")
	key := newKey(t)
	mine := b.granted(from{key: key})
	elsewhere := b.granted(from{key: key, persona: "triager"})
	other := b.granted(from{sub: "carol"})
	ids := func(a friend.Asker) (out []string) {
		gs, err := b.store.Held(t.Context(), a)
		require.NoError(t, err)
		for _, g := range gs {
			out = append(out, g.ID.String())
		}
		return out
	}
	require.Equal(t, []string{mine.ID.String()}, ids(friend.Asker{Persona: slug, Key: key.Thumbprint()}))
	require.Equal(t, []string{elsewhere.ID.String()}, ids(friend.Asker{Persona: "triager", Identity: mine.Identity.Hash}))
	require.Empty(t, ids(friend.Asker{Key: key.Thumbprint()}))
	require.Empty(t, ids(friend.Asker{Persona: slug}))
	require.Empty(t, ids(friend.Asker{Persona: slug, Key: newKey(t).Thumbprint()}))

	_, err := b.store.Pause(t.Context(), b.bob, mine.ID)
	require.NoError(t, err)
	require.Len(t, ids(friend.Asker{Persona: slug, Key: key.Thumbprint()}), 1, "a paused grant is still held")
	_, err = b.store.Revoke(t.Context(), b.bob, mine.ID, false)
	require.NoError(t, err)
	require.Empty(t, ids(friend.Asker{Persona: slug, Key: key.Thumbprint()}))
	require.NotEqual(t, mine.ID, other.ID)
}
