package requester

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
)

const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// tokens fetches access tokens for one resource by an agent's key
// (specs/protocol.md section 4.1) and keeps one until shortly before its end.
type tokens struct {
	q        *Requester
	key      *provenance.Key
	server   string // the pinned authorization server: the instance
	resource string

	mu     sync.Mutex
	access string
	until  time.Time
}

// get returns a token; stale, when it is the kept one, is replaced.
func (t *tokens) get(ctx context.Context, stale string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.access != "" && t.access != stale && t.q.now().Before(t.until) {
		return t.access, nil
	}
	t.access = ""
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {t.resource}}
	got, err := t.q.token(ctx, t.key, t.server, form)
	if err != nil {
		return "", err
	}
	lifetime := time.Duration(got.ExpiresIn) * time.Second
	t.access, t.until = got.AccessToken, t.q.now().Add(lifetime-min(time.Minute, lifetime/5))
	return t.access, nil
}

type tokenAnswer struct {
	AccessToken string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"` // seconds
	Error       string `json:"error"`
}

// token asks the token endpoint, with the key's assertion added to form.
func (q *Requester) token(ctx context.Context, key *provenance.Key, server string, form url.Values) (tokenAnswer, error) {
	var got tokenAnswer
	assertion, err := provenance.ClientAssertion(key, server, q.now())
	if err != nil {
		return got, fmt.Errorf("sign client assertion: %w", err)
	}
	form.Set("client_assertion_type", assertionType)
	form.Set("client_assertion", assertion)
	a, err := q.postForm(ctx, server+"/oauth/token", form, nil)
	if err != nil {
		return got, away(ctx, err)
	}
	_ = json.Unmarshal(a.body, &got) // an answer of another form has no access_token
	switch {
	case a.status == http.StatusOK && got.AccessToken != "":
		return got, nil
	case got.Error == "invalid_target":
		return got, refusal.New(refusal.Forbidden, "%s gives this key no token for %s: not granted, or revoked, paused or expired", server, form.Get("resource"))
	case got.Error == "invalid_client":
		return got, refusal.New(refusal.Unauthenticated, "%s does not know this key", server)
	case got.Error == "invalid_grant":
		return got, refusal.New(refusal.Forbidden, "%s refuses the code: used, expired, or not for this key", server)
	}
	return got, refusal.New(refusal.Unavailable, "%s/oauth/token answers HTTP %d %.60q", server, a.status, got.Error)
}
