package server_test

import (
	"bufio"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

var (
	authorizeURL = regexp.MustCompile(`http://\S+/oauth/authorize\?\S+`)
	hiddenInput  = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
)

// TestConformanceOfAuthorization runs the MCP project's checks of an
// authorization server: it reads our metadata and goes through the code flow,
// for which somebody has to sign in and allow it. See TestConformance in package
// mcp for CONFORMANCE.
func TestConformanceOfAuthorization(t *testing.T) {
	suite := strings.Fields(os.Getenv("CONFORMANCE"))
	if len(suite) == 0 {
		t.Skip("CONFORMANCE is not set; run make conformance")
	}
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	l, err := net.Listen("tcp", "127.0.0.1:0") // a free port for the suite's own callback
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	var clientID string
	document := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"client_id":%q,"client_name":"Conformance","redirect_uris":["http://127.0.0.1/callback"],"grant_types":["authorization_code"],`+
			`"response_types":["code"],"token_endpoint_auth_method":"none"}`, clientID)
	}))
	t.Cleanup(document.Close)
	clientID = document.URL + "/client.json"

	cmd := exec.CommandContext(t.Context(), suite[0], append(suite[1:], //nolint:gosec // the command is the developer's own
		"authorization", "--url", i.URL, "--client-id", clientID, "--resource", h.URL, "-p", fmt.Sprint(port))...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	var out strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if at := authorizeURL.FindString(lines.Text()); at != "" {
			allow(t, bob, i.URL, at)
		}
	}
	require.NoError(t, cmd.Wait(), out.String())
	require.Contains(t, out.String(), "Total: 3 passed, 0 failed")
}

// allow does what bob does on the consent page; the answer goes to the suite.
func allow(t *testing.T, bob *servertest.Person, own, at string) {
	t.Helper()
	page := bob.Do(http.MethodGet, at, nil, "Accept", "text/html")
	require.Equal(t, http.StatusOK, page.Status, page.Body)
	form := url.Values{"decision": {"allow"}}
	for _, m := range hiddenInput.FindAllStringSubmatch(page.Body, -1) {
		form.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	r := bob.Do(http.MethodPost, "/oauth/authorize", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Origin", own, "Sec-Fetch-Site", "same-origin")
	require.Less(t, r.Status, 400, r.Body)
}
