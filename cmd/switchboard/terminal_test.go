package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestPrintJSONCannotSteerATerminal(t *testing.T) {
	t.Parallel()
	said := map[string]string{"title": "a\u009b2Jb\u202ec\u200bd\U000E0041e\x1b[2J é ß"}
	raw, err := json.Marshal(said)
	require.NoError(t, err)
	for _, value := range []any{said, json.RawMessage(raw)} {
		var out bytes.Buffer
		require.NoError(t, printJSON(&out, value))
		for _, r := range "\u009b\u202e\u200b\U000E0041\x1b" {
			require.NotContains(t, out.String(), string(r))
		}
		require.Contains(t, out.String(), "é ß", "what can be read stays readable")
		var back map[string]string
		require.NoError(t, json.Unmarshal(out.Bytes(), &back))
		require.Equal(t, said, back, "and it is the same JSON")
	}
}

// TestACommandLineThatIsWrongEndsWith2, whoever finds out: a flag's own parser, the
// library's judgement of arguments and of flags together, or the command. Nothing
// is asked of anybody first.
func TestACommandLineThatIsWrongEndsWith2(t *testing.T) {
	for _, name := range []string{"SWITCHBOARD_CONFIG", "SWITCHBOARD_DATABASE_URL", "SWITCHBOARD_DIRECT_DATABASE_URL"} {
		t.Setenv(name, "")
	}
	const nowhere = "http://127.0.0.1:1"
	for _, args := range [][]string{
		{"frobnicate"}, {"friend", "lst"}, {"help", "frobnicate"}, {"help", "friend", "lst"}, {"completion", "tcsh"}, {"completion", "bash", "x"},
		{"serve", "--nonsense"}, {"serve", "x"}, {"demo", "--keep=perhaps"}, {"dev-postgres"}, {"man"},
		{"login"}, {"login", "todo.example"}, {"login", "http://todo.example"},
		{"login", nowhere, "--token-stdin", "--no-browser"}, {"login", nowhere, "--token-stdin", "--name", "laptop"},
		{"logout", nowhere, "x"}, {"logout", "todo.example"},
		{"dev", "--log", "loud"}, {"dev", "--listen", "8080"},
		{"admin", "migrate"},
		{"friend", "request", nowhere, "--client", "emacs"}, {"friend", "request", nowhere, "--limit", "max_opne=5"}, {"friend", "request", nowhere, "--limit", "max_open=x"},
		{"friend", "request", nowhere, "--method", "telepathy"}, {"friend", "call", "whoami", "x"}, {"friend", "call"}, {"friend", "status", "a", "b"},
		{"grants", "narrow", "x"}, {"grants", "narrow", "x", "--limit", "max_opne=5"},
	} {
		c := newRootCommand()
		c.SetArgs(args)
		c.SetIn(strings.NewReader(""))
		c.SetOut(&bytes.Buffer{})
		c.SetErr(&bytes.Buffer{})
		err := execute(t.Context(), c)
		require.Error(t, err, args)
		require.Equal(t, exitUsage, exitStatus(err), "%v: %v", args, err)
	}
}

// TestFlagsAreJudgedTogether: every kind of judgement that the library has.
func TestFlagsAreJudgedTogether(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--a=1 --b=1 --need=1": "[a b]", "--c=1 --need=1": "[c d]", "--a=1": `"need" not set`, "--a=1 --need=1": "", "": `"need" not set`, "--need=1": "[a b c]",
	} {
		c := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
		for _, name := range []string{"a", "b", "c", "d", "need"} {
			c.Flags().String(name, "", "")
		}
		require.NoError(t, c.MarkFlagRequired("need"))
		c.MarkFlagsMutuallyExclusive("a", "b")
		c.MarkFlagsOneRequired("a", "b", "c")
		c.MarkFlagsRequiredTogether("c", "d")
		tellUsage(c)
		c.SetArgs(strings.Fields(args))
		err := c.ExecuteContext(t.Context())
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, want, args)
		require.ErrorContains(t, err, "see: x --help", args)
		require.Equal(t, exitUsage, exitStatus(err), args)
	}
}

func TestCommandsThatOnlyHoldOthersRefuseUnknownNames(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"frobnicate": `no command "switchboard frobnicate"; see: switchboard --help`,
		"friend":     "",
		"friend lst": `no command "switchboard friend lst"; did you mean list?`,
		"admin x":    `no command "switchboard admin x"`,
		"serve --x":  "see: switchboard serve --help",
	} {
		c := newRootCommand()
		c.SetArgs(strings.Fields(args))
		c.SetOut(&bytes.Buffer{})
		err := execute(t.Context(), c)
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, want, args)
	}
}
