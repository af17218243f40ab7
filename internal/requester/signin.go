package requester

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"switchboard/internal/quote"
)

// SignIn is how the human signs in: in a browser, or headless at a development issuer.
type SignIn struct {
	// Show opens the URL for the human, or prints it. It must not wait for them.
	Show func(url string) error
	// Headless, when set, is the person whom a development issuer on loopback signs in without a page.
	Headless string
	// AtTarget is told when the human is to sign in at the instance that is asked, before Show: the page there names the request's key.
	AtTarget func(r *Request)
	// Again asks the issuer to sign the human in anew, for an entry that wants a recent sign-in.
	Again bool
}

// ErrSignIn marks a failure of the sign-in itself: the issuer refuses our
// client, or the human said no.
var ErrSignIn = errors.New("sign-in failed")

// ErrSaidNo is the ErrSignIn of a human who said no, or of a sign-in that was
// refused as such: the same in another way would end the same.
var ErrSaidNo = fmt.Errorf("%w: access_denied", ErrSignIn)

// idToken gets an ID token that carries nonce from the issuer, by authorization
// code with PKCE as a native client on loopback (RFC 8252).
func (q *Requester) idToken(ctx context.Context, issuer Issuer, nonce string, how SignIn) (string, error) {
	ctx = oidc.ClientContext(ctx, q.http)
	if _, err := checkURL(issuer.Issuer); err != nil {
		return "", err
	}
	provider, err := oidc.NewProvider(ctx, issuer.Issuer)
	if err != nil {
		return "", fmt.Errorf("issuer %s: %w", issuer.Issuer, err)
	}
	config := oauth2.Config{ClientID: issuer.ClientID, ClientSecret: issuer.ClientSecret, Endpoint: provider.Endpoint(), Scopes: []string{issuer.Scope}}
	config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	if issuer.Scope == "" {
		config.Scopes = []string{oidc.ScopeOpenID, "email"}
	}
	verifier := oauth2.GenerateVerifier()
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier), oidc.Nonce(nonce)}
	if how.Again && how.Headless == "" {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"))
	}
	code, redirect, err := q.authorizationCode(ctx, issuer, how, q.authorizeHeadless, func(redirect, state string) string {
		config.RedirectURL = redirect
		return config.AuthCodeURL(state, options...)
	})
	if err != nil {
		return "", err
	}
	config.RedirectURL = redirect
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) { // its text has the issuer's whole answer
			return "", fmt.Errorf("%w: %s answers %.60q to the code", ErrSignIn, issuer.Issuer, refused.ErrorCode)
		}
		return "", fmt.Errorf("issuer %s: %w", issuer.Issuer, err)
	}
	raw, _ := token.Extra("id_token").(string)
	// Times are the target's to judge, by its own clock.
	checked, err := provider.Verifier(&oidc.Config{ClientID: issuer.ClientID, SkipExpiryCheck: true}).Verify(ctx, raw)
	if err != nil {
		return "", fmt.Errorf("issuer %s: its ID token does not verify: %w", issuer.Issuer, err)
	}
	if subtle.ConstantTimeCompare([]byte(checked.Nonce), []byte(nonce)) != 1 {
		return "", fmt.Errorf("%w: %s returned another nonce", ErrSignIn, issuer.Issuer)
	}
	return raw, nil
}

// authorizationCode has the human authorize at the URL that authorize makes of
// redirect and state, and returns the code and the redirect that it came to.
func (q *Requester) authorizationCode(ctx context.Context, issuer Issuer, how SignIn, unattended unattended, authorize func(redirect, state string) string) (code, redirect string, err error) {
	state := rand.Text()
	path := callbackPath(issuer.RedirectURIs)
	if how.Headless != "" {
		// Nothing has to listen: the answer is read from the first redirect.
		redirect = "http://127.0.0.1:53682" + path
		back, err := unattended(ctx, issuer.Issuer, authorize(redirect, state), redirect, how.Headless)
		if err != nil {
			return "", "", err
		}
		code, err = readCallback(back, state, issuer.Issuer)
		return code, redirect, err
	}
	l, err := listen(ctx, path)
	if err != nil {
		return "", "", err
	}
	defer l.close()
	page := authorize(l.redirect, state)
	if _, err := checkURL(page); err != nil {
		// An issuer that a stranger's card names says where its page is, and the
		// system opens whatever it is given: files, shares, other programs.
		return "", "", fmt.Errorf("%w: the sign-in page is not one for a browser: %w", ErrSignIn, err)
	}
	if err := how.Show(page); err != nil {
		return "", "", fmt.Errorf("show the sign-in page: %w", err)
	}
	code, err = l.wait(ctx, state, issuer.Issuer)
	return code, l.redirect, err
}

