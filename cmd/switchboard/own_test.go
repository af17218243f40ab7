package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

	id := row[strings.LastIndex(strings.TrimSpace(row), " ")+1:]
	id = strings.TrimSpace(id)
	out, told, err = c.own("", "", "todos", "show", id)
	require.NoError(t, err, told)
	for _, line := range []string{`state +ready`, `queue +` + c.home.Queue, `title +Review PR 7`, `from +alice@example.com · calls itself release-bot`, `attempts +0 of 5`} {
		require.Regexp(t, `(?m)^`+line+`$`, out)
	}
	out, told, err = c.own("", "", "grants", "show", shown.Grant.ID)
	require.NoError(t, err, told)
	for _, line := range []string{`state +active`, `friend +alice@example.com · .*`, `calls itself +release-bot`, `may +create_for, .* on ` + c.home.Queue, `limits +50 open at once, 500 an hour, .*`, `endpoint +http.*`} {
		require.Regexp(t, `(?m)^`+line+`$`, out)
	}
	for _, show := range [][]string{{"todos", "show", id}, {"grants", "show", shown.Grant.ID}, {"grants"}, {"todos", "--state", "ready"}} {
		out, _, err := c.own("", "", append(show, "--json")...)
		require.NoError(t, err)
		require.True(t, json.Valid([]byte(out)), out)
		require.Contains(t, out, `"state"`)
	}
	out, told, err = c.own("", "", "todos", "--state", "failed", "--json")
	require.NoError(t, err, told)
	require.JSONEq(t, "[]", out)
	out, _, err = c.own("", "", "__complete", "grants", "show", "")
	require.NoError(t, err)
	require.Contains(t, out, shown.Grant.ID+"\trelease-bot · active")

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

// TestOwn_HowItEnds: scripts switch on the exit status, people read the hint on
// stderr, and stdout stays empty.
func TestOwn_HowItEnds(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	var made struct{ Token string }
	c.bob.Post("/v1/api-tokens", map[string]any{"name": "laptop"}, &made)
	const unknown = "0197a3c2-7d7e-7cc3-98c4-dc0c0c07398f"
	for _, e := range []struct {
		token string
		args  []string
		code  int
		hint  string
	}{
		{"", []string{"inbox"}, 3, "switchboard login"},
		{"sba_wrong", []string{"inbox"}, 3, "switchboard login " + c.instance.URL},
		{made.Token, []string{"inbox"}, 0, ""},
		{made.Token, []string{"todos", "show"}, 2, "switchboard todos show --help"},
		{made.Token, []string{"todos", "shwo", "x"}, 2, "did you mean show?"},
		{made.Token, []string{"todos", "--nonsense"}, 2, "--help"},
		{made.Token, []string{"todos", "show", unknown}, 4, "see: switchboard todos"},
		{made.Token, []string{"grants", "pause", unknown}, 4, "see: switchboard grants"},
		{made.Token, []string{"decline", unknown}, 4, "see: switchboard inbox"},
		{made.Token, []string{"todos", "--state", "nonsense"}, 5, "state is ready"},
	} {
		out, told, err := c.own(e.token, "", e.args...)
		var exit *exec.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		require.Equal(t, e.code, code, "%v: %s", e.args, told)
		require.Contains(t, told, e.hint, e.args)
		if code != 0 {
			require.Empty(t, out, e.args)
		}
	}
}

// TestManAndCompletionCoverEveryCommand.
func TestManAndCompletionCoverEveryCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := newRootCommand()
	root.SetArgs([]string{"man", dir})
	require.NoError(t, execute(t.Context(), root))
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || !c.IsAvailableCommand() && c.HasParent() {
			return
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		require.NoError(t, err, c.CommandPath())
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(c.LocalFlags().FlagUsages(), -1) {
			require.Contains(t, strings.ReplaceAll(string(page), `\-`, "-"), flag, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
	page, err := os.ReadFile(filepath.Join(dir, "switchboard.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Exit status")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		root, out := newRootCommand(), &bytes.Buffer{}
		root.SetOut(out)
		root.SetArgs([]string{"completion", shell})
		require.NoError(t, execute(t.Context(), root), shell)
		require.Contains(t, out.String(), "switchboard", shell)
	}
}
