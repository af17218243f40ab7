package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
)

// Method sign-in over the wire, on both of its transports, and what a link must
// never do.

const (
	signInVerifier = "a-verifier-that-is-long-enough-for-rfc-7636-to-like"
	signInRedirect = "http://127.0.0.1:7777/callback"
)

// linked is a request of method sign-in that waits for its human, in the hands
// of whoever sent it.
type linked struct {
	t      *testing.T
	w      *world
	key    *provenance.Key
	id     string
	url    string
	a2aURL string
}

func (w *world) link(t *testing.T, h home) *linked {
	t.Helper()
	key, err := provenance.NewKey()
	require.NoError(t, err)
	part, err := provenance.BuildSignIn(key, provenance.Request{
		From: provenance.From{Name: "release-bot"}, Reason: "Hand you <b>pull requests</b>\u202e.", Scope: scope.Asked{Queues: []string{h.queue}, Verbs: scope.Verbs()},
	}, provenance.To{Aud: w.url, Persona: h.slug}, time.Now())
	require.NoError(t, err)
	var task struct {
		ID     string
		Status struct {
			State   string
			Message struct {
				Parts []struct {
					Text string
					Data struct {
						Type, URL string
						ExpiresAt time.Time `json:"expires_at"`
					}
				}
			}
		}
	}
	r := w.stranger(t).do(http.MethodPost, "/a2a/"+h.slug, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
		"message": map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{map[string]any{"data": part, "mediaType": "application/json"}}},
	}}, "A2A-Version", "1.0", "A2A-Extensions", "urn:switchboard:a2a:friend-request:v1")
	var answer struct {
		Result struct{ Task json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &answer), r.body)
	require.NoError(t, json.Unmarshal(answer.Result.Task, &task), r.body)
	require.Equal(t, "TASK_STATE_AUTH_REQUIRED", task.Status.State)
	require.NotEmpty(t, task.Status.Message.Parts[0].Text)
	data := task.Status.Message.Parts[1].Data
	require.Equal(t, "sign-in", data.Type)
	require.Equal(t, w.url+"/friend-sign-in/"+task.ID, data.URL)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), data.ExpiresAt, time.Minute)
	return &linked{t: t, w: w, key: key, id: task.ID, url: data.URL, a2aURL: w.url + "/a2a/" + h.slug}
}

// appended is the link as its sender opens it.
func (l *linked) appended(change func(url.Values)) string {
	sum := sha256.Sum256([]byte(signInVerifier))
	q := url.Values{
		"redirect_uri": {signInRedirect}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}, "state": {"the state"},
	}
	if change != nil {
		change(q)
	}
	return l.url + "?" + q.Encode()
}

// browser is somebody without a session; it does not leave for other programs.
func (w *world) browser(t *testing.T) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &person{t: t, base: w.url, http: &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), signInRedirect) {
			return http.ErrUseLastResponse
		}
		return nil
	}}}
}

// press opens the link and presses its button; it returns what the program on loopback gets.
func (p *person) press(link string) url.Values {
	p.t.Helper()
	page := p.do(http.MethodGet, link, nil)
	require.Equal(p.t, http.StatusOK, page.status, page.body)
	require.Contains(p.t, page.body, `method="post"`)
	r := p.do(http.MethodPost, link, nil, "Origin", p.base, "Sec-Fetch-Site", "same-origin")
	require.Equal(p.t, http.StatusSeeOther, r.status, r.body)
	to, err := url.Parse(r.header.Get("Location"))
	require.NoError(p.t, err)
	require.Equal(p.t, signInRedirect, to.Scheme+"://"+to.Host+to.Path)
	return to.Query()
}

// as adds what has the development issuer sign somebody in without a page.
func as(name string) func(url.Values) {
	return func(q url.Values) { q.Set("prompt", "none"); q.Set("login_hint", name) }
}

