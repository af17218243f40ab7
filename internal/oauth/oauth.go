package oauth

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"switchboard/internal/endpoint"
	"switchboard/internal/human"
	"switchboard/internal/provenance"
)

// SignIn is a code of a friend request's method sign-in, brought by the holder
// of the request's key. Its members are those of friend.Redemption.
type SignIn struct {
	Code, Verifier, RedirectURI string
	Persona                     string // slug, from resource
	Key                         string // thumbprint of the client assertion's key
}

// Deps are what the transport calls.
type Deps struct {
	PublicURL string // no trailing slash
	Endpoints *endpoint.Store
	// Session returns who is signed in with the request's cookie.
	Session func(r *http.Request) (human.Session, bool)
	// RedeemSignIn completes a friend request of method sign-in, by
	// friend.Store.RedeemSignIn; nil: the method is not on offer.
	RedeemSignIn func(ctx context.Context, s SignIn) error
	Dev          bool // client documents may be on loopback, over http
	// Client fetches client documents; nil: provenance.GuardedClient(Dev).
	Client *http.Client
	Log    *slog.Logger // nil: slog.Default
	// Stylesheet is the path of the pages' style on this instance; "" = none.
	Stylesheet string
}

// Server is the transport.
type Server struct {
	Deps
	origin  string
	clients *clients
}

// New returns the transport. Routes mounts it.
func New(d Deps) *Server {
	d.PublicURL = strings.TrimRight(d.PublicURL, "/")
	if d.Client == nil {
		d.Client = provenance.GuardedClient(d.Dev)
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	s := &Server{Deps: d, clients: newClients(d.Client, d.Dev)}
	if u, err := url.Parse(d.PublicURL); err == nil {
		s.origin = u.Scheme + "://" + u.Host
	}
	return s
}

// Paths of the endpoints.
const (
	metadataPath  = "/.well-known/oauth-authorization-server"
	resourcesPath = "/.well-known/oauth-protected-resource"
	tokenPath     = "/oauth/token"
	revokePath    = "/oauth/revoke"
	authorizePath = "/oauth/authorize"
)

// Routes mounts the endpoints of specs/protocol.md section 1.
func (s *Server) Routes(mux *http.ServeMux) {
	for path, h := range map[string]http.HandlerFunc{
		metadataPath:                      s.metadata,
		resourcesPath + "/mcp/{endpoint}": s.resourceMetadata("/mcp/", "endpoint"),
		resourcesPath + "/a2a/{persona}":  s.resourceMetadata("/a2a/", "persona"),
	} {
		mux.HandleFunc("GET "+path, h)
		mux.HandleFunc("OPTIONS "+path, preflight)
	}
	for path, h := range map[string]http.HandlerFunc{tokenPath: s.token, revokePath: s.revoke} {
		mux.HandleFunc("POST "+path, h)
		mux.HandleFunc("OPTIONS "+path, preflight)
	}
	mux.HandleFunc("GET "+authorizePath, s.showAuthorize)
	mux.HandleFunc("POST "+authorizePath, s.decide)
}

// open lets scripts of any site read the answer. Nothing here looks at cookies
// but the authorization endpoint, which is not opened.
func open(w http.ResponseWriter) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
}

func preflight(w http.ResponseWriter, _ *http.Request) {
	open(w)
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "Content-Type, DPoP, MCP-Protocol-Version")
	h.Set("Access-Control-Max-Age", "86400")
	w.WriteHeader(http.StatusNoContent)
}

// answer writes v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // v is ours and has no way not to be JSON
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that went away needs no answer
}
