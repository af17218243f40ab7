package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	goclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	gomcp "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

// TestGoClientsFromOtherHands: mcp-go's client and the Go SDK's use a grant,
// signing alice in by themselves (code flow) and through `switchboard connect`.
func TestGoClientsFromOtherHands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	shown, _ := c.request(map[string]any{}, "--name", "release-bot", "--reason", "Hand you pull requests.")
	for name, dial := range map[string]func(*testing.T) foreign{
		"mcp-go, signing in":       func(t *testing.T) foreign { return c.signInMCPGo(t, shown.Grant.Endpoint) },
		"Go SDK, signing in":       func(t *testing.T) foreign { return c.signInSDK(t, shown.Grant.Endpoint) },
		"mcp-go, through connect":  func(t *testing.T) foreign { return mcpGo{c.connect(shown.Grant.Endpoint).Client} },
		"Go SDK, through connect":  func(t *testing.T) foreign { return c.connectSDK(t, shown.Grant.Endpoint, "") },
		"Go SDK, connect, before":  func(t *testing.T) foreign { return c.connectSDK(t, shown.Grant.Endpoint, "2025-11-25") },
		"Go SDK, connect, earlier": func(t *testing.T) foreign { return c.connectSDK(t, shown.Grant.Endpoint, "2025-03-26") },
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			names, err := client.list(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"create_for", "todo_status", "list_created", "answer", "cancel_todo", "whoami"}, names)

			made, failed, err := client.call(ctx, "create_for", map[string]any{"queue": c.home.Queue, "title": "Review 7", "idempotency_key": name, "payload": map[string]any{"pr": 7}})
			require.NoError(t, err)
			require.False(t, failed, made)
			refused, failed, err := client.call(ctx, "create_for", map[string]any{"queue": "inbox", "title": "x", "idempotency_key": name})
			require.NoError(t, err, "an error of the domain is a result that a model can read")
			require.True(t, failed)
			require.Equal(t, "not_found", refused["error"].(map[string]any)["code"])
			_, _, err = client.call(ctx, "claim_next", map[string]any{})
			require.Error(t, err, "a tool of others is none")

			claimed := c.work(t, "claim", map[string]any{"todo_id": made["todo_id"]})
			seen, _, err := client.call(ctx, "todo_status", map[string]any{"todo_id": made["todo_id"]})
			require.NoError(t, err)
			type end struct {
				status map[string]any
				err    error
			}
			waited := make(chan end, 1)
			go func() {
				status, _, err := client.call(ctx, "todo_status", map[string]any{"todo_id": made["todo_id"], "wait_seconds": 30, "since_version": seen["version"]})
				waited <- end{status, err}
			}()
			c.work(t, "complete", map[string]any{"todo_id": made["todo_id"], "lease_token": claimed["lease_token"], "result": map[string]any{"verdict": "approved"}})
			e := <-waited
			require.NoError(t, e.err)
			require.Equal(t, []any{"done", map[string]any{"verdict": "approved"}}, []any{e.status["state"], e.status["result"]})
		})
	}
}

// work calls a tool of bob's own endpoint.
func (c *commandLine) work(t *testing.T, tool string, arguments map[string]any) (structured map[string]any) {
	t.Helper()
	var a struct {
		Result struct {
			StructuredContent map[string]any `json:"structuredContent"`
			IsError           bool           `json:"isError"`
		} `json:"result"`
	}
	r := c.instance.Stranger(t, c.home.Credential).Do(http.MethodPost, c.home.URL, map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments},
	}, "Accept", "application/json, text/event-stream")
	r.Into(t, &a)
	require.False(t, a.Result.IsError, r.Body)
	return a.Result.StructuredContent
}

// foreign is somebody else's client, connected.
type foreign interface {
	list(ctx context.Context) ([]string, error)
	call(ctx context.Context, tool string, arguments map[string]any) (structured map[string]any, isError bool, err error)
}

type mcpGo struct{ *goclient.Client }

