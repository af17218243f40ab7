//go:build e2e

package e2e

import (
	"errors"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
	"switchboard/internal/requester"
)

// TestPeople_SignInForAFriendRequest is method sign-in as a requester without an
// instance meets it. Chromium holds a form's redirects to the page's policy:
// the click has to get through to the issuer and, for who is signed in there
// already, right through to the program on loopback.
func TestPeople_SignInForAFriendRequest(t *testing.T) {
	w := newWorld(t)
	bob := w.browser(t, "sign-in-bob", deskW, deskH, true)
	bob.signIn("bob", "/inbox")
	publish(t, bob, w)

	send := func(person string, press func(b *browser, link string)) (*requester.Request, error) {
		a := w.agent(t, person)
		card, err := a.q.Find(t.Context(), w.url+"/a2a/reviewer")
		require.NoError(t, err)
		ask, err := requester.Ask{
			Card: card, Name: "release-bot", Reason: "Hand you pull requests that touch billing for review.\nThey are small.", Method: provenance.MethodSignIn,
		}.Prepare()
		require.NoError(t, err)
		links, done := make(chan string, 1), make(chan error, 1)
		var r *requester.Request
		go func() {
			r, err = a.q.Send(t.Context(), a.store, ask, requester.SignIn{Show: func(link string) error { links <- link; return nil }})
			done <- err
		}()
		select {
		case link := <-links:
			b := w.browser(t, "sign-in", phoneW, phoneH, false) // a phone's width, and no script
			b.do(chromedp.Navigate(link), chromedp.WaitReady(chromedp.CSS("main")))
			press(b, link)
		case err := <-done:
			return r, errors.Join(errors.New("no link"), err)
		}
		err = <-done
		return r, err
	}

	r, err := send("alice", func(b *browser, _ string) {
		b.sees("release-bot asks in your name", "Hand you pull requests", "60 todos an hour", "Agent’s key")
		b.shot("page")
		b.button("Sign in with Example People and continue")
		b.do(chromedp.Click(chromedp.CSS(`button[value="alice"]`)), chromedp.WaitReady(chromedp.Search(`//*[contains(., "window can be closed")]`)))
	})
	require.NoError(t, err)
	require.Equal(t, requester.Pending, r.State)
	bob.open("/inbox")
	bob.sees("alice@example.com")

	r, err = send("carol", func(b *browser, link string) {
		b.do(chromedp.Navigate(link+"&prompt=none&login_hint=carol"), chromedp.WaitReady(chromedp.CSS("main")))
		b.button("Sign in with Example People and continue")
		b.do(chromedp.WaitReady(chromedp.Search(`//*[contains(., "window can be closed")]`)))
		require.True(t, strings.HasPrefix(b.where(), "http://127.0.0.1:"), b.where())
	})
	require.NoError(t, err)
	require.Equal(t, requester.Pending, r.State)

	_, err = send("alice", func(b *browser, _ string) {
		b.button("Do not ask")
		b.do(chromedp.WaitReady(chromedp.Search(`//*[contains(., "window can be closed")]`)))
	})
	require.ErrorIs(t, err, requester.ErrSignIn)
	require.ErrorContains(t, err, "the human said no")
}
