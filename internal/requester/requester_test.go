package requester

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

type testBundle struct {
	*target
	q     *Requester
	store *Store
	dir   string
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	q := New(10 * time.Second)
	q.retries = []time.Duration{0, 0}
	dir := t.TempDir()
	store, err := Open(dir)
	require.NoError(t, err)
	return &testBundle{newTarget(t), q, store, dir}
}

func (b *testBundle) ask(t *testing.T) Ask {
	t.Helper()
	card, err := b.q.Find(t.Context(), b.URL)
	require.NoError(t, err)
	ask, err := Ask{Card: card, Name: "release-bot", Reason: "Hand you pull requests."}.Prepare()
	require.NoError(t, err)
	return ask
}

func (b *testBundle) pending(t *testing.T) *Request {
	t.Helper()
	r, err := b.q.Send(t.Context(), b.store, b.ask(t), SignIn{Headless: "alice"})
	require.NoError(t, err)
	require.Equal(t, Pending, r.State)
	return r
}

func (b *testBundle) approved(t *testing.T) *Request {
	t.Helper()
	r := b.pending(t)
	b.set(func() { b.state = "TASK_STATE_COMPLETED" })
	require.NoError(t, b.q.Wait(t.Context(), b.store, r))
	require.Equal(t, Approved, r.State)
	return r
}

func TestARequestIsSignedSentApprovedAndUsed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.approved(t)
	require.Len(t, b.verified, 1)
	require.Equal(t, "alice", devLogin(b.verified[0].Subject))
	require.Equal(t, r.Thumbprint(), b.verified[0].KeyThumbprint)
	require.Equal(t, []scope.Verb{"create_for", "todo_status", "cancel_todo"}, b.parts[0].Scope.Verbs, "all that is offered")
	require.Equal(t, b.URL+"/mcp/one", r.Grant.Endpoint)

	kept, err := b.store.Find(r.Grant.Endpoint)
	require.NoError(t, err)
	require.Equal(t, r.Grant.Endpoint, kept.Grant.Endpoint)
	e, err := b.q.Endpoint(kept)
	require.NoError(t, err)
	tools, err := e.Tools(t.Context())
	require.NoError(t, err)
	require.Equal(t, b.tools, tools)
	before := b.issued
	for range 3 {
		got, err := e.Call(t.Context(), "create_for", map[string]any{"queue": "reviews"})
		require.NoError(t, err)
		require.JSONEq(t, `{"todo_id": "todo-1", "state": "ready"}`, string(got.Structured))
	}
	require.Equal(t, before, b.issued, "the token is kept")
	last := b.mcpHeaders[len(b.mcpHeaders)-1]
	require.Equal(t, []string{"2026-07-28", "tools/call", "create_for"}, []string{last.Get("MCP-Protocol-Version"), last.Get("Mcp-Method"), last.Get("Mcp-Name")})

	got, err := e.Call(t.Context(), "todo_status", nil)
	require.NoError(t, err, "an answer as an event stream")
	require.NotNil(t, got.Structured)
	got, err = e.Call(t.Context(), "create_for", map[string]any{"queue": "secret"})
	require.NoError(t, err)
	require.Equal(t, refusal.NotFound, got.Refusal().Code)
	_, err = e.Call(t.Context(), "cancel_todo", nil)
	require.ErrorIs(t, err, ErrToolNotGranted)

	b.set(func() { clear(b.tokens) }) // every token is void, say after a rotation
	_, err = e.Call(t.Context(), "whoami", nil)
	require.NoError(t, err, "a refused token is replaced once")
	b.set(func() { b.revoked = true })
	_, err = e.Call(t.Context(), "whoami", nil)
	require.Equal(t, refusal.Forbidden, refusal.CodeOf(err))
}

// devLogin is who has this subject at the development issuer.
func devLogin(subject string) string {
	for _, p := range devidp.People() {
		if p.Subject == subject {
			return p.Login
		}
	}
	return ""
}

func TestTokensAreRenewedBeforeTheyEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.approved(t)
	now := time.Now()
	b.q.now = func() time.Time { return now }
	e, err := b.q.Endpoint(r)
	require.NoError(t, err)
	first, err := e.Token(t.Context())
	require.NoError(t, err)
	now = now.Add(13 * time.Minute)
	second, err := e.Token(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, second)
	now = now.Add(90 * time.Second) // within the last minute of fifteen
	third, err := e.Token(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first, third)
}

func TestTokensAreBoundToTheKeyWhereTheInstanceCan(t *testing.T) {
	t.Parallel()
	for _, binds := range []bool{true, false} {
		b := setup(t)
		b.binds = binds
		e, err := b.q.Endpoint(b.approved(t))
		require.NoError(t, err)
		e.Bind()
		for range 2 {
			_, err = e.Call(t.Context(), "whoami", nil)
			require.NoError(t, err)
		}
		last := b.mcpHeaders[len(b.mcpHeaders)-1].Get("Authorization")
		require.Equal(t, binds, strings.HasPrefix(last, "DPoP "), last)
	}
}

func TestALostAnswerMakesNoSecondRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.loseSends = 2
	b.pending(t)
	require.Len(t, b.parts, 1)

	b.loseSends = 3 // all attempts
	_, err := b.q.Send(t.Context(), b.store, b.ask(t), SignIn{Headless: "carol"})
	require.Equal(t, refusal.Unavailable, refusal.CodeOf(err))
	all, err := b.store.List()
	require.NoError(t, err)
	require.Len(t, all, 2)
	cutOff := all[1]
	require.Equal(t, Unsent, cutOff.State)
	require.NoError(t, b.q.Update(t.Context(), b.store, cutOff), "its key finds it again")
	require.Equal(t, Pending, cutOff.State)
}

func TestARefusalIsToldWithItsReasonAndLeavesNoKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ask := b.ask(t)
	require.NoError(t, b.idp.RotateKey())
	b.idp.WithdrawOldKeys()
	ask.Issuer.ClientID = "not-for-provenance"
	_, err := b.q.Send(t.Context(), b.store, ask, SignIn{Headless: "alice"})
	require.Equal(t, refusal.IDTokenAudience, refusal.CodeOf(err))
	all, err := b.store.List()
	require.NoError(t, err)
	require.Empty(t, all)

	_, err = b.q.Send(t.Context(), b.store, b.ask(t), SignIn{Headless: "mallory"})
	require.ErrorIs(t, err, ErrSignIn)
	require.ErrorContains(t, err, "login_required")
}

func TestDeclineAndWithdrawal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.pending(t)
	listed, err := b.q.List(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []Listed{{"request-1", Pending}}, listed)
	b.set(func() { b.state, b.note = "TASK_STATE_REJECTED", "Not now." })
	require.NoError(t, b.q.Wait(t.Context(), b.store, r))
	require.Equal(t, Declined, r.State)
	require.Equal(t, "Not now.", r.Note)
	_, err = b.q.Endpoint(r)
	require.ErrorContains(t, err, "no endpoint yet")

	r = b.pending(t)
	require.NoError(t, b.q.Withdraw(t.Context(), b.store, r))
	require.Equal(t, Withdrawn, r.State)
}

// browse is a browser with somebody signed in at the issuer already.
func browse(t *testing.T, ended chan<- string) func(string) error {
	return func(target string) error {
		u, err := url.Parse(target)
		require.NoError(t, err)
		q := u.Query()
		q.Set("prompt", "none")
		q.Set("login_hint", "bob")
		u.RawQuery = q.Encode()
		go func() {
			resp, err := http.Get(u.String())
			if err != nil {
				ended <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			ended <- string(b)
		}()
		return nil
	}
}

func TestTheBrowserComesBackToLoopback(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ended := make(chan string, 1)
	r, err := b.q.Send(t.Context(), b.store, b.ask(t), SignIn{Show: browse(t, ended)})
	require.NoError(t, err)
	require.Equal(t, Pending, r.State)
	require.Equal(t, "bob", devLogin(b.verified[0].Subject))
	require.Contains(t, <-ended, "window can be closed")
}

func TestMethodSignInIsRedeemedWithTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.methods = []string{provenance.MethodSignIn}
	ask := b.ask(t)
	require.Equal(t, provenance.MethodSignIn, ask.Method)
	ended := make(chan string, 1)
	r, err := b.q.Send(t.Context(), b.store, ask, SignIn{Show: browse(t, ended)})
	require.NoError(t, err)
	require.Equal(t, Pending, r.State)
	require.Equal(t, "1", b.signIn.Get("request"), "what the link held is kept")
	require.Contains(t, <-ended, "window can be closed")
}

