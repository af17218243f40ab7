package server_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/persona"
	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
)

// A worker of alice's, at her own instance, finds what bob lists at his, and
// knows that bob's instance signed the card.
func TestDirectory_FindsWhatConfiguredInstancesList(t *testing.T) {
	t.Parallel()
	bobs := servertest.Start(t)
	bob := bobs.SignIn(t, "bob")
	h := bob.Publish("far-reviewer")
	bob.Publish("far-hidden")
	var personas struct{ Items []struct{ ID, Slug string } }
	bob.Get("/v1/personas", &personas)
	for _, p := range personas.Items {
		if p.Slug == "far-hidden" {
			bob.Must(http.MethodPatch, "/v1/personas/"+p.ID, map[string]any{"visibility": "unlisted"}, nil)
		}
	}
	alices := servertest.Start(t, func(c *server.Config) { c.Directories = []string{bobs.URL} })
	alice := alices.SignIn(t, "alice")
	alice.Publish("near")

	type found struct {
		Items      []persona.Entry `json:"items"`
		NextCursor string          `json:"next_cursor"`
	}
	var f found
	require.Eventually(t, func() bool { // bob's instance is read in the background
		f = found{}
		alice.Get("/v1/directory", &f)
		return len(f.Items) == 2
	}, 20*time.Second, 50*time.Millisecond)
	require.Equal(t, "near", f.Items[0].Slug)
	far := f.Items[1]
	require.Equal(t, h.Slug, far.Slug)
	require.Equal(t, bobs.URL, far.Source)
	require.Equal(t, bobs.URL+"/a2a/far-reviewer/.well-known/agent-card.json", far.Card)
	require.True(t, far.Verified, "the card is signed by a key of bob's instance")
	require.NotEmpty(t, far.Skills)

	// Page by page the same, each once.
	var slugs []string
	for cursor := ""; ; {
		var one found
		alice.Get("/v1/directory?limit=1&cursor="+cursor, &one)
		require.Len(t, one.Items, 1)
		slugs = append(slugs, one.Items[0].Slug)
		if cursor = one.NextCursor; cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"near", "far-reviewer"}, slugs)
	alice.Get("/v1/directory?q=FAR-re", &f)
	require.Len(t, f.Items, 1)
	alice.Get("/v1/directory?q=hidden", &f)
	require.Empty(t, f.Items)
	b, err := json.Marshal(f)
	require.NoError(t, err)
	require.NotContains(t, string(b), "far-hidden")
}
