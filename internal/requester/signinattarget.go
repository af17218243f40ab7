package requester

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
)

// signInFor is how long the target keeps a request whose human has not signed in.
const signInFor = 10 * time.Minute

// signInAtTarget completes method sign-in: the human signs in at the target, in
// a browser, and the code that comes back is redeemed with the key. A request
// that nobody signed is taken back: it is of no use to anybody.
func (q *Requester) signInAtTarget(ctx context.Context, store *Store, r *Request, key *provenance.Key, t task, how SignIn) error {
	if how.AtTarget != nil {
		how.AtTarget(r)
	}
	err := q.redeemSignIn(ctx, r, key, t, how)
	if err == nil {
		return q.Update(ctx, store, r)
	}
	// The answer to a redemption may have been lost: the target knows.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if known := q.Update(ctx, store, r); known == nil && r.State != SigningIn {
		return nil
	}
	if gone := q.Withdraw(ctx, store, r); gone == nil || refusal.CodeOf(gone) == refusal.NotFound {
		_ = store.Remove(r)
	}
	return err
}

func (q *Requester) redeemSignIn(ctx context.Context, r *Request, key *provenance.Key, t task, how SignIn) error {
	u, err := signInPage(t, r.Aud)
	if err != nil {
		return err
	}
	if how.Show == nil && how.Headless == "" {
		return fmt.Errorf("%w: method sign-in needs a browser", ErrSignIn)
	}
	waiting, cancel := context.WithTimeout(ctx, signInFor)
	defer cancel()
	verifier := oauth2.GenerateVerifier()
	query := u.Query()
	query.Set("code_challenge", oauth2.S256ChallengeFromVerifier(verifier))
	query.Set("code_challenge_method", "S256")
	if how.Again {
		query.Set("prompt", "login")
	}
	code, redirect, err := q.authorizationCode(waiting, Issuer{Issuer: r.Aud}, how, q.pressHeadless, func(redirect, state string) string {
		query.Set("redirect_uri", redirect)
		query.Set("state", state)
		u.RawQuery = query.Encode()
		return u.String()
	})
	if err != nil {
		if waiting.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: nobody signed in within %d minutes", ErrSignIn, int(signInFor.Minutes()))
		}
		return err
	}
	if _, err := q.token(ctx, key, r.Aud, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier}, "redirect_uri": {redirect}, "resource": {r.A2A},
	}, false); err != nil {
		return fmt.Errorf("redeem sign-in: %w", err)
	}
	return nil
}

// signInPage finds the link in a task. It must lead to the instance that was asked.
func signInPage(t task, aud string) (*url.URL, error) {
	page := ""
	if t.Status.Message != nil {
		for _, p := range t.Status.Message.Parts {
			var ask struct{ Type, URL string }
			if json.Unmarshal(p.Data, &ask) == nil && ask.Type == "sign-in" {
				page = ask.URL
			}
		}
	}
	u, err := url.Parse(page)
	if err != nil || !within(page, aud) {
		return nil, fmt.Errorf("%s wants a sign-in, but not at itself; nothing is opened", aud)
	}
	return u, nil
}

// pressHeadless does at the target's sign-in page what a human with a browser
// would do: look, press the button, and be signed in as person by a development
// issuer.
func (q *Requester) pressHeadless(ctx context.Context, aud, target, redirect, person string) (url.Values, error) {
	u, err := url.Parse(target)
	if err != nil || !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("headless sign-in is for a development instance on loopback, not for %s", aud)
	}
	query := u.Query()
	query.Set("prompt", "none")
	query.Set("login_hint", person)
	u.RawQuery = query.Encode()
	browser, err := q.browser(redirect)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	// What a browser on the page itself would say.
	req.Header.Set("Origin", u.Scheme+"://"+u.Host)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	a, err := browser.do(req, maxAnswer)
	if err != nil {
		return nil, err
	}
	back, ok := strings.CutPrefix(a.header.Get("Location"), redirect+"?")
	if !ok {
		return nil, fmt.Errorf("%w: %s answers HTTP %d and no redirect to us", ErrSignIn, aud, a.status)
	}
	answer, err := url.ParseQuery(back)
	if err != nil {
		return nil, fmt.Errorf("%w: %s answers with a redirect that cannot be read", ErrSignIn, aud)
	}
	return answer, nil
}

// browser keeps cookies and follows redirects on loopback, up to one that leads to end.
func (q *Requester) browser(end string) (*Requester, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, errors.New("no place for cookies")
	}
	return &Requester{now: q.now, http: &http.Client{Transport: q.http.Transport, Timeout: q.http.Timeout, Jar: jar,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if !isLoopback(req.URL.Hostname()) || end != "" && strings.HasPrefix(req.URL.String(), end) || len(via) > 10 {
				return http.ErrUseLastResponse
			}
			return nil
		}}}, nil
}
