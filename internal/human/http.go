package human

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"switchboard/internal/refusal"
)

// CookieName is the session cookie's: named after the instance, because cookies
// ignore ports, and several instances on one development host must not sign
// one another's people out.
func CookieName(publicURL string) string {
	sum := sha256.Sum256([]byte(publicURL))
	name := "sb_session_" + hex.EncodeToString(sum[:4])
	if strings.HasPrefix(publicURL, "https:") {
		name = "__Host-" + name
	}
	return name
}

// SessionFromRequest resolves the session of the request's cookie; refusal.Unauthenticated otherwise.
func (s *Store) SessionFromRequest(r *http.Request) (Session, error) {
	return s.Authenticate(r.Context(), s.TokenFromRequest(r))
}

// TokenFromRequest returns the session cookie's value, "" when there is none.
func (s *Store) TokenFromRequest(r *http.Request) string {
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return ""
	}
	return c.Value
}

// SetCookie gives the browser a session's token; "" takes it away.
func (s *Store) SetCookie(w http.ResponseWriter, token string) {
	c := &http.Cookie{
		Name: s.cookie, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(s.config.PublicURL, "https:"), MaxAge: int(SessionLife.Seconds()),
	}
	if token == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// Refuse writes a refusal with the given HTTP status, in the transport's own form.
type Refuse func(w http.ResponseWriter, r *http.Request, status int, err *refusal.Error)

// SameOrigin keeps other sites from acting with a browser's cookies, and other
// names from reaching the instance (DNS rebinding): a foreign Host is 421, a
// foreign Origin or Sec-Fetch-Site 403. A cross-site link that a person follows
// is let through, because SameSite=Lax and safe methods make it harmless.
func SameOrigin(publicURL string, refuse ...Refuse) func(http.Handler) http.Handler {
	own, err := url.Parse(publicURL)
	if err != nil {
		own = &url.URL{} // nothing matches; the server has refused such a setting before
	}
	answer := func(w http.ResponseWriter, _ *http.Request, status int, err *refusal.Error) {
		http.Error(w, err.Message, status)
	}
	if len(refuse) > 0 {
		answer = refuse[0]
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !strings.EqualFold(r.Host, own.Host):
				answer(w, r, http.StatusMisdirectedRequest, refusal.New(refusal.InvalidArgument, "this server does not answer for that host"))
			case foreign(r, own):
				answer(w, r, http.StatusForbidden, refusal.New(refusal.Forbidden, "the request comes from another site"))
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
}

// Foreign reports whether a browser says that another site than the instance at
// publicURL made this request. A link that a person follows is not meant.
func Foreign(r *http.Request, publicURL string) bool {
	own, err := url.Parse(publicURL)
	return err != nil || foreign(r, own)
}

func foreign(r *http.Request, own *url.URL) bool {
	for _, origin := range r.Header.Values("Origin") {
		if origin != own.Scheme+"://"+own.Host {
			return true
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	return !safe || r.Header.Get("Sec-Fetch-Mode") != "navigate"
}