// redeem exchanges a code with a key.
func (l *linked) redeem(key *provenance.Key, code string, change func(url.Values)) reply {
	l.t.Helper()
	assertion, err := provenance.ClientAssertion(key, l.w.url, time.Now())
	require.NoError(l.t, err)
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {signInVerifier}, "redirect_uri": {signInRedirect}, "resource": {l.a2aURL},
		"client_assertion": {assertion}, "client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	}
	if change != nil {
		change(form)
	}
	resp, err := http.PostForm(l.w.url+"/oauth/token", form)
	require.NoError(l.t, err)
	defer func() { _ = resp.Body.Close() }()
	var body map[string]any
	require.NoError(l.t, json.NewDecoder(resp.Body).Decode(&body))
	text, err := json.Marshal(body)
	require.NoError(l.t, err)
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// task asks how the request stands, with its key.
func (l *linked) task() (state string, answer reply) {
	l.t.Helper()
	r := l.redeem(l.key, "", func(f url.Values) { f.Set("grant_type", "client_credentials"); f.Del("code") })
	var token struct {
		Access string `json:"access_token"`
	}
	require.NoError(l.t, json.Unmarshal([]byte(r.body), &token), r.body)
	a := l.w.stranger(l.t).do(http.MethodPost, l.a2aURL, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": map[string]any{"id": l.id}},
		"A2A-Version", "1.0", "Authorization", "Bearer "+token.Access)
	var task struct {
		Result struct{ Status struct{ State string } }
	}
	require.NoError(l.t, json.Unmarshal([]byte(a.body), &task), a.body)
	return task.Result.Status.State, a
}

// waiting requires that nothing has come of the request: its sender still waits, and the target sees nothing.
func (l *linked) waiting(target *person) {
	l.t.Helper()
	state, r := l.task()
	require.Equal(l.t, "TASK_STATE_AUTH_REQUIRED", state, r.body)
	l.unseen(target)
}

func (l *linked) unseen(target *person) {
	l.t.Helper()
	for _, path := range []string{"/v1/friend-requests?direction=in", "/v1/inbox", "/v1/activity"} {
		require.NotContains(l.t, target.do(http.MethodGet, path, nil).body, l.id, path)
	}
	require.Equal(l.t, http.StatusNotFound, target.do(http.MethodGet, "/v1/friend-requests/"+l.id, nil).status)
	require.Equal(l.t, http.StatusNotFound, target.do(http.MethodPost, "/v1/friend-requests/"+l.id+"/approve", map[string]any{}).status)
}

func TestSignIn_ThePageShowsWhatIsAskedAndTakesAClick(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	l := w.link(t, h)
	p := w.browser(t)
	page := p.do(http.MethodGet, l.appended(as("alice")), nil)
	require.Equal(t, http.StatusOK, page.status)
	for _, shown := range []string{"release-bot", "reviewer", h.queue, "500 todos an hour", l.key.Thumbprint(), "Hand you &lt;b&gt;pull requests&lt;/b&gt;⟦U&#43;202E⟧."} {
		require.Contains(t, page.body, shown)
	}
	require.Equal(t, "no-store", page.header.Get("Cache-Control"))
	require.Contains(t, page.header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	policy := page.header.Get("Content-Security-Policy")
	require.Contains(t, policy, "http://127.0.0.1:7777", "a browser would hold back the redirect to the program")
	require.Contains(t, policy, w.issuer.Issuer(), "and the one to the issuer")
	l.waiting(bob)

	// The click is a form of this page: no other site can make it.
	require.Equal(t, http.StatusForbidden, p.do(http.MethodPost, l.appended(as("alice")), nil, "Origin", "https://evil.example").status)
	require.Equal(t, http.StatusForbidden, p.do(http.MethodPost, l.appended(as("alice")), nil, "Sec-Fetch-Site", "cross-site").status)

	answer := p.press(l.appended(as("alice")))
	require.Equal(t, []string{"the state", w.url}, []string{answer.Get("state"), answer.Get("iss")})
	require.NotEmpty(t, answer.Get("code"))
	require.Equal(t, http.StatusUnauthorized, p.do(http.MethodGet, "/v1/me", nil).status, "the sign-in makes no session")
	l.waiting(bob)

	r := l.redeem(l.key, answer.Get("code"), nil)
	require.Equal(t, http.StatusOK, r.status, r.body)
	state, _ := l.task()
	require.Equal(t, "TASK_STATE_SUBMITTED", state)
	var in struct {
		ID, State string
		Identity  struct{ Email string }
	}
	bob.get("/v1/friend-requests/"+l.id, &in)
	require.Equal(t, []string{"pending", "alice@example.com"}, []string{in.State, in.Identity.Email})
	require.Equal(t, http.StatusNotFound, p.do(http.MethodGet, l.appended(nil), nil).status, "the link is used up")

	r = l.redeem(l.key, answer.Get("code"), nil)
	require.Equal(t, http.StatusBadRequest, r.status, "a code twice")
	require.Contains(t, r.body, "invalid_grant")
}

func TestSignIn_OnlyTheSenderRedeems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h, other := bob.publish("reviewer"), bob.publish("other")
	l := w.link(t, h)
	code := w.browser(t).press(l.appended(as("alice"))).Get("code")
	stranger, err := provenance.NewKey()
	require.NoError(t, err)
	for what, try := range map[string]struct {
		key    *provenance.Key
		code   string
		change func(url.Values)
		want   string
	}{
		"a key that is known for another request": {w.link(t, h).key, code, nil, "invalid_grant"},
		"a key of nobody":                         {stranger, code, nil, "invalid_client"},
		"another verifier":                        {l.key, code, func(f url.Values) { f.Set("code_verifier", strings.Repeat("x", 50)) }, "invalid_grant"},
		"another redirect":                        {l.key, code, func(f url.Values) { f.Set("redirect_uri", "http://127.0.0.1:7778/callback") }, "invalid_grant"},
		"another persona":                         {l.key, code, func(f url.Values) { f.Set("resource", w.url+"/a2a/"+other.slug) }, "invalid_grant"},
		"another code":                            {l.key, code + "x", nil, "invalid_grant"},
		"no key":                                  {l.key, code, func(f url.Values) { f.Del("client_assertion"); f.Del("client_assertion_type") }, "invalid_request"},
		"no verifier":                             {l.key, code, func(f url.Values) { f.Del("code_verifier") }, "invalid_request"},
	} {
		r := l.redeem(try.key, try.code, try.change)
		require.GreaterOrEqual(t, r.status, 400, what)
		require.Contains(t, r.body, `"`+try.want+`"`, what)
	}
	l.waiting(bob)
	require.Equal(t, http.StatusOK, l.redeem(l.key, code, nil).status, "and all the while the sender's own is good")
}

func TestSignIn_ALinkMailedToAVictimCompletesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	l := w.link(t, h) // mallory's, with her key and her verifier
	victim := w.browser(t)
	answer := victim.press(l.appended(as("alice")))
	require.NotEmpty(t, answer.Get("code"), "it went to the victim's own machine")

	// Mallory has everything but the code.
	require.Contains(t, l.redeem(l.key, "", nil).body, "invalid_request")
	require.Contains(t, l.redeem(l.key, "guessed", nil).body, "invalid_grant")
	state, task := l.task()
	require.Equal(t, "TASK_STATE_AUTH_REQUIRED", state)
	require.NotContains(t, task.body, answer.Get("code"))
	l.waiting(bob)

	// What the victim's machine has is of no use to a program there either: it has another key.
	require.Contains(t, l.redeem(w.link(t, h).key, answer.Get("code"), nil).body, "invalid_grant")
	l.waiting(bob)

	// The sender cannot have the code come to her: not by the link, and not by the form.
	for _, redirect := range []string{
		"https://evil.example/cb", "http://evil.example:7777/callback", "http://127.0.0.1.evil.example/", "http://127.0.0.1@evil.example/", "//evil.example/",
		"http://localhost.evil.example/", "javascript:alert(1)", `http://127.0.0.1\@evil.example/`, `http://127.0.0.1:7777\.evil.example/`, "",
	} {
		link := l.appended(func(q url.Values) { q.Set("redirect_uri", redirect); as("alice")(q) })
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := victim.do(method, link, nil)
			require.Equal(t, http.StatusUnprocessableEntity, r.status, "%s %q", method, redirect)
			require.Empty(t, r.header.Get("Location"))
			if redirect != "" {
				require.NotContains(t, r.body, redirect)
			}
		}
	}
	// Nor can she swap it between the click and the issuer's answer: another browser has no cookie of it.
	noFollow := w.browser(t)
	noFollow.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r := noFollow.do(http.MethodPost, l.appended(as("alice")), nil)
	require.Equal(t, http.StatusSeeOther, r.status)
	r = noFollow.do(http.MethodGet, r.header.Get("Location"), nil)
	callback := r.header.Get("Location")
	require.True(t, strings.HasPrefix(callback, w.url+"/login/callback?"), callback)
	require.Equal(t, http.StatusUnauthorized, w.browser(t).do(http.MethodGet, callback, nil).status)
	l.waiting(bob)
}

