package mcp_test

import (
	"context"
	"encoding/json"
	"testing"

	gomcp "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"
)

// TestMCPGo_StillNeedsTheWorkaround: resources are read past mcp-go because it
// answers each error of a handler as a fault of the server, ErrResourceNotFound
// too. When this fails, resources.go can hand resources/read over to it.
func TestMCPGo_StillNeedsTheWorkaround(t *testing.T) {
	t.Parallel()
	s := server.NewMCPServer("t", "1", server.WithResourceCapabilities(true, false))
	s.AddResourceTemplate(gomcp.NewResourceTemplate("todo:{id}", "todo"), func(context.Context, gomcp.ReadResourceRequest) ([]gomcp.ResourceContents, error) {
		return nil, server.ErrResourceNotFound
	})
	answer, err := json.Marshal(s.HandleMessage(t.Context(), json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"todo:1",
		"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)))
	require.NoError(t, err)
	require.Contains(t, string(answer), "-32603", "and not -32602, as an unknown resource is answered in this era")
}
