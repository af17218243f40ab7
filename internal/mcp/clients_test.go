package mcp_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	goclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	gomcp "github.com/mark3labs/mcp-go/mcp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
)

// TestClientsFromOtherHands: whoever speaks MCP can use an endpoint, in the
// newest era and in the ones before it.
func TestClientsFromOtherHands(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(*testing.T, client) foreign{
		"mcp-go, newest":     func(t *testing.T, c client) foreign { return dialMCPGo(t, c) },
		"mcp-go, 2025-11-25": func(t *testing.T, c client) foreign { return dialMCPGo(t, c, goclient.WithLegacyProtocolOnly()) }, //nolint:staticcheck // clients of yesterday are the point
		"Go SDK, newest":     func(t *testing.T, c client) foreign { return dialSDK(t, c, "") },
		"Go SDK, 2025-11-25": func(t *testing.T, c client) foreign { return dialSDK(t, c, "2025-11-25") },
		"Go SDK, 2025-03-26": func(t *testing.T, c client) foreign { return dialSDK(t, c, "2025-03-26") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			c := dial(t, b.peer)
			require.Equal(t, []string{"create_for", "todo_status", "list_created", "answer", "cancel_todo", "whoami"}, c.list())

			made, failed, err := c.call("create_for", map[string]any{"queue": "reviews", "title": "T", "idempotency_key": "k", "payload": map[string]any{"pr": 7}})
			require.NoError(t, err)
			require.False(t, failed)
			require.Equal(t, aTodo.String(), made["todo_id"])

			refused, failed, err := c.call("todo_status", map[string]any{"todo_id": aTodo.String(), "wait_seconds": 51})
			require.NoError(t, err, "an error of the domain is a result that a model can read")
			require.True(t, failed)
			require.Equal(t, "invalid_argument", refused["error"].(map[string]any)["code"])

			_, _, err = c.call("no_such_tool", map[string]any{})
			require.Error(t, err)

			b.todos.wake = make(chan struct{})
			done := make(chan map[string]any, 1)
			go func() {
				v, _, err := c.call("todo_status", map[string]any{"todo_id": aTodo.String(), "wait_seconds": 30})
				if err != nil {
					v = map[string]any{"error": err.Error()}
				}
				done <- v
			}()
			require.Eventually(t, func() bool { w, ok := b.todos.last().(time.Duration); return ok && w > 0 }, 10*time.Second, time.Millisecond)
			close(b.todos.wake)
			require.Equal(t, aTodo.String(), (<-done)["todo_id"])

			b.endpoints.change("peer", func(c *endpoint.Caller) { c.Endpoint.State = endpoint.Revoked })
			_, _, err = c.call("whoami", map[string]any{})
			require.Error(t, err)
		})
	}
}

// foreign is somebody else's client, with a session open.
type foreign interface {
	list() []string
	call(tool string, args map[string]any) (structured map[string]any, isError bool, err error)
}

type mcpGo struct {
	t *testing.T
	*goclient.Client
}

func dialMCPGo(t *testing.T, c client, opts ...goclient.ClientOption) foreign {
	tr, err := transport.NewStreamableHTTP(c.url, transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + c.token}))
	require.NoError(t, err)
	g := goclient.NewClient(tr, opts...)
	require.NoError(t, g.Start(t.Context()))
	t.Cleanup(func() { _ = g.Close() })
	_, err = g.Initialize(t.Context(), gomcp.InitializeRequest{Params: gomcp.InitializeParams{
		ProtocolVersion: gomcp.LATEST_PROTOCOL_VERSION, ClientInfo: gomcp.Implementation{Name: "t", Version: "1"},
	}})
	require.NoError(t, err)
	if len(opts) == 0 {
		require.Equal(t, modern, g.ProtocolVersion())
	} else {
		require.Equal(t, legacy[0], g.ProtocolVersion())
	}
	return mcpGo{t, g}
}

func (g mcpGo) list() (names []string) {
	r, err := g.ListTools(g.t.Context(), gomcp.ListToolsRequest{})
	require.NoError(g.t, err)
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func (g mcpGo) call(tool string, args map[string]any) (map[string]any, bool, error) {
	r, err := g.CallTool(g.t.Context(), gomcp.CallToolRequest{Params: gomcp.CallToolParams{Name: tool, Arguments: args}})
	if err != nil {
		return nil, false, err
	}
	v, _ := r.StructuredContent.(map[string]any)
	return v, r.IsError, nil
}

type goSDK struct {
	t *testing.T
	*sdk.ClientSession
}

// bearer adds the token; the SDK itself would rather run OAuth.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func dialSDK(t *testing.T, c client, version string) foreign {
	s, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: c.url, HTTPClient: &http.Client{Transport: bearer(c.token)},
	}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.Empty(t, s.ID())
	return goSDK{t, s}
}

func (g goSDK) list() (names []string) {
	r, err := g.ListTools(g.t.Context(), nil)
	require.NoError(g.t, err)
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func (g goSDK) call(tool string, args map[string]any) (map[string]any, bool, error) {
	r, err := g.CallTool(context.Background(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return nil, false, err
	}
	v, _ := r.StructuredContent.(map[string]any)
	return v, r.IsError, nil
}
