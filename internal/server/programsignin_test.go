package server_test

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"switchboard/internal/human"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
)

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]*)"`)

// programSignIn is a program's errand to its human's browser.
type programSignIn struct {
	verifier string
	ask      url.Values
}

const programRedirect = "http://127.0.0.1:1/callback"

func newProgramSignIn(change ...string) programSignIn {
	p := programSignIn{verifier: oauth2.GenerateVerifier()}
	p.ask = url.Values{
		"name": {"laptop"}, "redirect_uri": {programRedirect}, "state": {rand.Text()},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(p.verifier)}, "code_challenge_method": {"S256"},
	}
	for n := 0; n+1 < len(change); n += 2 {
		p.ask.Set(change[n], change[n+1])
	}
	return p
}

// allow presses the button of the page; the answer is the redirect's.
func (p programSignIn) allow(t *testing.T, browser *servertest.Person) url.Values {
	t.Helper()
	shown := browser.Do(http.MethodGet, "/program-sign-in?"+p.ask.Encode(), nil)
	require.Equal(t, http.StatusOK, shown.Status, shown.Body)
	csrf := csrfField.FindStringSubmatch(shown.Body)
	require.NotNil(t, csrf, shown.Body)
	p.ask.Set("csrf", csrf[1])
	r := browser.Stay().Do(http.MethodPost, "/program-sign-in", p.ask.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, http.StatusSeeOther, r.Status, r.Body)
	back, err := url.Parse(r.Header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, programRedirect, "http://"+back.Host+back.Path)
	require.Equal(t, p.ask.Get("state"), back.Query().Get("state"))
	return back.Query()
}

func redeem(i *servertest.Instance, t *testing.T, code, verifier, redirect string) servertest.Reply {
	return i.Stranger(t, "").Do(http.MethodPost, "/v1/program-sign-in", map[string]any{"code": code, "code_verifier": verifier, "redirect_uri": redirect})
}

// A code is good once, for the verifier and the redirect that it was made for.
func TestProgramSignIn_ACodeIsGoodOnce(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	p := newProgramSignIn()
	answer := p.allow(t, bob)
	require.Equal(t, i.URL, answer.Get("iss"))
	code := answer.Get("code")
	var tokens struct{ Items []any }
	bob.Get("/v1/api-tokens", &tokens)
	require.Empty(t, tokens.Items, "a code that nobody redeems leaves nothing")
	for what, r := range map[string]servertest.Reply{
		"another verifier": redeem(i, t, code, oauth2.GenerateVerifier(), programRedirect),
		"another redirect": redeem(i, t, code, p.verifier, "http://127.0.0.1:2/callback"),
		"another code":     redeem(i, t, code[:len(code)-4]+"AAAA", p.verifier, programRedirect),
		"no code":          redeem(i, t, "!", p.verifier, programRedirect),
	} {
		require.Equal(t, http.StatusUnprocessableEntity, r.Status, what)
	}
	r := redeem(i, t, code, p.verifier, programRedirect)
	require.Equal(t, http.StatusCreated, r.Status, r.Body)
	var made struct{ Token, Name string }
	r.Into(t, &made)
	require.Equal(t, "laptop", made.Name)
	var me struct{ Name string }
	i.Stranger(t, made.Token).Get("/v1/me", &me)
	require.Equal(t, "Bob", me.Name)
	require.Equal(t, http.StatusUnprocessableEntity, redeem(i, t, code, p.verifier, programRedirect).Status, "a second time")
	bob.Get("/v1/api-tokens", &tokens)
	require.Len(t, tokens.Items, 1)
}

// It takes a resident's own click, in a session signed in lately, and leads
// nowhere but to a program on the same computer.
func TestProgramSignIn_TakesTheHumansClick(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	for what, change := range map[string][]string{
		"elsewhere":      {"redirect_uri", "https://evil.example/callback"},
		"elsewhere http": {"redirect_uri", "http://evil.example:80/callback"},
		"a name":         {"redirect_uri", "http://localhost:1/callback"},
		"no port":        {"redirect_uri", "http://127.0.0.1/callback"},
		"a script":       {"redirect_uri", "javascript:alert(1)"},
		"no challenge":   {"code_challenge", ""},
		"plain":          {"code_challenge_method", "plain"},
		"no name":        {"name", " "},
	} {
		r := bob.Do(http.MethodGet, "/program-sign-in?"+newProgramSignIn(change...).ask.Encode(), nil)
		require.Equal(t, http.StatusUnprocessableEntity, r.Status, what)
	}
	const form = "application/x-www-form-urlencoded"
	p := newProgramSignIn()
	require.Equal(t, http.StatusForbidden, bob.Do(http.MethodPost, "/program-sign-in", p.ask.Encode(), "Content-Type", form).Status, "without the page's token")
	require.Equal(t, http.StatusForbidden, bob.Do(http.MethodPost, "/program-sign-in", p.ask.Encode(), "Content-Type", form, "Origin", "https://evil.example").Status)
	stranger := i.Stranger(t, "")
	require.Equal(t, http.StatusSeeOther, stranger.Do(http.MethodGet, "/program-sign-in?"+p.ask.Encode(), nil).Status)

	shown := bob.Do(http.MethodGet, "/program-sign-in?"+p.ask.Encode(), nil)
	p.ask.Set("csrf", csrfField.FindStringSubmatch(shown.Body)[1])
	_, err := pgtest.Open(t, i.Database).Exec(t.Context(), `UPDATE session SET auth_time = auth_time - interval '12 hours 1 minute'`)
	require.NoError(t, err)
	for _, r := range []servertest.Reply{
		bob.Do(http.MethodGet, "/program-sign-in?"+p.ask.Encode(), nil), bob.Do(http.MethodPost, "/program-sign-in", p.ask.Encode(), "Content-Type", form),
	} {
		require.Contains(t, r.Body, "Confirm it is you")
		require.NotContains(t, r.Body, "Sign it in")
	}
}

// A guest has no API tokens.
func TestProgramSignIn_IsForResidents(t *testing.T) {
	t.Parallel()
	residents, err := human.NewResidents([]string{"bob@example.com"}, true)
	require.NoError(t, err)
	i := servertest.Start(t, func(c *server.Config) { c.Residents = residents })
	i.Agent(t, "alice").Ask(t, servertest.V1, i.SignIn(t, "bob").Publish("reviewer"))
	alice := i.SignIn(t, "alice")
	require.Equal(t, http.StatusNotFound, alice.Do(http.MethodGet, "/program-sign-in?"+newProgramSignIn().ask.Encode(), nil).Status)
}
