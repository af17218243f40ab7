package a2a

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"switchboard/internal/address"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
)

// Extension is the URI of the friend request extension.
const Extension = "urn:switchboard:a2a:friend-request:v1"

// Personas finds personas that are not off.
type Personas interface {
	BySlug(ctx context.Context, slug string) (persona.Persona, error)
	Catalog(ctx context.Context, query, cursor string, limit int) ([]persona.Persona, string, error)
}

// Friends keeps friend requests.
type Friends interface {
	Submit(ctx context.Context, sub friend.Submission) (r friend.Request, repeated bool, err error)
	GetOwn(ctx context.Context, a friend.Asker, id uuid.UUID) (friend.Request, error)
	ListOwn(ctx context.Context, a friend.Asker, f friend.AskerFilter, cursor string, limit int) ([]friend.Request, string, int, error)
	Withdraw(ctx context.Context, a friend.Asker, id uuid.UUID) (friend.Request, error)
	Follow(id uuid.UUID) (<-chan struct{}, func())
	Held(ctx context.Context, a friend.Asker) ([]friend.Grant, error)
}

// Tokens tells whether an access token is still good; *endpoint.Store does.
type Tokens interface {
	AuthenticateRequester(ctx context.Context, slug, bearer string) (endpoint.Requester, error)
}

// CardKeys sign cards.
type CardKeys interface {
	Sign(ctx context.Context, card []byte) (protected, signature string, err error)
	Public(ctx context.Context) ([]jose.JSONWebKey, error)
}

// Deps are what the transport calls.
type Deps struct {
	PublicURL string
	Personas  Personas
	Friends   Friends
	Keys      CardKeys
	Issuers   []*provenance.Issuer
	// SignIn tells whether method sign-in works for this persona; nil: for none.
	SignIn func(persona.Persona) bool
	Dev    bool // loopback is exempt from limits per address
	Log    *slog.Logger
	// Requester resolves the bearer of the persona's A2A resource.
	Requester func(r *http.Request, slug string) (endpoint.Requester, error)
	// Tokens is asked again while a stream is open, whose proof was checked when
	// it began.
	Tokens Tokens
	// ClientAddress is the address that limits count.
	ClientAddress func(*http.Request) netip.Addr
}

// Handler serves A2A for one instance.
type Handler struct {
	Deps
	visits  *address.Limit // of the catalog
	streams streams
}

// New returns the handler of d.
func New(d Deps) *Handler {
	if d.Log == nil {
		d.Log = slog.Default()
	}
	return &Handler{Deps: d, visits: address.NewLimit(catalogPerMinute)}
}

// Card returns the signed A2A 1.0 card of a persona that is not off.
func (h *Handler) Card(ctx context.Context, slug string) (json.RawMessage, error) {
	p, err := h.Personas.BySlug(ctx, slug)
	if err != nil {
		return nil, err
	}
	return h.signed(ctx, h.card(v1, p))
}

// Routes registers the public paths of A2A on mux.
func (h *Handler) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /.well-known/api-catalog", h.catalog)
	mux.HandleFunc("GET /.well-known/jwks.json", h.jwks)
	mux.HandleFunc("GET /a2a/{persona}/.well-known/agent-card.json", h.serveCard(v1))
	mux.HandleFunc("GET /a2a-v03/{persona}/.well-known/agent-card.json", h.serveCard(v03))
	mux.HandleFunc("POST /a2a/{persona}", h.rpc)
	mux.HandleFunc("POST /a2a/{persona}/{$}", h.rpc)
	for _, path := range []string{"/a2a/{persona}", "/a2a/{persona}/{$}"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { // whoever the persona is
			w.Header().Set("Allow", http.MethodPost)
			w.WriteHeader(http.StatusMethodNotAllowed)
		})
	}
}

// unknown answers for a persona that does not exist or is off.
func unknown(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"error":"not_found"}`+"\n")
}

// rpc serves one JSON-RPC request.
func (h *Handler) rpc(w http.ResponseWriter, r *http.Request) {
	p, err := h.Personas.BySlug(r.Context(), r.PathValue("persona"))
	if refusal.CodeOf(err) == refusal.NotFound {
		unknown(w)
		return
	}
	call := &call{Handler: h, r: r, w: w, persona: p}
	if err != nil {
		call.fail(err)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, provenance.MaxBody+1))
	if err != nil {
		call.fail(errParseError)
		return
	}
	call.serve(body)
}

// carriesJSON reports whether the body is declared as JSON, or as nothing.
func carriesJSON(r *http.Request) bool {
	declared := r.Header.Get("Content-Type")
	if declared == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(declared)
	return err == nil && (media == mediaJSON || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// declared reports whether the caller declared the extension, by header (in
// either version's name) or in the message.
func declared(r *http.Request, inMessage []string) bool {
	for _, name := range []string{"A2A-Extensions", "X-A2A-Extensions"} {
		for _, line := range r.Header.Values(name) {
			for uri := range strings.SplitSeq(line, ",") {
				if strings.TrimSpace(uri) == Extension {
					return true
				}
			}
		}
	}
	for _, uri := range inMessage {
		if uri == Extension {
			return true
		}
	}
	return false
}
