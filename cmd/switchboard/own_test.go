package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// own runs the program as somebody who looks after their own account.
func (c *commandLine) own(token, stdin string, args ...string) (stdout, stderr string, err error) {
	c.t.Helper()
	program, err := os.Executable()
	require.NoError(c.t, err)
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	cmd.Env = append(os.Environ(), asProgram+"=yes", "XDG_CONFIG_HOME="+c.state)
	if token != "" {
		cmd.Env = append(cmd.Env, "SWITCHBOARD_URL="+c.instance.URL, "SWITCHBOARD_TOKEN="+token)
	}
	var out, told strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &told
	err = cmd.Run()
	return out.String(), told.String(), err
}

func TestOwn_ListsWhoAndWhatAndNarrows(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	shown, _ := c.request(map[string]any{}, "--name", "release-bot", "--reason", "Hand you pull requests.")
	_, _, err := c.friend("call", "create_for", `{"queue":"`+c.home.Queue+`","title":"Review PR 7","idempotency_key":"pr-7"}`)
	require.NoError(t, err)
	var made struct{ Token string }
	c.bob.Post("/v1/api-tokens", map[string]any{"name": "laptop"}, &made)

	_, told, err := c.own("", "", "inbox")
	require.Error(t, err)
	require.Contains(t, told, "switchboard login")
	_, told, err = c.own("", "sba_wrong\n", "login", c.instance.URL, "--token-stdin")
	require.Error(t, err)
	require.NotContains(t, told, "Signed in")
	_, told, err = c.own("", made.Token+"\n", "login", c.instance.URL, "--token-stdin")
	require.NoError(t, err)
	require.Contains(t, told, "Signed in as Bob")

	out, _, err := c.own("", "", "grants")
	require.NoError(t, err)
	require.Contains(t, out, "alice@example.com", "people are known by their e-mail where it is verified")
	out, _, err = c.own("", "", "todos")
	require.NoError(t, err)
	row := ""
	for line := range strings.Lines(out) {
		if strings.Contains(line, "Review PR 7") {
			row = line
		}
	}
	require.Less(t, strings.Index(row, "Review PR 7"), strings.Index(row, "alice@example.com"), "the title, then from whom: %s", out)

	_, told, err = c.own("", "", "grants", "narrow", shown.Grant.ID)
	require.Error(t, err)
	require.Contains(t, told, "--limit")
	out, told, err = c.own("", "", "grants", "narrow", shown.Grant.ID, "--limit", "max_open=3", "--verb", "create_for", "--verb", "todo_status")
	require.NoError(t, err, told)
	require.Contains(t, out, "create_for, todo_status on "+c.home.Queue)
	out, _, err = c.friend("call", "whoami")
	require.NoError(t, err)
	require.Contains(t, out, `"max_open": 3`)
	require.NotContains(t, out, "list_created")
}
