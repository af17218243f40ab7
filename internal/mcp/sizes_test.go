package mcp_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
)

// sizesFile is the table for readers. SWITCHBOARD_TEST_WRITE=1 writes it anew.
var sizesFile = filepath.Join("..", "..", "specs", "tool-lists.md")

const sizesHead = `# What tools/list costs

The answer to ` + "`tools/list`" + ` in era 2026-07-28, whole, in bytes and in tokens as bytes / 4, for each scope that a friend can be given and for what
workers are usually given. Written by a test (` + "`SWITCHBOARD_TEST_WRITE=1 go test -run ToolLists ./internal/mcp`" + `), which fails when it is not true any more
or when a friend's list costs 1,500 tokens.

| endpoint | tools, beside ` + "`whoami`" + ` | bytes | tokens |
|---|---|--:|--:|
`

func TestToolLists_CostWhatTheTableSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var table strings.Builder
	table.WriteString(sizesHead)
	row := func(kind, tools string, bytes int) {
		if tools == "" {
			tools = "none"
		}
		fmt.Fprintf(&table, "| %s | %s | %d | %d |\n", kind, tools, bytes, bytes/4)
	}
	verbs := scope.Verbs()
	for mask := 1<<len(verbs) - 1; mask >= 0; mask-- {
		var granted []scope.Verb
		var names []string
		for i, v := range verbs {
			if mask>>(len(verbs)-1-i)&1 == 1 {
				granted, names = append(granted, v), append(names, string(v))
			}
		}
		_, _, raw := b.vend("scoped", endpoint.Peer, granted).list()
		require.Less(t, len(raw)/4, 1500, names)
		row("friend", strings.Join(names, ", "), len(raw))
	}
	own := requester.Tools()
	raw, err := json.Marshal(own)
	require.NoError(t, err)
	require.Less(t, len(raw)/4, 1500)
	row("friend, through `connect`", "all, its own definitions", len(raw))
	for _, home := range []struct {
		name  string
		tools []string
	}{
		{"all", nil},
		{"list_todos, get_todo, claim, claim_next, heartbeat, complete, fail, release, ask, create", endpoint.HomeTools()[:10]},
		{"claim_next, heartbeat, complete, fail, release, ask", []string{"claim_next", "heartbeat", "complete", "fail", "release", "ask"}},
		{"claim_next, complete, fail", []string{"claim_next", "complete", "fail"}},
		{"list_todos, get_todo", []string{"list_todos", "get_todo"}},
		{"create", []string{"create"}},
		{"discover, friend_request, friends", []string{"discover", "friend_request", "friends"}},
	} {
		b.endpoints.change("home", func(c *endpoint.Caller) { c.Endpoint.Tools = home.tools })
		_, _, raw := b.home.list()
		row("home", home.name, len(raw))
	}
	if os.Getenv("SWITCHBOARD_TEST_WRITE") != "" {
		require.NoError(t, os.WriteFile(sizesFile, []byte(table.String()), 0o644)) //nolint:gosec // a page of documentation
	}
	kept, err := os.ReadFile(sizesFile)
	require.NoError(t, err)
	require.Equal(t, table.String(), string(kept), "SWITCHBOARD_TEST_WRITE=1 writes it anew")
}
