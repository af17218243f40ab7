package oauth_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheCodeFlowEndToEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	q, verifier := b.request(b.mcp())

	r := b.authorize(t, "", q)
	require.Equal(t, http.StatusFound, r.status)
	login, err := url.Parse(r.header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, "/login", login.Path)
	require.Equal(t, "/oauth/authorize?"+q.Encode(), login.Query().Get("return_to"))
	require.Zero(t, b.client.fetches.Load(), "nothing is fetched before somebody signed in")

	page := b.authorize(t, "alice", q)
	form := fields(t, page)
	require.Equal(t, int64(1), b.client.fetches.Load())
	require.Contains(t, page.body, "Checker")
	require.Contains(t, page.body, b.client.id)
	require.Contains(t, page.body, "up to 60 todos an hour to reviews")
	require.NotContains(t, page.body, "<script")
	csp := page.header.Get("Content-Security-Policy")
	require.Contains(t, csp, "default-src 'none'")
	require.Contains(t, csp, "form-action 'self' http://127.0.0.1:53999")
	require.Contains(t, csp, "frame-ancestors 'none'")
	require.Equal(t, "same-origin", page.header.Get("Referrer-Policy"))

	form.Set("decision", "allow")
	clicked := b.click(t, "alice", form, nil)
	require.Equal(t, http.StatusSeeOther, clicked.status)
	back := clicked.back(t)
	require.Equal(t, "s t&ate", back.Get("state"))
	require.Equal(t, b.url, back.Get("iss"))

	grant := url.Values{
		"grant_type": {"authorization_code"}, "code": {back.Get("code")}, "client_id": {b.client.id}, "redirect_uri": {redirect},
		"code_verifier": {verifier}, "resource": {b.mcp()},
	}
	r = b.token(t, grant, nil)
	require.Equal(t, http.StatusOK, r.status, r.body)
	m := r.json(t)
	c, err := b.endpoints.Authenticate(t.Context(), b.peer, m["access_token"].(string))
	require.NoError(t, err)
	require.Equal(t, granted, c.Effective())

	r = b.token(t, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {m["refresh_token"].(string)}, "client_id": {b.client.id}}, nil)
	require.Equal(t, http.StatusOK, r.status, r.body)
	r = b.token(t, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {m["refresh_token"].(string)}, "client_id": {b.client.id}}, nil)
	require.Equal(t, "invalid_grant", r.json(t)["error"])

	// The reuse took the consent too; once given again, it is remembered.
	page = b.authorize(t, "alice", q)
	form = fields(t, page)
	form.Set("decision", "allow")
	require.NotEmpty(t, b.click(t, "alice", form, nil).back(t).Get("code"))
	q.Set("redirect_uri", redirect)
	remembered := b.authorize(t, "alice", q)
	require.Equal(t, http.StatusFound, remembered.status)
	require.NotEmpty(t, remembered.back(t).Get("code"))
	q.Set("prompt", "consent")
	fields(t, b.authorize(t, "alice", q))
	require.Equal(t, int64(1), b.client.fetches.Load(), "the document is kept")
}

func TestWhomACodeIsRefused(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	for name, tt := range map[string]struct{ who, resource string }{
		"carol at alice's endpoint": {"carol", b.mcp()},
		"alice at bob's own":        {"alice", b.url + "/mcp/" + b.home.String()},
		"an unknown endpoint":       {"alice", b.url + "/mcp/" + newID().String()},
		"carol's no requests":       {"carol", b.url + "/a2a/reviewer"},
		"no resource":               {"alice", ""},
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := b.request(tt.resource)
			back := b.authorize(t, tt.who, q).back(t)
			require.Equal(t, url.Values{
				"error": {"invalid_target"}, "error_description": {"the resource is not open to this client"}, "state": {"s t&ate"}, "iss": {b.url},
			}, back)
		})
	}
	for who, resource := range map[string]string{"bob": b.url + "/mcp/" + b.home.String(), "alice": b.url + "/a2a/reviewer"} {
		q, _ := b.request(resource)
		fields(t, b.authorize(t, who, q))
	}
}

