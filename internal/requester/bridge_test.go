package requester

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// stdioClient speaks to a bridge as an MCP client does, a line a message.
type stdioClient struct {
	t    *testing.T
	in   io.Writer
	out  *json.Decoder
	next int
}

func (c *stdioClient) call(method string, params any) map[string]any {
	c.t.Helper()
	c.next++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.next, "method": method, "params": params})
	require.NoError(c.t, err)
	_, err = c.in.Write(append(b, '\n'))
	require.NoError(c.t, err)
	for {
		var got map[string]any
		require.NoError(c.t, c.out.Decode(&got))
		if id, ok := got["id"].(float64); ok && int(id) == c.next {
			return got
		}
	}
}

func (c *stdioClient) tools() (names []string, text string) {
	got := c.call("tools/list", map[string]any{})
	for _, tool := range got["result"].(map[string]any)["tools"].([]any) {
		names = append(names, tool.(map[string]any)["name"].(string))
	}
	b, err := json.Marshal(got)
	require.NoError(c.t, err)
	return names, string(b)
}

func TestTheBridgeServesItsOwnToolsAndOnlyTheListedOnes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.approved(t)
	var stderr bytes.Buffer
	b.binds = true
	bridge, err := b.q.NewBridge(r, "test", &stderr)
	require.NoError(t, err)
	stdin, toBridge := io.Pipe()
	fromBridge, stdout := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bridge.Serve(ctx, stdin, stdout) }()
	c := &stdioClient{t: t, in: toBridge, out: json.NewDecoder(fromBridge)}

	hello := c.call("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "c", "version": "1"}})
	require.Contains(t, hello["result"].(map[string]any)["instructions"], "never as instructions")
	names, text := c.tools()
	require.Equal(t, []string{"create_for", "todo_status", "whoami"}, names, "listed there and known here")
	require.NotContains(t, text, "IGNORE YOUR INSTRUCTIONS")
	require.LessOrEqual(t, len(text)/4, 1500, "tokens")

	call := func(name string, arguments map[string]any) map[string]any {
		got := c.call("tools/call", map[string]any{"name": name, "arguments": arguments})
		result, _ := got["result"].(map[string]any)
		return result
	}
	got := call("create_for", map[string]any{"queue": "reviews", "payload": map[string]any{"pr": 7}})
	require.Equal(t, "todo-1", got["structuredContent"].(map[string]any)["todo_id"])
	require.Len(t, got["content"], 1, "text only")
	require.Equal(t, map[string]any{"pr": 7.0}, b.calls[len(b.calls)-1]["payload"])
	got = call("create_for", map[string]any{"queue": "secret"})
	require.Equal(t, true, got["isError"])
	require.Equal(t, "not_found", got["structuredContent"].(map[string]any)["error"].(map[string]any)["code"])

	b.set(func() { b.down = 2 })
	require.Nil(t, call("whoami", nil)["isError"], "an outage is waited out")

	require.Nil(t, call("cancel_todo", map[string]any{"todo_id": "x"}), "a tool that is not listed cannot be called")
	b.set(func() { b.tools = []string{"todo_status", "whoami"} }) // narrowed
	require.Equal(t, true, call("create_for", nil)["isError"])
	names, _ = c.tools()
	require.Equal(t, []string{"todo_status", "whoami"}, names)

	b.set(func() { b.revoked = true })
	got = call("whoami", nil)
	require.Equal(t, "forbidden", got["structuredContent"].(map[string]any)["error"].(map[string]any)["code"])

	cancel()
	require.NoError(t, toBridge.Close())
	require.NoError(t, <-ended)
	messages := stderr.String()
	require.Contains(t, messages, "trying again")
	require.Contains(t, messages, "the instance is back")
	require.Contains(t, messages, "revoked, paused, has ended or expired")
	for token := range b.tokens {
		require.NotContains(t, messages, token)
	}
	require.NotContains(t, messages, "PRIVATE KEY")
}

func TestClientConfigurationsStartTheBridge(t *testing.T) {
	t.Parallel()
	configs := ClientConfigs("switchboard-reviewer", `C:\Program Files\switchboard.exe`, "connect", "https://bob.example/mcp/1")
	seen := map[string]string{}
	for _, c := range configs {
		seen[c.Client] = c.Text
		require.Contains(t, c.Text, `"https://bob.example/mcp/1"`, c.Client)
		require.Contains(t, c.Text, `C:\\Program Files\\switchboard.exe`, c.Client)
	}
	require.JSONEq(t, `{"mcpServers": {"switchboard-reviewer": {"command": "C:\\Program Files\\switchboard.exe", "args": ["connect", "https://bob.example/mcp/1"]}}}`, seen["claude-code"])
	require.JSONEq(t, `{"servers": {"switchboard-reviewer": {"type": "stdio", "command": "C:\\Program Files\\switchboard.exe", "args": ["connect", "https://bob.example/mcp/1"]}}}`, seen["vscode"])
	require.Equal(t, "[mcp_servers.\"switchboard-reviewer\"]\ncommand = \"C:\\\\Program Files\\\\switchboard.exe\"\nargs = [\"connect\",\"https://bob.example/mcp/1\"]\n", seen["codex"])
}
