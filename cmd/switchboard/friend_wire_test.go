package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	goclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/server/servertest"
)

// asProgram has the test binary be the program, so that clients can start it.
const asProgram = "SWITCHBOARD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	pgtest.Main(m)
}

// commandLine is alice's, at an instance where bob offers work.
type commandLine struct {
	t        *testing.T
	instance *servertest.Instance
	bob      *servertest.Person
	home     servertest.Home
	state    string
}

func newCommandLine(t *testing.T) *commandLine {
	t.Helper()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	return &commandLine{t: t, instance: i, bob: bob, home: bob.Publish("reviewer"), state: t.TempDir()}
}

func (c *commandLine) friend(args ...string) (stdout, stderr string, err error) {
	c.t.Helper()
	return friend(c.t, append(args, "--state", c.state)...)
}

// request asks with --wait and has bob approve what arrives.
func (c *commandLine) request(approval map[string]any, args ...string) (shown requestShown, stderr string) {
	c.t.Helper()
	type end struct {
		out, told string
		err       error
	}
	ended := make(chan end, 1)
	go func() {
		out, told, err := c.friend(append([]string{"request", c.instance.URL, "--headless", "alice", "--wait", "--json"}, args...)...)
		ended <- end{out, told, err}
	}()
	var in struct{ Items []struct{ ID, State string } }
	pending := ""
	require.Eventually(c.t, func() bool {
		c.bob.Get("/v1/friend-requests?direction=in", &in)
		for _, r := range in.Items {
			if r.State == "pending" {
				pending = r.ID
			}
		}
		return pending != ""
	}, 20*time.Second, 20*time.Millisecond)
	c.bob.Post("/v1/friend-requests/"+pending+"/approve", approval, nil)
	e := <-ended
	require.NoError(c.t, e.err)
	require.NotContains(c.t, e.out+e.told, "PRIVATE KEY")
	require.NoError(c.t, json.Unmarshal([]byte(e.out), &shown), e.out)
	require.Equal(c.t, []string{pending, "approved"}, []string{shown.ID, shown.State})
	return shown, e.told
}

// requestShown is what --json prints.
type requestShown struct {
	ID, State, Name, Reason, JKT string
	Key                          *string
	Grant                        struct {
		ID       string `json:"grant_id"`
		Endpoint string `json:"mcp_endpoint"`
	}
}

// bridge is the program as an MCP client starts it, by `switchboard connect`.
type bridge struct {
	t *testing.T
	*goclient.Client
}

func (c *commandLine) connect(what string) bridge {
	c.t.Helper()
	program, err := os.Executable()
	require.NoError(c.t, err)
	client, err := goclient.NewStdioMCPClient(program, []string{asProgram + "=yes"}, "connect", what, "--state", c.state)
	require.NoError(c.t, err)
	if stderr, ok := goclient.GetStderr(client); ok {
		go func() { _, _ = io.Copy(io.Discard, stderr) }() // ends with the process
	}
	c.t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	hello := mcp.InitializeRequest{}
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "somebody's client", Version: "1"}
	_, err = client.Initialize(ctx, hello)
	require.NoError(c.t, err)
	return bridge{c.t, client}
}

