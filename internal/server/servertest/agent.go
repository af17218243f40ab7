package servertest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/provenance"
	"switchboard/internal/scope"
)

// Agent is somebody's agent that asks for friendship with a key of its own.
type Agent struct {
	i    *Instance
	Name string // of the human: alice, bob or carol
	Key  *provenance.Key
}

// Agent returns an agent of the named human with a new key.
func (i *Instance) Agent(t testing.TB, human string) *Agent {
	t.Helper()
	k, err := provenance.NewKey()
	require.NoError(t, err)
	return &Agent{i: i, Name: human, Key: k}
}

// Wish is the request for all that h offers.
func (h Home) Wish() provenance.Request {
	return provenance.Request{
		From: provenance.From{Name: "release-bot"}, Reason: "Hand you pull requests that touch billing for review.",
		Scope: scope.Asked{Queues: []string{h.Queue}, Verbs: scope.Verbs()},
	}
}

// Part is the signed data part of a request to h.
func (a *Agent) Part(t testing.TB, h Home, wish provenance.Request) json.RawMessage {
	t.Helper()
	part, err := provenance.Build(t.Context(), a.Key, wish, provenance.To{Aud: a.i.URL, Persona: h.Slug}, time.Now,
		func(_ context.Context, nonce string) (string, error) { return a.idToken(t, nonce), nil })
	require.NoError(t, err)
	return part
}

// idToken signs the human in at the issuer, as a browser would.
func (a *Agent) idToken(t testing.TB, nonce string) string {
	t.Helper()
	const redirect = "http://127.0.0.1:7777/callback"
	issuer := &Person{t: t, base: a.i.Issuer.Issuer(), client: a.i.Stranger(t, "").client}
	var conf struct {
		Authorize string `json:"authorization_endpoint"`
		Token     string `json:"token_endpoint"`
	}
	issuer.Get("/.well-known/openid-configuration", &conf)
	verifier := rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	r := issuer.Do(http.MethodGet, conf.Authorize+"?"+url.Values{
		"response_type": {"code"}, "client_id": {devidp.FriendClient}, "redirect_uri": {redirect}, "scope": {"openid email"}, "nonce": {nonce},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}, "prompt": {"none"}, "login_hint": {a.Name},
	}.Encode(), nil)
	back, err := url.Parse(r.Header.Get("Location"))
	require.NoError(t, err)
	var got struct {
		IDToken string `json:"id_token"`
	}
	issuer.Do(http.MethodPost, conf.Token, url.Values{
		"grant_type": {"authorization_code"}, "code": {back.Query().Get("code")}, "redirect_uri": {redirect}, "client_id": {devidp.FriendClient}, "code_verifier": {verifier},
	}.Encode(), "Content-Type", "application/x-www-form-urlencoded").Into(t, &got)
	require.NotEmpty(t, got.IDToken)
	return got.IDToken
}

