package devidp

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"time"
)

// grantedCode is what an authorization code stands for.
type grantedCode struct {
	person                             Person
	client, redirect, challenge, nonce string
	authTime, expires                  time.Time
	lifetime, authTimeOffset           time.Duration
}

// issueCode keeps g under a new code and forgets the codes that have expired.
func (p *Provider) issueCode(g grantedCode) string {
	code := rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	for old, g := range p.codes {
		if time.Now().After(g.expires) {
			delete(p.codes, old)
		}
	}
	p.codes[code] = g
	return code
}

// redeem returns what code stands for, once.
func (p *Provider) redeem(code string) (grantedCode, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.codes[code]
	delete(p.codes, code)
	return g, ok && time.Now().Before(g.expires)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	refuse := func(status int, name, text string) {
		writeJSON(w, status, map[string]string{"error": name, "error_description": text})
	}
	if err := r.ParseForm(); err != nil {
		refuse(http.StatusBadRequest, "invalid_request", "the form cannot be read")
		return
	}
	client := r.PostForm.Get("client_id")
	if id, _, ok := r.BasicAuth(); ok && client == "" { // clients that try the header first, with an empty password
		client = id
	}
	if !knownClient(client) {
		refuse(http.StatusUnauthorized, "invalid_client", "unknown client_id")
		return
	}
	if r.PostForm.Get("grant_type") != "authorization_code" {
		refuse(http.StatusBadRequest, "unsupported_grant_type", "grant_type has to be authorization_code")
		return
	}
	g, ok := p.redeem(r.PostForm.Get("code"))
	if !ok || g.client != client || g.redirect != r.PostForm.Get("redirect_uri") {
		refuse(http.StatusBadRequest, "invalid_grant", "the code is unknown, used, expired, or was given for another client or redirect_uri")
		return
	}
	sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	if subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(g.challenge)) != 1 {
		refuse(http.StatusBadRequest, "invalid_grant", "code_verifier does not match code_challenge")
		return
	}
	idToken, err := p.Sign(p.idTokenClaims(g, time.Now()))
	if err != nil {
		refuse(http.StatusInternalServerError, "server_error", "the ID token could not be signed")
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token": rand.Text(), // opens nothing: there is no userinfo endpoint
		"token_type":   "Bearer",
		"expires_in":   300,
		"id_token":     idToken,
	})
}

func (p *Provider) idTokenClaims(g grantedCode, now time.Time) map[string]any {
	claims := map[string]any{
		"iss": p.issuer, "sub": g.person.Subject, "aud": g.client, "azp": g.client,
		"iat": now.Unix(), "exp": now.Add(g.lifetime).Unix(), "auth_time": g.authTime.Add(g.authTimeOffset).Unix(),
		"email": g.person.Email, "email_verified": true, "name": g.person.Name,
	}
	if g.nonce != "" {
		claims["nonce"] = g.nonce
	}
	return claims
}