func TestErrorsThatGoBackToTheClient(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	for name, tt := range map[string]struct {
		bend func(url.Values)
		want string
	}{
		"another response type": {func(q url.Values) { q.Set("response_type", "token") }, "unsupported_response_type"},
		"no PKCE":               {func(q url.Values) { q.Del("code_challenge") }, "invalid_request"},
		"plain PKCE":            {func(q url.Values) { q.Set("code_challenge_method", "plain") }, "invalid_request"},
		"no method":             {func(q url.Values) { q.Del("code_challenge_method") }, "invalid_request"},
		"a short challenge":     {func(q url.Values) { q.Set("code_challenge", "x") }, "invalid_request"},
		"a request object":      {func(q url.Values) { q.Set("request", "x") }, "request_not_supported"},
		"its address":           {func(q url.Values) { q.Set("request_uri", "https://x.example/") }, "request_uri_not_supported"},
		"a fragment":            {func(q url.Values) { q.Set("response_mode", "fragment") }, "invalid_request"},
		"a wider scope":         {func(q url.Values) { q.Set("scope", "cancel_todo:reviews") }, "invalid_scope"},
		"a broken dpop_jkt":     {func(q url.Values) { q.Set("dpop_jkt", "x") }, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := b.request(b.mcp())
			tt.bend(q)
			back := b.authorize(t, "alice", q).back(t)
			require.Equal(t, tt.want, back.Get("error"))
			require.Equal(t, b.url, back.Get("iss"))
			require.Equal(t, "s t&ate", back.Get("state"))
		})
	}
	q, _ := b.request(b.mcp())
	form := fields(t, b.authorize(t, "alice", q))
	form.Set("decision", "deny")
	require.Equal(t, "access_denied", b.click(t, "alice", form, nil).back(t).Get("error"))
	form.Del("decision")
	require.Equal(t, "access_denied", b.click(t, "alice", form, nil).back(t).Get("error"))
}

// Until client and redirect are known to belong together, nobody is sent
// anywhere.
func TestErrorsThatStayHere(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	for name, bend := range map[string]func(url.Values){
		"no client":               func(q url.Values) { q.Del("client_id") },
		"no redirect":             func(q url.Values) { q.Del("redirect_uri") },
		"a client that is no URL": func(q url.Values) { q.Set("client_id", "checker") },
		"a client without path":   func(q url.Values) { q.Set("client_id", strings.TrimSuffix(b.client.id, "/client.json")) },
		"dot segments": func(q url.Values) {
			q.Set("client_id", strings.Replace(b.client.id, "/client.json", "/x/../client.json", 1))
		},
		"a fragment":               func(q url.Values) { q.Set("client_id", b.client.id+"#x") },
		"a user":                   func(q url.Values) { q.Set("client_id", strings.Replace(b.client.id, "http://", "http://x@", 1)) },
		"http elsewhere":           func(q url.Values) { q.Set("client_id", "http://client.example/client.json") },
		"another client's id":      func(q url.Values) { q.Set("client_id", b.client.id+"?x") },
		"another redirect":         func(q url.Values) { q.Set("redirect_uri", "http://127.0.0.1:53999/other") },
		"a redirect elsewhere":     func(q url.Values) { q.Set("redirect_uri", "https://evil.example/callback") },
		"its query":                func(q url.Values) { q.Set("redirect_uri", redirect+"?x=1") },
		"its fragment":             func(q url.Values) { q.Set("redirect_uri", redirect+"#x") },
		"localhost for 127.0.0.1":  func(q url.Values) { q.Set("redirect_uri", "http://localhost:53999/callback") },
		"a user before loopback":   func(q url.Values) { q.Set("redirect_uri", "http://127.0.0.1@evil.example/callback") },
		"a parameter twice":        func(q url.Values) { q.Add("resource", b.mcp()) },
		"https on a loopback port": func(q url.Values) { q.Set("redirect_uri", "https://127.0.0.1:53999/callback") },
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := b.request(b.mcp())
			bend(q)
			r := b.authorize(t, "alice", q)
			require.Equal(t, http.StatusBadRequest, r.status, r.header.Get("Location"))
			require.Contains(t, r.body, "This request cannot be answered")
			require.Contains(t, r.header.Get("Content-Security-Policy"), "form-action 'self'")
		})
	}
}

func TestDocumentsThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	for name, bend := range map[string]func(d *document){
		"another client_id":     func(d *document) { d.member["client_id"] = "https://client.example/app.json" },
		"a client secret":       func(d *document) { d.member["client_secret"] = "x" },
		"secret authentication": func(d *document) { d.member["token_endpoint_auth_method"] = "client_secret_basic" },
		"no redirects":          func(d *document) { delete(d.member, "redirect_uris") },
		"redirects no list":     func(d *document) { d.member["redirect_uris"] = redirect },
		"another grant":         func(d *document) { d.member["grant_types"] = []string{"client_credentials"} },
		"another response type": func(d *document) { d.member["response_types"] = []string{"token"} },
		"not found":             func(d *document) { d.status = http.StatusNotFound },
		"a redirect":            func(d *document) { d.status = http.StatusFound; d.header["Location"] = "/elsewhere" },
		"no JSON":               func(d *document) { d.header["Content-Type"] = "text/html" },
		"too large":             func(d *document) { d.member["x"] = strings.Repeat("x", 64<<10) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			bend(b.client)
			q, _ := b.request(b.mcp())
			r := b.authorize(t, "alice", q)
			require.Equal(t, http.StatusBadRequest, r.status, r.body)
			require.Contains(t, r.body, "cannot be recognised")
		})
	}
}

// A page of another site cannot click for the human.
func TestOnlyOurOwnFormDecides(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	q, _ := b.request(b.mcp())
	good := func() url.Values {
		form := fields(t, b.authorize(t, "alice", q))
		form.Set("decision", "allow")
		return form
	}
	for name, tt := range map[string]struct {
		who    string
		bend   func(url.Values)
		header map[string]string
		status int
	}{
		"another site":           {"alice", func(url.Values) {}, map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"a sandboxed page":       {"alice", func(url.Values) {}, map[string]string{"Origin": "null"}, http.StatusForbidden},
		"a cross-site form":      {"alice", func(url.Values) {}, map[string]string{"Origin": "", "Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"a sibling site":         {"alice", func(url.Values) {}, map[string]string{"Origin": "", "Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		"no form token":          {"alice", func(f url.Values) { f.Del("csrf") }, nil, http.StatusForbidden},
		"another's form":         {"bob", func(url.Values) {}, nil, http.StatusForbidden},
		"nobody":                 {"", func(url.Values) {}, nil, http.StatusUnauthorized},
		"a redirect of its own":  {"alice", func(f url.Values) { f.Set("redirect_uri", "https://evil.example/") }, nil, http.StatusBadRequest},
		"a client of its own":    {"alice", func(f url.Values) { f.Set("client_id", "x") }, nil, http.StatusBadRequest},
		"JSON instead of a form": {"alice", func(url.Values) {}, map[string]string{"Content-Type": "application/json"}, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			form := good()
			tt.bend(form)
			require.Equal(t, tt.status, b.click(t, tt.who, form, tt.header).status)
		})
	}
	fields(t, b.authorize(t, "alice", q)) // nothing was allowed by any of it
}

// What the client calls itself is its own words: it closes no tag, hides
// nothing, and stands beside the address that is proven.
func TestAClientsNameIsShownAsItsWords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.client.member["client_name"] = "<script>alert(1)</script>\u202e" + strings.Repeat("x", 500)
	q, _ := b.request(b.mcp())
	page := b.authorize(t, "alice", q)
	require.Equal(t, http.StatusOK, page.status)
	require.NotContains(t, page.body, "<script")
	require.NotContains(t, page.body, "\u202e")
	require.Less(t, len(page.body), 6000)
}

// The page does not outlive what it was about.
func TestAGrantThatEndedMeanwhileGivesNoCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	q, _ := b.request(b.url + "/mcp/" + b.home.String())
	form := fields(t, b.authorize(t, "bob", q))
	form.Set("decision", "allow")
	_, err := b.endpoints.RevokeHome(t.Context(), b.people["bob"].ID, b.home)
	require.NoError(t, err)
	back := b.click(t, "bob", form, nil).back(t)
	require.Equal(t, "invalid_target", back.Get("error"))
	require.Empty(t, back.Get("code"))
}