func TestAnswersToOthersQuestionsArePassedOver(t *testing.T) {
	t.Parallel()
	l, err := listen(t.Context(), "/back")
	require.NoError(t, err)
	t.Cleanup(l.close)
	type got struct {
		code string
		err  error
	}
	done := make(chan got)
	go func() {
		code, err := l.wait(t.Context(), "ours", "https://issuer.example")
		done <- got{code, err}
	}()
	for _, query := range []string{"?code=forged&state=theirs", "?code=forged", "?code=good&state=ours&iss=https://issuer.example"} {
		resp, err := http.Get(l.redirect + query)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	g := <-done
	require.NoError(t, g.err)
	require.Equal(t, "good", g.code)

	_, err = readCallback(url.Values{"state": {"ours"}, "code": {"x"}, "iss": {"https://other.example"}}, "ours", "https://issuer.example")
	require.ErrorContains(t, err, "another issuer")
}

func TestACardSpeaksOnlyForThePlaceItCameFrom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cardURL := b.URL + "/a2a/reviewer/.well-known/agent-card.json"
	params := func(c map[string]any) map[string]any {
		return c["capabilities"].(map[string]any)["extensions"].([]any)[0].(map[string]any)["params"].(map[string]any)
	}
	for name, tc := range map[string]struct {
		bend func(map[string]any)
		says string
	}{
		"another audience":             {func(c map[string]any) { params(c)["aud"] = "https://bob.example" }, "not its own persona"},
		"another authorization server": {func(c map[string]any) { params(c)["authorization_server"] = "https://evil.example" }, "authorization server"},
		"another persona":              {func(c map[string]any) { params(c)["persona"] = "other" }, "not its own persona"},
		"no slug":                      {func(c map[string]any) { params(c)["persona"] = "../x" }, "no slug"},
		"another version":              {func(c map[string]any) { params(c)["v"] = 2 }, "version 2"},
		"no extension":                 {func(c map[string]any) { c["capabilities"] = map[string]any{} }, "takes no friend requests"},
		"all of another place": {func(c map[string]any) {
			params(c)["aud"], params(c)["authorization_server"] = "https://bob.example", "https://bob.example"
			c["supportedInterfaces"].([]any)[0].(map[string]any)["url"] = "https://bob.example/a2a/reviewer"
		}, "not for the place it was fetched from"},
		"too large": {func(c map[string]any) { c["description"] = strings.Repeat("x", 70<<10) }, "larger than 64 KiB"},
	} {
		b.set(func() { b.card = b.honestCard(); tc.bend(b.card) })
		_, err := b.q.Find(t.Context(), cardURL)
		require.ErrorContains(t, err, tc.says, name)
	}
	for _, target := range []string{"http://bob.example/a2a/x", "bob.example", "ftp://bob.example", "https://alice@bob.example/a2a/x"} {
		_, err := b.q.Find(t.Context(), target)
		require.Error(t, err, target)
	}
}

func TestAGrantThatLeadsAwayIsNotTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.pending(t)
	b.set(func() { b.state, b.endpoint = "TASK_STATE_COMPLETED", "https://evil.example/mcp/one" })
	require.ErrorContains(t, b.q.Update(t.Context(), b.store, r), "leads away")
	kept, err := b.store.Find(r.ID)
	require.NoError(t, err)
	require.Nil(t, kept.Grant)
}

func TestPrepareAsksForWhatIsMissingBeforeAnybodySignsIn(t *testing.T) {
	t.Parallel()
	offers := []scope.Offer{{Queue: "a", Verbs: []scope.Verb{"create_for", "answer"}}, {Queue: "b", Verbs: []scope.Verb{"create_for"}}}
	card := &Card{Offers: offers, Methods: []string{"oidc-nonce", "sign-in"}, Issuers: []Issuer{{Issuer: "https://one.example"}, {Issuer: "https://two.example"}}}
	good := Ask{Card: card, Name: "n", Reason: "r", Issuer: Issuer{Issuer: "https://two.example"}, Scope: scope.Asked{Queues: []string{"a", "b"}}}
	got, err := good.Prepare()
	require.NoError(t, err)
	require.Equal(t, []scope.Verb{"create_for"}, got.Scope.Verbs, "what is offered on both queues")
	for says, bend := range map[string]func(*Ask){
		"choose among the queues that are offered: a, b": func(a *Ask) { a.Scope.Queues = nil },
		"outside what this persona offers":               func(a *Ask) { a.Scope.Verbs = []scope.Verb{"cancel_todo"} },
		"trusts:\n  https://one.example":                 func(a *Ask) { a.Issuer = Issuer{} },
		"a reason that a human will read":                func(a *Ask) { a.Reason = " " },
		`does not offer method "magic"`:                  func(a *Ask) { a.Method = "magic" },
	} {
		ask := good
		bend(&ask)
		_, err := ask.Prepare()
		require.ErrorContains(t, err, says)
	}
}

func TestKeysStayInPrivateFiles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("modes are the folder's there")
	}
	b := setup(t)
	r := b.approved(t)
	files, err := filepath.Glob(filepath.Join(b.dir, "requests", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1, "no temporary file stays")
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	folder, err := os.Stat(filepath.Dir(files[0]))
	require.NoError(t, err)
	require.EqualValues(t, 0o700, folder.Mode().Perm())

	for _, name := range []string{r.ID, "requ", r.A2A, r.A2A + "/", r.Card, r.Grant.ID, r.Grant.Endpoint} {
		found, err := b.store.Find(name)
		require.NoError(t, err, name)
		require.Equal(t, r.ID, found.ID, name)
	}
	_, err = b.store.Find("nothing-like-it")
	require.ErrorContains(t, err, "friend list")

	require.NoError(t, os.Chmod(files[0], 0o644))
	_, err = b.store.List()
	require.ErrorContains(t, err, "chmod 600")
	require.NoError(t, b.store.Remove(r))
	all, err := b.store.List()
	require.NoError(t, err)
	require.Empty(t, all)
}