// unattended gets the answer to an authorization request at target without a human.
type unattended func(ctx context.Context, issuer, target, redirect, person string) (url.Values, error)

func (q *Requester) authorizeHeadless(ctx context.Context, issuer, target, redirect, person string) (url.Values, error) {
	u, err := url.Parse(target)
	if err != nil || !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("headless sign-in is for a development issuer on loopback, not for %s", issuer)
	}
	query := u.Query()
	query.Set("prompt", "none")
	query.Set("login_hint", person)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	a, err := q.do(req, maxCard)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(a.header.Get("Location"))
	if err != nil || a.status < 300 || a.status > 399 || to.Scheme+"://"+to.Host+to.Path != redirect {
		return nil, fmt.Errorf("%w: %s answers HTTP %d and no redirect to us", ErrSignIn, issuer, a.status)
	}
	return to.Query(), nil
}

// callbackPath is the path of the first registered loopback redirect.
func callbackPath(registered []string) string {
	for _, r := range registered {
		if u, err := url.Parse(r); err == nil && isLoopback(u.Hostname()) && u.Path != "" {
			return u.Path
		}
	}
	return "/callback"
}

// readCallback checks an authorization answer and returns its code.
func readCallback(back url.Values, state, issuer string) (string, error) {
	switch {
	case subtle.ConstantTimeCompare([]byte(back.Get("state")), []byte(state)) != 1:
		return "", fmt.Errorf("%w: the answer is not to our question (state differs)", ErrSignIn)
	case issuer != "" && back.Get("iss") != "" && back.Get("iss") != issuer: // RFC 9207
		return "", fmt.Errorf("%w: the answer is by another issuer", ErrSignIn)
	case back.Get("error") == "access_denied":
		return "", fmt.Errorf("%w: %s", ErrSaidNo, quote.Visible(back.Get("error_description"), 300))
	case back.Get("error") != "":
		return "", fmt.Errorf("%w: %s", ErrSignIn, quote.Visible(strings.TrimSpace(back.Get("error")+" "+back.Get("error_description")), 300))
	case back.Get("code") == "":
		return "", fmt.Errorf("%w: the answer has no code", ErrSignIn)
	}
	return back.Get("code"), nil
}

// loopback waits for the browser to come back.
type loopback struct {
	redirect string
	server   *http.Server
	answers  chan url.Values
	ended    chan struct{}
}

func listen(ctx context.Context, path string) (*loopback, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	l := &loopback{redirect: "http://" + listener.Addr().String() + path, answers: make(chan url.Values), ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		select {
		case l.answers <- r.URL.Query():
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if r.URL.Query().Has("error") {
			fmt.Fprintln(w, "Not signed in. The terminal says why; this window can be closed.")
			return
		}
		fmt.Fprintln(w, "Thank you. Go back to the terminal; this window can be closed.")
	})
	l.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(l.ended)
		_ = l.server.Serve(listener) // always ErrServerClosed
	}()
	return l, nil
}

// wait returns the first answer to our own question; others, which any page in
// the browser could send here, are passed over.
func (l *loopback) wait(ctx context.Context, state, issuer string) (string, error) {
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for the browser: %w", ctx.Err())
		case back := <-l.answers:
			if back.Get("state") != state {
				continue
			}
			return readCallback(back, state, issuer)
		}
	}
}

func (l *loopback) close() {
	// The page that thanks is still on its way.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if l.server.Shutdown(ctx) != nil {
		_ = l.server.Close()
	}
	<-l.ended
}