func (b bridge) tools() (names []string) {
	b.t.Helper()
	got, err := b.ListTools(b.t.Context(), mcp.ListToolsRequest{})
	require.NoError(b.t, err)
	for _, tool := range got.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func (b bridge) call(tool string, arguments map[string]any, into any) (text string, isError bool) {
	b.t.Helper()
	q := mcp.CallToolRequest{}
	q.Params.Name, q.Params.Arguments = tool, arguments
	got, err := b.CallTool(b.t.Context(), q)
	require.NoError(b.t, err)
	for _, content := range got.Content {
		if c, ok := content.(mcp.TextContent); ok {
			text += c.Text
		}
	}
	if into != nil {
		require.False(b.t, got.IsError, text)
		structured, err := json.Marshal(got.StructuredContent)
		require.NoError(b.t, err)
		require.NoError(b.t, json.Unmarshal(structured, into))
	}
	return text, got.IsError
}

func TestFriend_FromAskingToWorkAndRevocation(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	shown, told := c.request(map[string]any{"scope": map[string]any{"queues": []string{c.home.Queue}, "verbs": []string{"create_for", "todo_status"}}},
		"--name", "release-bot", "--reason", "Hand you pull requests.", "--limit", "max_open=5")
	require.Contains(t, told, "5 open at once")
	require.Contains(t, told, "Waiting for the decision")
	require.Nil(t, shown.Key)
	require.NotEmpty(t, shown.JKT)

	out, told, err := c.friend("status")
	require.NoError(t, err)
	require.Contains(t, out, shown.Grant.Endpoint)
	require.Contains(t, told, "The grant works: 0 of your todos are open")
	out, _, err = c.friend("list")
	require.NoError(t, err)
	require.Contains(t, out, shown.ID)

	b := c.connect(shown.Grant.Endpoint)
	require.ElementsMatch(t, []string{"create_for", "todo_status", "whoami"}, b.tools())
	_, _, err = c.friend("call", "complete", "{}")
	require.ErrorContains(t, err, "create_for, todo_status, whoami", "a tool that is not granted, and those that are")
	_, _, err = c.friend("call", "create_for", "x")
	require.ErrorContains(t, err, "no JSON object")
	_, _, err = c.friend("call", "create_for", `{"queue":"inbox","title":"x","idempotency_key":"x"}`)
	require.ErrorContains(t, err, "not_found")
	out, _, err = c.friend("call", "whoami")
	require.NoError(t, err)
	require.Contains(t, out, `"max_open": 5`)
	var made struct {
		TodoID string `json:"todo_id"`
		State  string
	}
	b.call("create_for", map[string]any{"queue": c.home.Queue, "title": "Review PR 7", "idempotency_key": "pr-7"}, &made)
	require.Equal(t, "ready", made.State)
	var todos struct{ Items []struct{ ID string } }
	c.bob.Get("/v1/todos?queue="+c.home.Queue, &todos)
	require.Len(t, todos.Items, 1)
	require.Equal(t, made.TodoID, todos.Items[0].ID)
	text, isError := b.call("create_for", map[string]any{"queue": "inbox", "title": "x", "idempotency_key": "x"}, nil)
	require.True(t, isError, text)

	c.bob.Post("/v1/grants/"+shown.Grant.ID+"/narrow", map[string]any{"scope": map[string]any{"queues": []string{c.home.Queue}, "verbs": []string{"todo_status"}}}, nil)
	require.ElementsMatch(t, []string{"todo_status", "whoami"}, b.tools())

	c.bob.Post("/v1/grants/"+shown.Grant.ID+"/revoke", map[string]any{}, nil)
	text, isError = b.call("todo_status", map[string]any{"todo_id": made.TodoID}, nil)
	require.True(t, isError)
	require.Contains(t, text, "revoked, paused, has ended or expired")
	require.Contains(t, text, "switchboard friend request", "a new one is the next step")
	_, _, err = c.friend("status")
	require.ErrorContains(t, err, "the grant does not work now")
	_, _, err = c.friend("call", "whoami")
	require.ErrorContains(t, err, "the grant does not work now")
}

func TestFriend_ARenewalGoesOnUnderTheOldConfiguration(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	old, _ := c.request(map[string]any{}, "--name", "release-bot", "--reason", "Hand you pull requests.", "--method", "sign-in")
	type made struct {
		TodoID       string `json:"todo_id"`
		Deduplicated bool
	}
	var first, again made
	work := map[string]any{"queue": c.home.Queue, "title": "Review PR 7", "idempotency_key": "pr-7"}
	c.connect(old.Grant.Endpoint).call("create_for", work, &first)

	renewed, _ := c.request(map[string]any{}, "--supersedes", old.Grant.ID)
	require.Equal(t, []string{"release-bot", "Hand you pull requests."}, []string{renewed.Name, renewed.Reason}, "asked for the same")
	require.NotEqual(t, old.JKT, renewed.JKT)
	require.NotEqual(t, old.Grant.Endpoint, renewed.Grant.Endpoint)
	b := c.connect(old.Grant.Endpoint)
	b.call("create_for", work, &again)
	require.Equal(t, made{first.TodoID, true}, again)
	var listed struct{ Todos []made }
	b.call("list_created", nil, &listed)
	require.Len(t, listed.Todos, 1)
	out, told, err := c.friend("status", old.ID)
	require.NoError(t, err)
	require.Contains(t, out, "ended")
	require.Contains(t, told, renewed.ID)
}

// Where there is no keyring, connect says so and works with the key's file.
func TestConnect_WithoutTheKeyringThatWasAskedFor(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere there is always a keyring, and it is the developer's")
	}
	c := newCommandLine(t)
	shown, _ := c.request(map[string]any{}, "--name", "release-bot", "--reason", "Hand you pull requests.")
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "connect", shown.Grant.Endpoint, "--keyring", "--state", c.state)
	cmd.Env = append(os.Environ(), asProgram+"=yes", "DBUS_SESSION_BUS_ADDRESS=unix:path=/nowhere/bus")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{}}}`+"\n")
	require.NoError(t, err)
	out, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait(), stderr.String())
	require.Contains(t, stderr.String(), "No system keyring can be used here")
	require.NotContains(t, stderr.String(), "PRIVATE KEY")
	require.Contains(t, out, shown.Grant.Endpoint, "the call was answered")
}

func TestFriend_LeavingEndsTheGrantAndTheKey(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	out, told, err := c.friend("request", strings.TrimPrefix(c.instance.URL, "http://"), "--headless", "alice", "--name", "release-bot", "--reason", "Because.")
	require.NoError(t, err)
	require.Contains(t, out, "pending")
	require.Contains(t, told, "switchboard friend status")
	_, _, err = c.friend("request", c.instance.URL, "--headless", "alice", "--name", "release-bot", "--reason", "Because.")
	require.ErrorContains(t, err, "switchboard friend leave", "a refusal names the next step")
	out, _, err = c.friend("leave", c.instance.URL)
	require.NoError(t, err)
	require.Contains(t, out, "withdrawn")

	shown, _ := c.request(map[string]any{}, "--name", "release-bot", "--reason", "Because.")
	_, _, err = c.friend("leave", shown.ID, "--headless", "carol")
	require.Error(t, err, "it is not hers")
	out, _, err = c.friend("leave", shown.ID, "--headless", "alice")
	require.NoError(t, err)
	require.Contains(t, out, "is deleted")
	var grant struct{ State string }
	c.bob.Get("/v1/grants/"+shown.Grant.ID, &grant)
	require.Equal(t, "ended", grant.State)
	_, _, err = c.friend("status", shown.ID)
	require.ErrorContains(t, err, "no friend request or grant")
	require.Equal(t, http.StatusOK, c.instance.Stranger(t, "").Do(http.MethodGet, "/.well-known/api-catalog", nil).Status)
}
