package requester

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A stranger's card names the issuer, the issuer's configuration names the page:
// what is opened on the human's machine must be a web page.
func TestAnIssuerCannotHaveAnythingButAWebPageOpened(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		"file:///C:/Windows/System32/calc.exe", `\\\\evil.example\share\x.exe`, "ms-msdt:/id", "smb://evil.example/x", "http://evil.example/authorize", "javascript:alert(1)", "-a",
	} {
		var issuer *httptest.Server
		issuer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			reply(w, http.StatusOK, map[string]any{
				"issuer": issuer.URL, "authorization_endpoint": page, "token_endpoint": issuer.URL + "/token", "jwks_uri": issuer.URL + "/jwks",
			})
		}))
		opened := ""
		_, err := New(0).idToken(t.Context(), Issuer{Issuer: issuer.URL, ClientID: "x"}, "nonce", SignIn{Show: func(url string) error {
			opened = url
			return errors.New("opened")
		}})
		issuer.Close()
		require.ErrorIs(t, err, ErrSignIn, page)
		require.Empty(t, opened, page)
	}
}

// Where a stranger's configuration points, the libraries follow; not to places
// that this machine alone can reach without TLS.
func TestNoPlainRequestLeavesForAnotherMachine(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://192.0.2.1/latest/meta-data", nil)
	require.NoError(t, err)
	_, err = New(0).http.Do(r)
	require.ErrorContains(t, err, "is not https")
}

const escape = "\x1b]0;owned\x07\u202e"

func TestWhatTheOtherSideSaysCannotStandInATerminalAsItIs(t *testing.T) {
	t.Parallel()
	err := refusedWith(answer{status: http.StatusOK}, &rpcError{Code: -32602, Message: "no" + escape, Data: []struct {
		Reason string `json:"reason"`
		Domain string `json:"domain"`
	}{{escape, "switchboard"}}})
	require.NotContains(t, err.Error(), "\x1b")
	require.NotContains(t, err.Error(), "\u202e")

	structured, marshalErr := json.Marshal(map[string]any{"error": map[string]any{"code": "x" + escape, "message": escape}})
	require.NoError(t, marshalErr)
	result := Result{IsError: true, Structured: structured, Text: escape}
	require.NotContains(t, result.Refusal().Error(), "\x1b")

	const aud = "https://bob.example"
	for name, bend := range map[string]func(*task, map[string]any){
		"task id":   func(t *task, _ map[string]any) { t.ID = escape },
		"grant id":  func(_ *task, g map[string]any) { g["grant_id"] = escape },
		"endpoint":  func(_ *task, g map[string]any) { g["mcp_endpoint"] = aud + "/mcp/" + escape },
		"new lines": func(_ *task, g map[string]any) { g["mcp_endpoint"] = aud + "/mcp/a b" },
		"queue":     func(_ *task, g map[string]any) { g["granted_scope"] = map[string]any{"queues": []string{escape}} },
		"verb":      func(_ *task, g map[string]any) { g["granted_scope"] = map[string]any{"verbs": []string{escape}} },
	} {
		granted := map[string]any{"grant_id": "g", "mcp_endpoint": aud + "/mcp/one", "authorization_server": aud, "granted_scope": map[string]any{"queues": []string{"reviews"}}}
		told := task{ID: "1"}
		told.Status.State = "TASK_STATE_COMPLETED"
		r := &Request{Aud: aud}
		require.NoError(t, r.read(withGrant(t, told, granted)))
		bend(&told, granted)
		require.Error(t, (&Request{Aud: aud}).read(withGrant(t, told, granted)), name)
	}
}

func withGrant(t *testing.T, told task, granted map[string]any) task {
	t.Helper()
	data, err := json.Marshal(granted)
	require.NoError(t, err)
	told.Artifacts = append(told.Artifacts[:0:0], struct {
		ArtifactID string `json:"artifactId"`
		Parts      []part `json:"parts"`
	}{"grant", []part{{Data: data}}})
	return told
}
