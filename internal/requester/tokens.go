package requester

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
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
	bind     bool // ask for tokens that are worth nothing without the key (DPoP, RFC 9449)

	mu     sync.Mutex
	access string
	bound  bool // the kept one is
	until  time.Time
}

// authorize puts a token on a request, and with a bound one the proof that we
// hold its key. It returns the token, which a caller whom it failed passes as
// stale the next time to have it replaced.
func (t *tokens) authorize(ctx context.Context, req *http.Request, stale string) (string, error) {
	access, bound, err := t.get(ctx, stale)
	if err != nil {
		return "", err
	}
	if !bound {
		req.Header.Set("Authorization", "Bearer "+access)
		return access, nil
	}
	sum := sha256.Sum256([]byte(access))
	proof, err := t.q.proof(t.key, req.Method, req.URL.String(), map[string]any{"ath": base64.RawURLEncoding.EncodeToString(sum[:])})
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "DPoP "+access)
	req.Header.Set("DPoP", proof)
	return access, nil
}

// proof is a DPoP proof for one request (RFC 9449 section 4.2).
func (q *Requester) proof(key *provenance.Key, method, target string, more map[string]any) (string, error) {
	claims := map[string]any{"htm": method, "htu": target, "jti": rand.Text(), "iat": q.now().Unix()}
	maps.Copy(claims, more)
	proof, err := key.SignJWT(map[string]any{"typ": "dpop+jwt", "jwk": key.Public()}, claims)
	if err != nil {
		return "", fmt.Errorf("sign proof: %w", err)
	}
	return proof, nil
}

// get returns a token and whether it is bound; stale, when it is the kept one, is replaced.
func (t *tokens) get(ctx context.Context, stale string) (string, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.access != "" && t.access != stale && t.q.now().Before(t.until) {
		return t.access, t.bound, nil
	}
	t.access = ""
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {t.resource}}
	got, err := t.q.token(ctx, t.key, t.server, form, t.bind)
	if err != nil {
		return "", false, err
	}
	t.bound = strings.EqualFold(got.TokenType, "DPoP")
	lifetime := time.Duration(got.ExpiresIn) * time.Second
	t.access, t.until = got.AccessToken, t.q.now().Add(lifetime-min(time.Minute, lifetime/5))
	return t.access, t.bound, nil
}

type tokenAnswer struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"` // seconds
	Error       string `json:"error"`
}

// token asks the token endpoint, with the key's assertion added to form.
func (q *Requester) token(ctx context.Context, key *provenance.Key, server string, form url.Values, bind bool) (tokenAnswer, error) {
	var got tokenAnswer
	assertion, err := provenance.ClientAssertion(key, server, q.now())
	if err != nil {
		return got, fmt.Errorf("sign client assertion: %w", err)
	}
	form.Set("client_assertion_type", assertionType)
	form.Set("client_assertion", assertion)
	header := http.Header{}
	if bind {
		proof, err := q.proof(key, http.MethodPost, server+"/oauth/token", nil)
		if err != nil {
			return got, err
		}
		header.Set("DPoP", proof)
	}
	a, err := q.postForm(ctx, server+"/oauth/token", form, header)
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
