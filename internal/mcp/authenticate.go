package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// unauthorizedBody is the whole body of every 401.
const unauthorizedBody = `{"error":"invalid_token"}`

// errToken is every way in which a request holds no good token: what was wrong
// must not show in the answer.
var errToken = refusal.New(refusal.Unauthenticated, "invalid token")

// authenticate resolves the token of a request. Its error is errToken or, when
// nobody could tell because of a fault of ours, what went wrong.
func (h *handler) authenticate(r *http.Request, segment string) (*endpoint.Caller, error) {
	if len(r.Header["Authorization"]) != 1 {
		return nil, errToken
	}
	kind, bearer, ok := strings.Cut(r.Header["Authorization"][0], " ")
	if bearer = strings.TrimSpace(bearer); !ok || bearer == "" {
		return nil, errToken
	}
	id, ok := parseID(segment)
	if !ok {
		return nil, errToken
	}
	c, err := h.Endpoints.Shared(r.Context(), id, bearer)
	if err != nil {
		if refusal.CodeOf(err) == refusal.Unauthenticated {
			return nil, errToken
		}
		return nil, fmt.Errorf("authenticate at endpoint %s: %w", id, err)
	}
	p := endpoint.Presented{Scheme: kind, Bearer: bearer}
	if c.ProofKey != "" {
		p.Method, p.URL, p.Proofs = r.Method, h.endpointURL(id), r.Header.Values("DPoP")
	}
	err = h.Endpoints.Proven(r.Context(), c.ProofKey, p)
	switch {
	case refusal.CodeOf(err) == refusal.Unauthenticated, err == nil && c.Endpoint.ID != id:
		return nil, errToken
	case err != nil:
		return nil, fmt.Errorf("proof at endpoint %s: %w", id, err)
	}
	return c, nil
}

// parseID reads the one spelling of a UUID that this instance writes, in either
// case: with 36 characters no other is taken.
func parseID(s string) (uuid.UUID, bool) {
	if len(s) != 36 {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(s)
	return id, err == nil
}

// challenge is the WWW-Authenticate of an endpoint's 401: the same for every
// cause, computed from the URL alone.
func (h *handler) challenge(segment string) string {
	if s, err := url.PathUnescape(segment); err == nil {
		segment = url.PathEscape(s)
	} else {
		segment = url.PathEscape(segment)
	}
	return `Bearer resource_metadata="` + h.PublicURL + "/.well-known/oauth-protected-resource/mcp/" + segment + `"`
}

// refuse answers a request whose caller is not known: refuseToken, or 503 when
// the fault is ours, so that no client throws its token away over an outage.
func (h *handler) refuse(ctx context.Context, w http.ResponseWriter, segment string, err error) {
	if refusal.CodeOf(err) == refusal.Unauthenticated {
		h.refuseToken(w, segment)
		return
	}
	if ctx.Err() == nil {
		h.Log.ErrorContext(ctx, "mcp: no caller", "error", err)
	}
	w.Header().Set("Retry-After", "1")
	plainError(w, http.StatusServiceUnavailable, "try again")
}

// refuseToken is the answer to everybody without a good token.
func (h *handler) refuseToken(w http.ResponseWriter, segment string) {
	hd := w.Header()
	hd.Set("Content-Type", "application/json")
	hd.Set("Cache-Control", "no-store")
	hd.Set("WWW-Authenticate", h.challenge(segment))
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, unauthorizedBody)
}

// refuseScope answers a call that the endpoint allows and this token does not
// (RFC 6750 section 3.1). want are the scope strings that would allow it.
func (h *handler) refuseScope(w http.ResponseWriter, segment string, want []string) {
	hd := w.Header()
	hd.Set("Content-Type", "application/json")
	hd.Set("Cache-Control", "no-store")
	hd.Set("WWW-Authenticate", h.challenge(segment)+`, error="insufficient_scope", scope="`+strings.Join(want, " ")+`"`)
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `{"error":"insufficient_scope"}`)
}
