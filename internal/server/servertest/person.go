package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/scope"
)

// Reply is an HTTP answer, read whole.
type Reply struct {
	Status int
	Header http.Header
	Body   string
}

// Into decodes the body.
func (r Reply) Into(t testing.TB, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.Body), v), r.Body)
}

// Person is somebody's browser, or with a bearer somebody's program.
type Person struct {
	t      testing.TB
	base   string
	client *http.Client
	bearer string
}

// SignIn signs alice, bob or carol in.
func (i *Instance) SignIn(t testing.TB, name string) *Person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	p := &Person{t: t, base: i.URL, client: &http.Client{Jar: jar, Timeout: time.Minute}}
	p.Must(http.MethodGet, "/login?prompt=none&return_to=/v1/me&login_hint="+url.QueryEscape(name), nil, nil)
	var me struct{ Name string }
	p.Must(http.MethodGet, "/v1/me", nil, &me)
	require.True(t, strings.EqualFold(name, me.Name), me.Name)
	return p
}

// Stranger is a client without a session; bearer may be "".
func (i *Instance) Stranger(t testing.TB, bearer string) *Person {
	return &Person{t: t, base: i.URL, client: &http.Client{
		Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, bearer: bearer}
}

// Browser is somebody without a session, who does not leave for addresses that
// begin with elsewhere.
func (i *Instance) Browser(t testing.TB, elsewhere string) *Person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &Person{t: t, base: i.URL, client: &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), elsewhere) {
			return http.ErrUseLastResponse
		}
		return nil
	}}}
}

// Stay is the same browser, but it does not follow redirects.
func (p *Person) Stay() *Person {
	c := *p.client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Person{t: p.t, base: p.base, client: &c, bearer: p.bearer}
}

// Watch, when a test's TestMain sets it, sees every exchange of every Person.
var Watch func(t testing.TB, method, path string, r Reply)

// Do sends a request. A body that is bytes or a string goes out as it is, any
// other as JSON. header are names and values in turn; an empty value takes the
// header away.
func (p *Person) Do(method, path string, body any, header ...string) Reply {
	p.t.Helper()
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		content = bytes.NewReader(b)
	case string:
		content = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		require.NoError(p.t, err)
		content = bytes.NewReader(text)
	}
	target := path
	if strings.HasPrefix(path, "/") {
		target = p.base + path
	}
	r, err := http.NewRequestWithContext(context.Background(), method, target, content)
	require.NoError(p.t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if p.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+p.bearer)
	}
	for n := 0; n+1 < len(header); n += 2 {
		if header[n+1] == "" {
			r.Header.Del(header[n])
			continue
		}
		r.Header.Set(header[n], header[n+1])
	}
	resp, err := p.client.Do(r)
	require.NoError(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	reply := Reply{resp.StatusCode, resp.Header, string(text)}
	if Watch != nil {
		Watch(p.t, method, path, reply)
	}
	return reply
}

// Must is Do that requires success and decodes the answer when into is not nil.
func (p *Person) Must(method, path string, body, into any) {
	p.t.Helper()
	r := p.Do(method, path, body)
	require.Less(p.t, r.Status, 300, "%s %s: %s", method, path, r.Body)
	if into != nil {
		r.Into(p.t, into)
	}
}

// Get and Post are Must for the usual methods.
func (p *Person) Get(path string, into any) { p.t.Helper(); p.Must(http.MethodGet, path, nil, into) }

// Post sends body and decodes the answer.
func (p *Person) Post(path string, body, into any) {
	p.t.Helper()
	p.Must(http.MethodPost, path, body, into)
}

// Home is what a person publishes to be asked for.
type Home struct {
	AgentID, PersonaID, Slug, Queue string
	URL, Credential                 string // of the home endpoint
}

// Publish makes an agent, a queue, a listed persona that offers all verbs on it,
// and a home endpoint.
func (p *Person) Publish(slug string) Home {
	p.t.Helper()
	h := Home{Slug: slug, Queue: slug + "-work"}
	var made struct{ ID, URL, Credential string }
	p.Post("/v1/agents", map[string]any{"name": slug}, &made)
	h.AgentID = made.ID
	p.Post("/v1/queues", map[string]any{"name": h.Queue}, nil)
	p.Post("/v1/personas", map[string]any{
		"agent_id": h.AgentID, "slug": slug, "name": slug, "prompt": "Work.", "queues": []string{h.Queue}, "visibility": "listed",
		"offers": []any{map[string]any{"queue": h.Queue, "verbs": scope.Verbs(), "limits": map[string]any{"max_open": 50, "per_hour": 500}}},
	}, &made)
	h.PersonaID = made.ID
	p.Post("/v1/endpoints", map[string]any{"kind": "home", "agent_id": h.AgentID, "persona_id": h.PersonaID, "queues": []string{h.Queue}}, &made)
	h.URL, h.Credential = made.URL, made.Credential
	return h
}
