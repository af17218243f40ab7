package requester_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	peer "switchboard/internal/mcp"
	"switchboard/internal/requester"
)

// TestOurToolsAreThoseOfEndpoints: the bridge serves definitions of its own, and
// a call that they allow is one that an endpoint takes. Only words differ.
func TestOurToolsAreThoseOfEndpoints(t *testing.T) {
	t.Parallel()
	ours, theirs := requester.Tools(), peer.PeerTools()
	require.Len(t, ours, len(theirs))
	for i, their := range theirs {
		our := ours[i]
		require.Equal(t, their.Name, our.Name, "in the same order")
		require.Equal(t, their.Annotations, our.Annotations, our.Name)
		require.Equal(t, form(t, their.RawInputSchema), form(t, our.RawInputSchema), our.Name)
	}
}

// form is a schema without its words.
func form(t *testing.T, schema json.RawMessage) map[string]any {
	t.Helper()
	var s map[string]any
	require.NoError(t, json.Unmarshal(schema, &s))
	if s["properties"] == nil {
		s["properties"] = map[string]any{}
	}
	for _, p := range s["properties"].(map[string]any) {
		delete(p.(map[string]any), "description")
	}
	return s
}