func (g mcpGo) list(ctx context.Context) (names []string, err error) {
	r, err := g.ListTools(ctx, gomcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (g mcpGo) call(ctx context.Context, tool string, arguments map[string]any) (map[string]any, bool, error) {
	r, err := g.CallTool(ctx, gomcp.CallToolRequest{Params: gomcp.CallToolParams{Name: tool, Arguments: arguments}})
	if err != nil {
		return nil, false, err
	}
	v, _ := r.StructuredContent.(map[string]any)
	return v, r.IsError, nil
}

type goSDK struct{ *sdk.ClientSession }

func (g goSDK) list(ctx context.Context) (names []string, err error) {
	r, err := g.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (g goSDK) call(ctx context.Context, tool string, arguments map[string]any) (map[string]any, bool, error) {
	r, err := g.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return nil, false, err
	}
	v, _ := r.StructuredContent.(map[string]any)
	return v, r.IsError, nil
}

func (c *commandLine) connectSDK(t *testing.T, what, version string) foreign {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program, "connect", what, "--state", c.state) // ends with its stdin
	cmd.Env = append(os.Environ(), asProgram+"=yes")
	s, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return goSDK{s}
}

// native is a program of alice's that signs her in: its document, and the
// loopback address to which her browser brings the answer.
type native struct {
	id, redirect string
	answers      chan url.Values
	alice        *servertest.Person
	instance     string
}

func (c *commandLine) native(t *testing.T) *native {
	t.Helper()
	n := &native{answers: make(chan url.Values, 1), alice: c.instance.SignIn(t, "alice"), instance: c.instance.URL}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/callback" {
			n.answers <- r.URL.Query()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"client_id": n.id, "client_name": "Somebody's client", "redirect_uris": []string{"http://127.0.0.1/callback"},
			"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"}, "token_endpoint_auth_method": "none",
		})
	}))
	t.Cleanup(s.Close)
	n.id, n.redirect = s.URL+"/client.json", s.URL+"/callback"
	return n
}

var hiddenInput = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// allow opens the authorization URL in alice's browser and allows what it asks;
// where she has before, no page is shown.
func (n *native) allow(t *testing.T, at string) (url.Values, error) {
	t.Helper()
	page := n.alice.Do(http.MethodGet, at, nil, "Accept", "text/html")
	form := url.Values{"decision": {"allow"}}
	for _, m := range hiddenInput.FindAllStringSubmatch(page.Body, -1) {
		form.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	if form.Has("csrf") {
		n.alice.Do(http.MethodPost, "/oauth/authorize", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Origin", n.instance, "Sec-Fetch-Site", "same-origin")
	}
	select {
	case answer := <-n.answers:
		return answer, nil
	case <-time.After(10 * time.Second):
		return nil, fmt.Errorf("no answer: HTTP %d %s", page.Status, page.Body)
	}
}

func (c *commandLine) signInMCPGo(t *testing.T, at string) foreign {
	t.Helper()
	n := c.native(t)
	tr, err := transport.NewStreamableHTTP(at, transport.WithHTTPOAuth(transport.OAuthConfig{
		ClientID: n.id, RedirectURI: n.redirect, PKCEEnabled: true, TokenStore: transport.NewMemoryTokenStore(),
	}))
	require.NoError(t, err)
	client := goclient.NewClient(tr)
	require.NoError(t, client.Start(t.Context()))
	t.Cleanup(func() { _ = client.Close() })
	hello := gomcp.InitializeRequest{Params: gomcp.InitializeParams{ProtocolVersion: gomcp.LATEST_PROTOCOL_VERSION, ClientInfo: gomcp.Implementation{Name: "t", Version: "1"}}}
	_, err = client.Initialize(t.Context(), hello)
	require.True(t, goclient.IsOAuthAuthorizationRequiredError(err), "%v", err)
	handler := goclient.GetOAuthHandler(err)
	verifier, err := goclient.GenerateCodeVerifier()
	require.NoError(t, err)
	state, err := goclient.GenerateState()
	require.NoError(t, err)
	page, err := handler.GetAuthorizationURL(t.Context(), state, goclient.GenerateCodeChallenge(verifier))
	require.NoError(t, err)
	answer, err := n.allow(t, page)
	require.NoError(t, err)
	require.NoError(t, handler.ProcessAuthorizationResponse(t.Context(), answer.Get("code"), answer.Get("state"), verifier))
	_, err = client.Initialize(t.Context(), hello)
	require.NoError(t, err)
	return mcpGo{client}
}

func (c *commandLine) signInSDK(t *testing.T, at string) foreign {
	t.Helper()
	n := c.native(t)
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		// It takes an id for the URL of a document only when that is https.
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: n.id}, RedirectURL: n.redirect, RequestRefreshToken: true,
		AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			answer, err := n.allow(t, args.URL)
			return &auth.AuthorizationResult{Code: answer.Get("code"), State: answer.Get("state"), Iss: answer.Get("iss")}, err
		},
	})
	require.NoError(t, err)
	s, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: at, OAuthHandler: handler}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return goSDK{s}
}
