package requester

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// ClientConfig is what a human pastes into an MCP client to use an endpoint.
type ClientConfig struct {
	Client string // its name on our command line
	Title  string
	File   string // where it goes
	Text   string
}

// ClientConfigs returns the configuration that starts command with args over
// stdio, for each client that we know, under the name by which the client
// will call the server. The first one is the plain .mcp.json.
func ClientConfigs(name, command string, args ...string) []ClientConfig {
	stdio := process{Command: command, Args: args}
	common := pretty(map[string]any{"mcpServers": map[string]any{name: stdio}})
	typed := process{Type: "stdio", Command: command, Args: args}
	return []ClientConfig{
		{"claude-code", "Claude Code", ".mcp.json", common},
		{"claude-desktop", "Claude Desktop", "claude_desktop_config.json", common},
		{"cursor", "Cursor", ".cursor/mcp.json", common},
		{"vscode", "VS Code", ".vscode/mcp.json", pretty(map[string]any{"servers": map[string]any{name: typed}})},
		// JSON strings and arrays of them are TOML's too.
		{"codex", "Codex", "~/.codex/config.toml", fmt.Sprintf("[mcp_servers.%s]\ncommand = %s\nargs = %s\n", inline(name), inline(command), inline(args))},
		{"gemini", "Gemini CLI", "~/.gemini/settings.json", common},
	}
}

// process is how clients are told to start a server over stdio.
type process struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

func pretty(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(value) // maps of strings always encode
	return b.String()
}

func inline(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value)
	return string(bytes.TrimSpace(b.Bytes()))
}
