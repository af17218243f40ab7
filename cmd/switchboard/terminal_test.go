package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

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
		err := c.ExecuteContext(t.Context())
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, want, args)
	}
}
