package requester

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"switchboard/internal/refusal"
)

// FriendsPage is where the human, signed in, leaves a grant: a key may use a
// grant, but only a human ends one.
func (r *Request) FriendsPage() string { return r.Aud + "/friends" }

// LeaveHeadless ends the grant of r as person, whom a development issuer on
// loopback signs in at the instance without a page.
func (q *Requester) LeaveHeadless(ctx context.Context, r *Request, person string) error {
	if r.Grant == nil {
		return errors.New("there is no grant to leave")
	}
	instance, err := url.Parse(r.Aud)
	if err != nil || !isLoopback(instance.Hostname()) {
		return errors.New("headless sign-in is for a development instance on loopback")
	}
	session, err := q.browser("")
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	login := r.Aud + "/login?" + url.Values{"prompt": {"none"}, "login_hint": {person}, "issuer": {r.Issuer}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, login, nil)
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	if _, err := session.do(req, maxAnswer); err != nil {
		return fmt.Errorf("sign in at %s: %w", r.Aud, err)
	}
	req, err = http.NewRequestWithContext(ctx, http.MethodPost, r.Aud+"/v1/grants/"+url.PathEscape(r.Grant.ID)+"/leave", nil)
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	// What a browser on the instance's own page would say.
	req.Header.Set("Origin", instance.Scheme+"://"+instance.Host)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	a, err := session.do(req, maxCard)
	if err != nil {
		return err
	}
	if a.status >= 300 {
		return refusal.New(codeOf(a.status, nil), "%s does not let %s leave: HTTP %d", r.Aud, person, a.status)
	}
	return nil
}
