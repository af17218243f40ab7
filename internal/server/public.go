package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/specs"
)

// guard is around everything on the public listener: a fault is a plain 500, a
// foreign Host is 421 (DNS rebinding, RFC 9110 §15.5.20).
func guard(c Config, log *slog.Logger, next http.Handler) http.Handler {
	own, _ := url.Parse(c.PublicURL) // Check has parsed it before
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if fault := recover(); fault != nil {
				if err, ok := fault.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(fault)
				}
				log.ErrorContext(r.Context(), "fault", "method", r.Method, "path", r.URL.Path, "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		head := w.Header()
		head["X-Content-Type-Options"] = nosniff
		head["Referrer-Policy"] = sameOrigin
		if own.Scheme == "https" {
			head["Strict-Transport-Security"] = oneYear
		}
		if !strings.EqualFold(r.Host, own.Host) {
			http.Error(w, "This server answers for "+own.Host+" only; open "+c.PublicURL+".", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Values of the headers that every answer has. All answers share them: a handler
// may set a header anew or add to it, and neither writes into what is there.
var (
	nosniff    = []string{"nosniff"}
	sameOrigin = []string{"same-origin"}
	oneYear    = []string{"max-age=31536000"}
)

// direct leads calls of tools past the multiplexer, which splits and cleans each
// path several times. Whatever it could answer otherwise, an unclean or escaped path
// or another method, is left to it.
func direct(tools, mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := strings.CutPrefix(r.URL.Path, "/mcp/")
		if ok && r.Method == http.MethodPost && r.URL.RawPath == "" && len(id) == 36 && strings.IndexByte(id, '/') < 0 && strings.IndexByte(id, '.') < 0 {
			tools.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// clientAddress is the address that limits count: the connection's, or what a
// trusted proxy says of it.
func clientAddress(trusted []netip.Prefix) func(*http.Request) netip.Addr {
	believed := func(a netip.Addr) bool {
		for _, p := range trusted {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	return func(r *http.Request) netip.Addr {
		ap, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return netip.Addr{}
		}
		addr := ap.Addr().Unmap()
		// Nearest hop last: each is believed only as long as the one before is trusted.
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for n := len(hops) - 1; n >= 0 && believed(addr); n-- {
			next, err := netip.ParseAddr(strings.TrimSpace(hops[n]))
			if err != nil {
				break
			}
			addr = next.Unmap()
		}
		return addr
	}
}

// requesterOf resolves the bearer of a persona's A2A resource, with its DPoP
// proof when the token is bound to a key (RFC 9449).
func requesterOf(endpoints *endpoint.Store, publicURL string) func(*http.Request, string) (endpoint.Requester, error) {
	none := func(cause error) error {
		return refusal.New(refusal.Unauthenticated, "an access token for this persona's A2A URL is needed").Because(cause)
	}
	return func(r *http.Request, slug string) (endpoint.Requester, error) {
		sent, proofs := r.Header.Values("Authorization"), r.Header.Values("DPoP")
		if len(sent) != 1 {
			return endpoint.Requester{}, none(nil)
		}
		scheme, token, _ := strings.Cut(sent[0], " ")
		bound := strings.EqualFold(scheme, "DPoP")
		if token == "" || (!bound && !strings.EqualFold(scheme, "Bearer")) || bound && len(proofs) != 1 {
			return endpoint.Requester{}, none(nil)
		}
		who, err := endpoints.AuthenticateRequester(r.Context(), slug, token)
		if err != nil {
			if refusal.CodeOf(err) == refusal.Unauthenticated {
				err = none(err)
			}
			return endpoint.Requester{}, err
		}
		if bound != (who.ProofKey != "") {
			return endpoint.Requester{}, none(nil)
		}
		if bound {
			jkt, err := endpoints.VerifyProof(r.Context(), r.Method, publicURL+r.URL.Path, proofs[0], token)
			if err != nil || jkt != who.ProofKey {
				return endpoint.Requester{}, none(err)
			}
		}
		return who, nil
	}
}

// published serves the schema that cards point to.
func published(mux *http.ServeMux) {
	mux.HandleFunc("GET /specs/friend-request/request.schema.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/schema+json")
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(specs.FriendRequestSchema)
	})
}
