package mcp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConformance runs the MCP project's own suite against a peer endpoint on
// the real stores. `make conformance` brings Node and the suite and names them
// in CONFORMANCE: the command without its arguments, words parted by spaces.
//
// The suite knows no tokens, so it talks through a proxy that adds one. Much of
// it wants a server with fixtures of the suite's own; those checks stand in
// testdata/conformance with the reason. Any other check that fails fails the
// run, and so does one that stands there and passes.
func TestConformance(t *testing.T) {
	suite := strings.Fields(os.Getenv("CONFORMANCE"))
	if len(suite) == 0 {
		t.Skip("CONFORMANCE is not set; run make conformance")
	}
	i := newInstance(t)
	for _, revision := range []string{"2025-11-25", modern} {
		t.Run(revision, func(t *testing.T) {
			_, alice := i.friend(wide())
			results := filepath.Join(t.TempDir(), "results")
			not := notOurs(t, revision)
			baseline := filepath.Join(t.TempDir(), "baseline.yaml")
			require.NoError(t, os.WriteFile(baseline, []byte(not.baseline()), 0o600))
			cmd := exec.CommandContext(t.Context(), suite[0], append(suite[1:], //nolint:gosec // the command is the developer's own
				"server", "--url", withToken(t, alice), "--requirements", revision, "--expected-failures", baseline, "-o", results)...)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)

			passed, failed := verdicts(t, results)
			require.Greater(t, passed, 20, "%s", out)
			for check := range failed {
				require.True(t, not[check] || not[[2]string{check[0], "*"}], "%s: %s\n%s", check[0], check[1], out)
			}
			for check := range not {
				require.True(t, failed[check] || check[1] == "*", "%s: %s passes; take it off the list", check[0], check[1])
			}
			t.Logf("%s: %d checks pass, %d do not apply", revision, passed, len(failed))
		})
	}
}

// checks are pairs of a scenario and one of its checks.
type checks map[[2]string]bool

func notOurs(t *testing.T, revision string) checks {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "conformance", revision+".txt"))
	require.NoError(t, err)
	not := checks{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(strings.TrimSpace(line), " | ")
		require.Len(t, parts, 3, line)
		not[[2]string{parts[0], parts[1]}] = true
	}
	return not
}

// baseline are the scored scenarios of the list, as the suite wants them.
func (c checks) baseline() string {
	lines := []string{}
	for check := range c {
		if line := "  - " + check[0]; check[1] != "*" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return "server:\n" + strings.Join(lines, "\n") + "\n"
}

// verdicts reads what the suite left: server-<scenario>-<time>/checks.json.
func verdicts(t *testing.T, results string) (passed int, failed checks) {
	t.Helper()
	failed = checks{}
	dirs, err := os.ReadDir(results)
	require.NoError(t, err)
	stamp := regexp.MustCompile(`^server-(.*)-\d{4}-\d\d-\d\dT`)
	for _, d := range dirs {
		scenario := stamp.FindStringSubmatch(d.Name())
		require.NotNil(t, scenario, d.Name())
		text, err := os.ReadFile(filepath.Join(results, d.Name(), "checks.json"))
		require.NoError(t, err)
		var cs []struct{ ID, Status string }
		require.NoError(t, json.Unmarshal(text, &cs))
		for _, c := range cs {
			switch c.Status {
			case "SUCCESS":
				passed++
			case "FAILURE", "WARNING":
				failed[[2]string{scenario[1], c.ID}] = true
			}
		}
	}
	return passed, failed
}

// withToken is the URL of a proxy on loopback that adds the client's token. A
// Host or Origin that is the proxy's own becomes the instance's, a foreign one
// stays foreign.
func withToken(t *testing.T, c client) string {
	t.Helper()
	to, err := url.Parse(c.url)
	require.NoError(t, err)
	proxy := httptest.NewUnstartedServer(nil)
	own := proxy.Listener.Addr().String()
	proxy.Config.Handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = to.Scheme, to.Host, to.Path
		r.Out.Host = r.In.Host
		if r.In.Host == own {
			r.Out.Host = c.host
		}
		if r.In.Header.Get("Origin") == "http://"+own {
			r.Out.Header.Set("Origin", public)
		}
		r.Out.Header.Set("Authorization", "Bearer "+c.token)
	}, FlushInterval: -1, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	proxy.Start()
	t.Cleanup(proxy.Close)
	return proxy.URL + "/mcp"
}
