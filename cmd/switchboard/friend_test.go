package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
)

// keep stores an approved request under dir.
func keep(t *testing.T, dir string) *requester.Request {
	t.Helper()
	key, err := provenance.NewKey()
	require.NoError(t, err)
	pem, err := key.PEM()
	require.NoError(t, err)
	r := &requester.Request{
		Key: string(pem), ID: "0198f2aa-0000-7000-8000-000000000001", A2A: "https://bob.example/a2a/reviewer", Aud: "https://bob.example", Persona: "reviewer",
		Name: "release-bot", State: requester.Approved, Note: "welcome\x1b[2J", CreatedAt: time.Now(),
		Grant: &requester.Grant{ID: "0198f2aa-0000-7000-8000-000000000002", Endpoint: "https://bob.example/mcp/1", AuthorizationServer: "https://bob.example",
			Scope: scope.Scope{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor}}, ExpiresAt: time.Now()},
	}
	store, err := requester.Open(dir)
	require.NoError(t, err)
	require.NoError(t, store.Save(r))
	return r
}

func friend(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, told bytes.Buffer
	c := newFriendCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&told)
	c.SetIn(strings.NewReader(""))
	err = c.ExecuteContext(t.Context())
	return out.String(), told.String(), err
}

func TestFriendListShowsGrantsAndNeverAKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, told, err := friend(t, "list", "--state", dir)
	require.NoError(t, err)
	require.Empty(t, out)
	require.Contains(t, told, "switchboard friend request", "an empty list names the next step")

	r := keep(t, dir)
	for _, args := range [][]string{{"list", "--state", dir}, {"list", "--json", "--state", dir}} {
		out, _, err = friend(t, args...)
		require.NoError(t, err)
		require.Contains(t, out, r.ID)
		require.NotContains(t, out, "PRIVATE KEY")
	}
	require.Contains(t, out, r.Thumbprint())
}

func TestAGrantIsPrintedWithTheClientsConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := keep(t, dir)
	f := &friendFlags{state: dir}
	var out bytes.Buffer
	require.NoError(t, f.printRequest(&out, r, ""))
	require.Contains(t, out.String(), `"https://bob.example/mcp/1"`)
	require.Contains(t, out.String(), `"--state"`)
	require.NotContains(t, out.String(), "\x1b", "a note cannot drive the terminal")
	require.NotContains(t, out.String(), "PRIVATE KEY")
	out.Reset()
	require.NoError(t, f.printRequest(&out, r, "codex"))
	require.Contains(t, out.String(), `[mcp_servers."switchboard-reviewer"]`)
	_, _, err := friend(t, "status", r.ID, "--state", dir, "--client", "emacs")
	require.ErrorContains(t, err, "claude-code, claude-desktop")
}

func TestForgettingDeletesTheKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := keep(t, dir)
	_, _, err := friend(t, "leave", r.Grant.ID, "--forget", "--state", dir)
	require.NoError(t, err)
	_, _, err = friend(t, "status", "--state", dir)
	require.ErrorContains(t, err, "nothing asked for yet")
}

func TestLimitsAreNamedAsOnTheWire(t *testing.T) {
	t.Parallel()
	p, err := limitsOf(map[string]int64{"max_open": 5, "expires_in_days": 30})
	require.NoError(t, err)
	require.EqualValues(t, 5, *p.MaxOpen)
	require.EqualValues(t, 30, *p.ExpiresInDays)
	require.Nil(t, p.PerHour)
	_, err = limitsOf(map[string]int64{"max_opne": 5})
	require.ErrorContains(t, err, "max_opne")
}
