package server_test

import (
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

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
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
	w      *servertest.Instance
	key    *provenance.Key
	id     string
	url    string
	a2aURL string
}

func link(t *testing.T, w *servertest.Instance, h servertest.Home) *linked {
	t.Helper()
	key, err := provenance.NewKey()
	require.NoError(t, err)
	part, err := provenance.BuildSignIn(key, provenance.Request{
		From: provenance.From{Name: "release-bot"}, Reason: "Hand you <b>pull requests</b>\u202e.", Scope: scope.Asked{Queues: []string{h.Queue}, Verbs: scope.Verbs()},
	}, provenance.To{Aud: w.URL, Persona: h.Slug}, time.Now())
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
	r := w.Stranger(t, "").Do(http.MethodPost, "/a2a/"+h.Slug, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
		"message": map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{map[string]any{"data": part, "mediaType": "application/json"}}},
	}}, "A2A-Version", "1.0", "A2A-Extensions", "urn:switchboard:a2a:friend-request:v1")
	var answer struct {
		Result struct{ Task json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(r.Body), &answer), r.Body)
	require.NoError(t, json.Unmarshal(answer.Result.Task, &task), r.Body)
	require.Equal(t, "TASK_STATE_AUTH_REQUIRED", task.Status.State)
	require.NotEmpty(t, task.Status.Message.Parts[0].Text)
	data := task.Status.Message.Parts[1].Data
	require.Equal(t, "sign-in", data.Type)
	require.Equal(t, w.URL+"/friend-sign-in/"+task.ID, data.URL)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), data.ExpiresAt, time.Minute)
	return &linked{t: t, w: w, key: key, id: task.ID, url: data.URL, a2aURL: w.URL + "/a2a/" + h.Slug}
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

// press opens the link and presses its button; it returns what the program on loopback gets.
func press(t *testing.T, p *servertest.Person, link string) url.Values {
	t.Helper()
	page := p.Do(http.MethodGet, link, nil)
	require.Equal(t, http.StatusOK, page.Status, page.Body)
	require.Contains(t, page.Body, `method="post"`)
	at, err := url.Parse(link)
	require.NoError(t, err)
	r := p.Do(http.MethodPost, link, nil, "Origin", at.Scheme+"://"+at.Host, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusSeeOther, r.Status, r.Body)
	to, err := url.Parse(r.Header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, signInRedirect, to.Scheme+"://"+to.Host+to.Path)
	return to.Query()
}

// as adds what has the development issuer sign somebody in without a page.
func as(name string) func(url.Values) {
	return func(q url.Values) { q.Set("prompt", "none"); q.Set("login_hint", name) }
}