// Token gets an access token for a resource with the agent's key.
func (a *Agent) Token(t testing.TB, resource string) string {
	t.Helper()
	assertion, err := provenance.ClientAssertion(a.Key, a.i.URL, time.Now())
	require.NoError(t, err)
	r := a.i.Stranger(t, "").Do(http.MethodPost, "/oauth/token", url.Values{
		"grant_type": {"client_credentials"}, "resource": {resource}, "client_assertion": {assertion},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	}.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	var got struct {
		AccessToken string `json:"access_token"`
	}
	r.Into(t, &got)
	return got.AccessToken
}

// A2A is a version of the protocol as its requests are spelled.
type A2A struct {
	Version                                                                string
	Send, Get, List, Cancel, Stream, Subscribe, Extended, Push, UserRole   string
	Submitted, Completed, Rejected, Canceled, Working, ExtensionHeaderName string
}

// The two versions.
var (
	V1 = A2A{
		Version: "1.0", Send: "SendMessage", Get: "GetTask", List: "ListTasks", Cancel: "CancelTask", Stream: "SendStreamingMessage",
		Subscribe: "SubscribeToTask", Extended: "GetExtendedAgentCard", Push: "CreateTaskPushNotificationConfig", UserRole: "ROLE_USER",
		Submitted: "TASK_STATE_SUBMITTED", Completed: "TASK_STATE_COMPLETED", Rejected: "TASK_STATE_REJECTED", Canceled: "TASK_STATE_CANCELED",
		Working: "TASK_STATE_WORKING", ExtensionHeaderName: "A2A-Extensions",
	}
	V03 = A2A{
		Version: "0.3", Send: "message/send", Get: "tasks/get", List: "tasks/list", Cancel: "tasks/cancel", Stream: "message/stream",
		Subscribe: "tasks/resubscribe", Extended: "agent/getAuthenticatedExtendedCard", Push: "tasks/pushNotificationConfig/set", UserRole: "user",
		Submitted: "submitted", Completed: "completed", Rejected: "rejected", Canceled: "canceled",
		Working: "working", ExtensionHeaderName: "X-A2A-Extensions",
	}
)

// Extension is the friend request extension's URI.
const Extension = "urn:switchboard:a2a:friend-request:v1"

// Message is a message of one part; part is data, or with a string text.
func (v A2A) Message(part any) map[string]any {
	p := map[string]any{}
	kind := "data"
	if _, text := part.(string); text {
		kind = "text"
	}
	p[kind] = part
	m := map[string]any{"messageId": uuid.NewString(), "role": v.UserRole, "parts": []any{p}}
	if v.Version == V03.Version {
		m["kind"], p["kind"] = "message", kind
	}
	return m
}

// Task is a task in either version.
type Task struct {
	ID        string
	ContextID string
	Kind      string
	Status    struct {
		State     string
		Timestamp time.Time
		Message   struct{ Parts []struct{ Text string } }
	}
	Artifacts []struct {
		ArtifactID string
		Parts      []struct {
			Data json.RawMessage
		}
	}
}

// Answer is a JSON-RPC answer and how it came.
type Answer struct {
	Reply
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    []struct {
			Type   string `json:"@type"`
			Reason string
			Domain string
			Retry  string `json:"retryDelay"`
		}
	}
	Tasks []Task // of a list
	Task  Task   // of anything else
}

// Code is the error's code, 0 for none.
func (a Answer) Code() int {
	if a.Error == nil {
		return 0
	}
	return a.Error.Code
}

// Reason is that of the ErrorInfo, which stands first.
func (a Answer) Reason() string {
	if a.Error == nil || len(a.Error.Data) == 0 {
		return ""
	}
	return a.Error.Data[0].Reason
}

// Call does one method at a persona. header is as for Do.
func (v A2A) Call(t testing.TB, i *Instance, slug, bearer, method string, params any, header ...string) Answer {
	t.Helper()
	return v.Raw(t, i, slug, bearer, map[string]any{"jsonrpc": "2.0", "id": "call", "method": method, "params": params}, header...)
}

// Raw sends a body as it is.
func (v A2A) Raw(t testing.TB, i *Instance, slug, bearer string, body any, header ...string) Answer {
	t.Helper()
	all := []string{"A2A-Version", v.Version, v.ExtensionHeaderName, Extension}
	if v.Version == V03.Version {
		all = all[2:]
	}
	return Read(t, i.Stranger(t, bearer).Do(http.MethodPost, "/a2a/"+slug, body, append(all, header...)...))
}

// Read takes a JSON-RPC answer apart.
func Read(t testing.TB, r Reply) Answer {
	t.Helper()
	a := Answer{Reply: r}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") || r.Status == http.StatusNotFound {
		return a
	}
	r.Into(t, &a)
	if len(a.Result) > 0 {
		var task struct{ Task *Task }
		var list struct{ Tasks []Task }
		_ = json.Unmarshal(a.Result, &list)
		a.Tasks = list.Tasks
		if json.Unmarshal(a.Result, &task) == nil && task.Task != nil {
			a.Task = *task.Task
		} else {
			_ = json.Unmarshal(a.Result, &a.Task)
		}
	}
	return a
}

// Ask sends a request for all that h offers and requires that it is pending.
func (a *Agent) Ask(t testing.TB, v A2A, h Home) Task {
	t.Helper()
	r := v.Call(t, a.i, h.Slug, "", v.Send, map[string]any{"message": v.Message(a.Part(t, h, h.Wish()))})
	require.Equal(t, v.Submitted, r.Task.Status.State, r.Body)
	return r.Task
}