func TestSignIn_OnlyListedHostsBesidesLoopback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.SignInRedirects = []string{"agents.example"}
	l := listen(t)
	second := *w // a replica of other configuration, under a name of its own
	second.url = "http://" + l.Addr().String()
	second.config.PublicURL = second.url
	second.replica(t, l)
	h := second.signIn(t, "bob").publish("reviewer")
	link := second.link(t, h)
	p := second.browser(t)
	get := func(redirect string) int {
		return p.do(http.MethodGet, link.appended(func(q url.Values) { q.Set("redirect_uri", redirect) }), nil).status
	}
	require.Equal(t, http.StatusOK, get("https://agents.example/back?tenant=1"))
	require.Equal(t, http.StatusOK, get("http://[::1]:9/back"))
	require.Equal(t, http.StatusOK, get("http://localhost:9/back"))
	require.Equal(t, http.StatusUnprocessableEntity, get("https://localhost:9/back"))
	require.Equal(t, http.StatusUnprocessableEntity, get("http://agents.example/back"))
	require.Equal(t, http.StatusUnprocessableEntity, get("https://agents.example.evil.example/back"))
	require.Equal(t, http.StatusUnprocessableEntity, get("https://agents.example:444/back"))
}

func TestSignIn_ARefusalReachesTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	l := w.link(t, h)
	for what, try := range map[string]struct {
		change func(url.Values)
		want   string
	}{
		"the issuer knows nobody":    {func(q url.Values) { q.Set("prompt", "none") }, "unauthenticated"},
		"the ID token has expired":   {func(q url.Values) { as("alice")(q); q.Set("dev_id_token_lifetime", "-300") }, "id_token_expired"},
		"the sign-in is of long ago": {func(q url.Values) { as("alice")(q); q.Set("dev_auth_time_offset", "-864000") }, "id_token_expired"},
	} {
		answer := w.browser(t).press(l.appended(try.change))
		require.Equal(t, []string{"access_denied", "the state", w.url, ""}, []string{answer.Get("error"), answer.Get("state"), answer.Get("iss"), answer.Get("code")}, what)
		require.Contains(t, answer.Get("error_description"), try.want+":", what)
	}
	l.waiting(bob)
	require.Equal(t, http.StatusOK, l.redeem(l.key, w.browser(t).press(l.appended(as("alice"))).Get("code"), nil).status, "the link may be tried again")
}

func TestSignIn_IsGoneAfterTenMinutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	l := w.link(t, h)
	code := w.browser(t).press(l.appended(as("alice"))).Get("code")
	pool := pgtest.Open(t, w.database)
	for _, table := range []string{"friend_sign_in", "friend_request"} {
		_, err := pool.Exec(t.Context(), `UPDATE `+table+` SET expires_at = clock_timestamp()`)
		require.NoError(t, err)
	}
	require.Contains(t, l.redeem(l.key, code, nil).body, "invalid_grant")
	_, r := l.task()
	require.Contains(t, r.body, "-32001", "TaskNotFound")
	unknown := *l
	unknown.url = w.url + "/friend-sign-in/" + uuid.NewString()
	p := w.browser(t)
	gone, never := p.do(http.MethodGet, l.appended(nil), nil), p.do(http.MethodGet, unknown.appended(nil), nil)
	require.Equal(t, http.StatusNotFound, gone.status)
	require.Equal(t, never.status, gone.status)
	require.Equal(t, never.body, gone.body, "gone, and never there: the same page")
	require.Equal(t, http.StatusNotFound, p.do(http.MethodPost, l.appended(as("alice")), nil).status)
	l.unseen(bob)
}

func TestSignIn_TheCardClaimsItWhereItWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	methods := func() []string {
		card, err := requester.New(0).Find(t.Context(), w.url+"/a2a/"+h.slug)
		require.NoError(t, err)
		return card.Methods
	}
	require.Equal(t, []string{"oidc-nonce", "sign-in"}, methods())
	bob.must(http.MethodPatch, "/v1/personas/"+h.personaID, map[string]any{"who_may_ask": "nobody"}, nil)
	require.NotContains(t, methods(), "sign-in")
}

func TestSignIn_TheTwinGivesTheLinkToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	key, err := provenance.NewKey()
	require.NoError(t, err)
	part, err := provenance.BuildSignIn(key, provenance.Request{
		From: provenance.From{Name: "release-bot"}, Reason: "Because.", Scope: scope.Asked{Queues: []string{h.queue}, Verbs: scope.Verbs()},
	}, provenance.To{Aud: w.url, Persona: h.slug}, time.Now())
	require.NoError(t, err)
	var sent struct {
		ID, State string
		SignIn    struct {
			URL       string
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"sign_in"`
	}
	r := w.stranger(t).do(http.MethodPost, "/v1/a2a/"+h.slug+"/friend-requests", part, "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, r.status, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &sent))
	require.Equal(t, w.url+"/friend-sign-in/"+sent.ID, sent.SignIn.URL)
	require.False(t, sent.SignIn.ExpiresAt.IsZero())
	l := &linked{t: t, w: w, key: key, id: sent.ID, url: sent.SignIn.URL, a2aURL: w.url + "/a2a/" + h.slug}
	l.waiting(bob)
	require.Equal(t, http.StatusOK, l.redeem(key, w.browser(t).press(l.appended(as("carol"))).Get("code"), nil).status)
	var in struct{ State string }
	bob.get("/v1/friend-requests/"+sent.ID, &in)
	require.Equal(t, "pending", in.State)
}
