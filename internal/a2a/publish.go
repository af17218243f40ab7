package a2a

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"switchboard/internal/refusal"
)

// cardAge is how long a card, the catalog and the keys may be cached, in seconds.
const cardAge = 60

// catalogPerMinute is how often an address may fetch the catalog.
const catalogPerMinute = 120

// serveCard serves the cards of a version.
func (h *Handler) serveCard(v version) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := h.Personas.BySlug(r.Context(), r.PathValue("persona"))
		if refusal.CodeOf(err) == refusal.NotFound {
			unknown(w)
			return
		}
		var body []byte
		if err == nil {
			body, err = h.signed(r.Context(), h.card(v, p))
		}
		if err != nil {
			h.broken(w, r, err)
			return
		}
		cached(w, r, mediaJSON, body)
	}
}

// cached answers with an entity tag, or 304.
func cached(w http.ResponseWriter, r *http.Request, media string, body []byte) {
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	head := w.Header()
	head.Set("Content-Type", media)
	head.Set("ETag", tag)
	head.Set("Cache-Control", "public, max-age="+strconv.Itoa(cardAge))
	for match := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if m := strings.TrimPrefix(strings.TrimSpace(match), "W/"); m == tag || m == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(body)
}

func (h *Handler) broken(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "a2a", "path", r.URL.Path, "error", err)
	w.Header().Set("Content-Type", mediaJSON)
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write([]byte(`{"error":"internal"}` + "\n"))
}

// maxCatalog bounds the catalog's length.
const maxCatalog = 10_000

// catalog lists the cards of listed personas (RFC 9727), and nothing else.
func (h *Handler) catalog(w http.ResponseWriter, r *http.Request) {
	at := h.ClientAddress(r)
	if wait := h.visits.Take(at); wait > 0 && (!h.Dev || !at.Unmap().IsLoopback()) {
		w.Header().Set("Content-Type", mediaJSON)
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":"rate_limited"}`+"\n")
		return
	}
	w.Header().Set("Link", "<"+h.PublicURL+`/.well-known/api-catalog>; rel="api-catalog"`) // RFC 9727 §2
	type link struct {
		Href string `json:"href"`
		Type string `json:"type"`
	}
	items := []link{}
	for cursor, more := "", true; more && len(items) < maxCatalog; {
		ps, next, err := h.Personas.Catalog(r.Context(), "", cursor, 100)
		if err != nil {
			h.broken(w, r, err)
			return
		}
		for _, p := range ps {
			items = append(items, link{Href: h.url(p.Slug) + "/.well-known/agent-card.json", Type: mediaJSON})
		}
		cursor, more = next, next != ""
	}
	body, err := json.Marshal(map[string]any{"linkset": []any{map[string]any{"anchor": h.PublicURL + "/.well-known/api-catalog", "item": items}}})
	if err != nil {
		h.broken(w, r, err)
		return
	}
	cached(w, r, `application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"`, body)
}

func (h *Handler) jwks(w http.ResponseWriter, r *http.Request) {
	keys, err := h.Keys.Public(r.Context())
	var body []byte
	if err == nil {
		body, err = json.Marshal(jose.JSONWebKeySet{Keys: keys})
	}
	if err != nil {
		h.broken(w, r, err)
		return
	}
	cached(w, r, "application/jwk-set+json", body)
}