// redeem exchanges a code with a key.
func (l *linked) redeem(key *provenance.Key, code string, change func(url.Values)) servertest.Reply {
	l.t.Helper()
	assertion, err := provenance.ClientAssertion(key, l.w.URL, time.Now())
	require.NoError(l.t, err)
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {signInVerifier}, "redirect_uri": {signInRedirect}, "resource": {l.a2aURL},
		"client_assertion": {assertion}, "client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	}
	if change != nil {
		change(form)
	}
	return l.w.Stranger(l.t, "").Do(http.MethodPost, "/oauth/token", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// task asks how the request stands, with its key.
func (l *linked) task() (state string, answer servertest.Reply) {
	l.t.Helper()
	r := l.redeem(l.key, "", func(f url.Values) { f.Set("grant_type", "client_credentials"); f.Del("code") })
	var token struct {
		Access string `json:"access_token"`
	}
	require.NoError(l.t, json.Unmarshal([]byte(r.Body), &token), r.Body)
	a := l.w.Stranger(l.t, "").Do(http.MethodPost, l.a2aURL, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": map[string]any{"id": l.id}},
		"A2A-Version", "1.0", "Authorization", "Bearer "+token.Access)
	var task struct {
		Result struct{ Status struct{ State string } }
	}
	require.NoError(l.t, json.Unmarshal([]byte(a.Body), &task), a.Body)
	return task.Result.Status.State, a
}

// waiting requires that nothing has come of the request: its sender still waits, and the target sees nothing.
func (l *linked) waiting(target *servertest.Person) {
	l.t.Helper()
	state, r := l.task()
	require.Equal(l.t, "TASK_STATE_AUTH_REQUIRED", state, r.Body)
	l.unseen(target)
}

func (l *linked) unseen(target *servertest.Person) {
	l.t.Helper()
	for _, path := range []string{"/v1/friend-requests?direction=in", "/v1/inbox", "/v1/activity"} {
		require.NotContains(l.t, target.Do(http.MethodGet, path, nil).Body, l.id, path)
	}
	require.Equal(l.t, http.StatusNotFound, target.Do(http.MethodGet, "/v1/friend-requests/"+l.id, nil).Status)
	require.Equal(l.t, http.StatusNotFound, target.Do(http.MethodPost, "/v1/friend-requests/"+l.id+"/approve", map[string]any{}).Status)
}

func TestSignIn_ThePageShowsWhatIsAskedAndTakesAClick(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	l := link(t, w, h)
	p := w.Browser(t, signInRedirect)
	page := p.Do(http.MethodGet, l.appended(as("alice")), nil)
	require.Equal(t, http.StatusOK, page.Status)
	for _, shown := range []string{"release-bot", "reviewer", h.Queue, "500 todos an hour", l.key.Thumbprint(), "Hand you &lt;b&gt;pull requests&lt;/b&gt;⟦U&#43;202E⟧."} {
		require.Contains(t, page.Body, shown)
	}
	require.Equal(t, "no-store", page.Header.Get("Cache-Control"))
	require.Contains(t, page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	policy := page.Header.Get("Content-Security-Policy")
	require.Contains(t, policy, "http://127.0.0.1:7777", "a browser would hold back the redirect to the program")
	require.Contains(t, policy, w.Issuer.Issuer(), "and the one to the issuer")
	l.waiting(bob)

	// The click is a form of this page: no other site can make it.
	require.Equal(t, http.StatusForbidden, p.Do(http.MethodPost, l.appended(as("alice")), nil, "Origin", "https://evil.example").Status)
	require.Equal(t, http.StatusForbidden, p.Do(http.MethodPost, l.appended(as("alice")), nil, "Sec-Fetch-Site", "cross-site").Status)

	answer := press(t, p, l.appended(as("alice")))
	require.Equal(t, []string{"the state", w.URL}, []string{answer.Get("state"), answer.Get("iss")})
	require.NotEmpty(t, answer.Get("code"))
	require.Equal(t, http.StatusUnauthorized, p.Do(http.MethodGet, "/v1/me", nil).Status, "the sign-in makes no session")
	l.waiting(bob)

	r := l.redeem(l.key, answer.Get("code"), nil)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	state, _ := l.task()
	require.Equal(t, "TASK_STATE_SUBMITTED", state)
	var in struct {
		ID, State string
		Identity  struct{ Email string }
	}
	bob.Get("/v1/friend-requests/"+l.id, &in)
	require.Equal(t, []string{"pending", "alice@example.com"}, []string{in.State, in.Identity.Email})
	require.Equal(t, http.StatusNotFound, p.Do(http.MethodGet, l.appended(nil), nil).Status, "the link is used up")

	r = l.redeem(l.key, answer.Get("code"), nil)
	require.Equal(t, http.StatusBadRequest, r.Status, "a code twice")
	require.Contains(t, r.Body, "invalid_grant")
}

func TestSignIn_OnlyTheSenderRedeems(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h, other := bob.Publish("reviewer"), bob.Publish("other")
	l := link(t, w, h)
	code := press(t, w.Browser(t, signInRedirect), l.appended(as("alice"))).Get("code")
	stranger, err := provenance.NewKey()
	require.NoError(t, err)
	for what, try := range map[string]struct {
		key    *provenance.Key
		code   string
		change func(url.Values)
		want   string
	}{
		"a key that is known for another request": {link(t, w, h).key, code, nil, "invalid_grant"},
		"a key of nobody":                         {stranger, code, nil, "invalid_client"},
		"another verifier":                        {l.key, code, func(f url.Values) { f.Set("code_verifier", strings.Repeat("x", 50)) }, "invalid_grant"},
		"another redirect":                        {l.key, code, func(f url.Values) { f.Set("redirect_uri", "http://127.0.0.1:7778/callback") }, "invalid_grant"},
		"another persona":                         {l.key, code, func(f url.Values) { f.Set("resource", w.URL+"/a2a/"+other.Slug) }, "invalid_grant"},
		"another code":                            {l.key, code + "x", nil, "invalid_grant"},
		"no key":                                  {l.key, code, func(f url.Values) { f.Del("client_assertion"); f.Del("client_assertion_type") }, "invalid_request"},
		"no verifier":                             {l.key, code, func(f url.Values) { f.Del("code_verifier") }, "invalid_request"},
	} {
		r := l.redeem(try.key, try.code, try.change)
		require.GreaterOrEqual(t, r.Status, 400, what)
		require.Contains(t, r.Body, `"`+try.want+`"`, what)
	}
	l.waiting(bob)
	require.Equal(t, http.StatusOK, l.redeem(l.key, code, nil).Status, "and all the while the sender's own is good")
}

func TestSignIn_ALinkMailedToAVictimCompletesNothing(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	l := link(t, w, h) // mallory's, with her key and her verifier
	victim := w.Browser(t, signInRedirect)
	answer := press(t, victim, l.appended(as("alice")))
	require.NotEmpty(t, answer.Get("code"), "it went to the victim's own machine")

	// Mallory has everything but the code.
	require.Contains(t, l.redeem(l.key, "", nil).Body, "invalid_request")
	require.Contains(t, l.redeem(l.key, "guessed", nil).Body, "invalid_grant")
	state, task := l.task()
	require.Equal(t, "TASK_STATE_AUTH_REQUIRED", state)
	require.NotContains(t, task.Body, answer.Get("code"))
	l.waiting(bob)

	// What the victim's machine has is of no use to a program there either: it has another key.
	require.Contains(t, l.redeem(link(t, w, h).key, answer.Get("code"), nil).Body, "invalid_grant")
	l.waiting(bob)

	// The sender cannot have the code come to her: not by the link, and not by the form.
	for _, redirect := range []string{
		"https://evil.example/cb", "http://evil.example:7777/callback", "http://127.0.0.1.evil.example/", "http://127.0.0.1@evil.example/", "//evil.example/",
		"http://localhost.evil.example/", "javascript:alert(1)", `http://127.0.0.1\@evil.example/`, `http://127.0.0.1:7777\.evil.example/`, "",
	} {
		link := l.appended(func(q url.Values) { q.Set("redirect_uri", redirect); as("alice")(q) })
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := victim.Do(method, link, nil)
			require.Equal(t, http.StatusUnprocessableEntity, r.Status, "%s %q", method, redirect)
			require.Empty(t, r.Header.Get("Location"))
			if redirect != "" {
				require.NotContains(t, r.Body, redirect)
			}
		}
	}
	// Nor can she swap it between the click and the issuer's answer: another browser has no cookie of it.
	noFollow := w.Browser(t, "").Stay()
	r := noFollow.Do(http.MethodPost, l.appended(as("alice")), nil)
	require.Equal(t, http.StatusSeeOther, r.Status)
	r = noFollow.Do(http.MethodGet, r.Header.Get("Location"), nil)
	callback := r.Header.Get("Location")
	require.True(t, strings.HasPrefix(callback, w.URL+"/login/callback?"), callback)
	require.Equal(t, http.StatusUnauthorized, w.Browser(t, signInRedirect).Do(http.MethodGet, callback, nil).Status)
	l.waiting(bob)
}

func TestSignIn_OnlyListedHostsBesidesLoopback(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t, func(c *server.Config) { c.SignInRedirects = []string{"agents.example"} })
	link := link(t, w, w.SignIn(t, "bob").Publish("reviewer"))
	p := w.Browser(t, signInRedirect)
	get := func(redirect string) int {
		return p.Do(http.MethodGet, link.appended(func(q url.Values) { q.Set("redirect_uri", redirect) }), nil).Status
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
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	l := link(t, w, h)
	for what, try := range map[string]struct {
		change func(url.Values)
		want   string
	}{
		"the issuer knows nobody":    {func(q url.Values) { q.Set("prompt", "none") }, "unauthenticated"},
		"the ID token has expired":   {func(q url.Values) { as("alice")(q); q.Set("dev_id_token_lifetime", "-300") }, "id_token_expired"},
		"the sign-in is of long ago": {func(q url.Values) { as("alice")(q); q.Set("dev_auth_time_offset", "-864000") }, "id_token_expired"},
	} {
		answer := press(t, w.Browser(t, signInRedirect), l.appended(try.change))
		require.Equal(t, []string{"access_denied", "the state", w.URL, ""}, []string{answer.Get("error"), answer.Get("state"), answer.Get("iss"), answer.Get("code")}, what)
		require.Contains(t, answer.Get("error_description"), try.want+":", what)
	}
	l.waiting(bob)
	require.Equal(t, http.StatusOK, l.redeem(l.key, press(t, w.Browser(t, signInRedirect), l.appended(as("alice"))).Get("code"), nil).Status, "the link may be tried again")
}

func TestSignIn_IsGoneAfterTenMinutes(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	l := link(t, w, h)
	code := press(t, w.Browser(t, signInRedirect), l.appended(as("alice"))).Get("code")
	pool := pgtest.Open(t, w.Database)
	for _, table := range []string{"friend_sign_in", "friend_request"} {
		_, err := pool.Exec(t.Context(), `UPDATE `+table+` SET expires_at = clock_timestamp()`)
		require.NoError(t, err)
	}
	require.Contains(t, l.redeem(l.key, code, nil).Body, "invalid_grant")
	_, r := l.task()
	require.Contains(t, r.Body, "-32001", "TaskNotFound")
	unknown := *l
	unknown.url = w.URL + "/friend-sign-in/" + uuid.NewString()
	p := w.Browser(t, signInRedirect)
	gone, never := p.Do(http.MethodGet, l.appended(nil), nil), p.Do(http.MethodGet, unknown.appended(nil), nil)
	require.Equal(t, http.StatusNotFound, gone.Status)
	require.Equal(t, never.Status, gone.Status)
	require.Equal(t, never.Body, gone.Body, "gone, and never there: the same page")
	require.Equal(t, http.StatusNotFound, p.Do(http.MethodPost, l.appended(as("alice")), nil).Status)
	l.unseen(bob)
}

func TestSignIn_TheCardClaimsItWhereItWorks(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	methods := func() []string {
		card, err := requester.New(0).Find(t.Context(), w.URL+"/a2a/"+h.Slug)
		require.NoError(t, err)
		return card.Methods
	}
	require.Equal(t, []string{"oidc-nonce", "sign-in"}, methods())
	bob.Must(http.MethodPatch, "/v1/personas/"+h.PersonaID, map[string]any{"who_may_ask": "nobody"}, nil)
	require.NotContains(t, methods(), "sign-in")
}

func TestSignIn_TheTwinGivesTheLinkToo(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	key, err := provenance.NewKey()
	require.NoError(t, err)
	part, err := provenance.BuildSignIn(key, provenance.Request{
		From: provenance.From{Name: "release-bot"}, Reason: "Because.", Scope: scope.Asked{Queues: []string{h.Queue}, Verbs: scope.Verbs()},
	}, provenance.To{Aud: w.URL, Persona: h.Slug}, time.Now())
	require.NoError(t, err)
	var sent struct {
		ID, State string
		SignIn    struct {
			URL       string
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"sign_in"`
	}
	r := w.Stranger(t, "").Do(http.MethodPost, "/v1/a2a/"+h.Slug+"/friend-requests", part, "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, r.Status, r.Body)
	require.NoError(t, json.Unmarshal([]byte(r.Body), &sent))
	require.Equal(t, w.URL+"/friend-sign-in/"+sent.ID, sent.SignIn.URL)
	require.False(t, sent.SignIn.ExpiresAt.IsZero())
	l := &linked{t: t, w: w, key: key, id: sent.ID, url: sent.SignIn.URL, a2aURL: w.URL + "/a2a/" + h.Slug}
	l.waiting(bob)
	require.Equal(t, http.StatusOK, l.redeem(key, press(t, w.Browser(t, signInRedirect), l.appended(as("carol"))).Get("code"), nil).Status)
	var in struct{ State string }
	bob.Get("/v1/friend-requests/"+sent.ID, &in)
	require.Equal(t, "pending", in.State)
}
