package mcp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// MaxBody is the largest request body, in bytes (specs/protocol.md section 5).
const MaxBody = 1 << 20

// handler serves every endpoint of one instance.
type handler struct {
	Deps
	scheme  string // of PublicURL
	origin  string // scheme://host[:port] of PublicURL, as a browser writes it
	host    string // host[:port] of PublicURL, as a client writes it
	rest    *relay
	modern  []byte // members that close every result of the modern era
	streams streams
	pace    pace
	parking parking
}

// New returns the handler of POST /mcp/{endpoint}. It reads the endpoint from
// the path itself and may be mounted at "/mcp/" as well as at
// "/mcp/{endpoint}".
func New(d Deps) (http.Handler, error) {
	u, err := url.Parse(d.PublicURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("mcp: PublicURL must be an http or https URL")
	}
	if d.Endpoints == nil || d.Todos == nil {
		return nil, errors.New("mcp: Endpoints and Todos are needed")
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.Version == "" {
		d.Version = "dev"
	}
	h := &handler{Deps: d, scheme: u.Scheme, host: canonicalHost(u.Scheme, u.Host), pace: usual}
	h.origin = u.Scheme + "://" + h.host
	h.modern = modernMembers(d.Version)
	h.rest = newRelay(h)
	return h, nil
}

// canonicalHost is host without the port that its scheme implies, lower case.
func canonicalHost(scheme, host string) string {
	host = strings.ToLower(host)
	switch scheme {
	case "https":
		return strings.TrimSuffix(host, ":443")
	default:
		return strings.TrimSuffix(host, ":80")
	}
}

// ServeHTTP checks in this order: host, origin, method, token, body. The method
// comes before the token because a client that gets 401 for its GET starts a
// sign-in that nothing here needs.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segment, ok := strings.CutPrefix(r.URL.EscapedPath(), "/mcp/")
	if !ok || segment == "" || strings.Contains(segment, "/") {
		http.NotFound(w, r)
		return
	}
	if r.Host != h.host && canonicalHost(h.scheme, r.Host) != h.host {
		plainError(w, http.StatusMisdirectedRequest, "this server does not answer for that host")
		return
	}
	if o := r.Header.Get("Origin"); o != "" && !h.sameOrigin(o) {
		plainError(w, http.StatusForbidden, "requests from pages of another origin are refused")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		plainError(w, http.StatusMethodNotAllowed, "only POST; there are no sessions and no standing streams here")
		return
	}
	caller, err := h.authenticate(r, segment)
	if err != nil {
		h.refuse(r.Context(), w, segment, err)
		return
	}
	x := &exchange{h: h, w: w, r: r, ctx: r.Context(), segment: segment, caller: caller}
	if body, ok := x.read(); ok {
		x.serve(body)
	}
}

func (h *handler) sameOrigin(origin string) bool {
	scheme, host, ok := strings.Cut(origin, "://")
	return ok && scheme+"://"+canonicalHost(scheme, host) == h.origin
}

// plainError answers what is wrong below JSON-RPC.
func plainError(w http.ResponseWriter, status int, message string) {
	hd := w.Header()
	hd.Set("Content-Type", "text/plain; charset=utf-8")
	hd.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, message+"\n")
}

// buffers hold bodies only while they are decoded; a waiting call holds none.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keepBuffer is the largest buffer worth keeping for the next request.
const keepBuffer = 64 << 10

// giveBack returns nil, for the variable that held b.
func giveBack(b *bytes.Buffer) *bytes.Buffer {
	if b != nil && b.Cap() <= keepBuffer {
		b.Reset()
		buffers.Put(b)
	}
	return nil
}

// read takes in the body, at most MaxBody bytes of it; false when it has
// answered instead.
func (x *exchange) read() (*bytes.Buffer, bool) {
	tooLarge := func() {
		if x.confirm() {
			writeRPCError(x.w, nil, http.StatusRequestEntityTooLarge, codeInvalidRequest, "the body is larger than 1 MiB")
		}
	}
	if ct, _, _ := strings.Cut(x.r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(ct), "application/json") {
		if x.confirm() {
			plainError(x.w, http.StatusUnsupportedMediaType, "the body must be application/json")
		}
		return nil, false
	}
	if x.r.ContentLength > MaxBody {
		tooLarge()
		return nil, false
	}
	body := x.r.Body
	if x.r.ContentLength < 0 { // net/http gives no more than was announced
		body = http.MaxBytesReader(x.w, body, MaxBody)
	}
	b := buffers.Get().(*bytes.Buffer)
	b.Reset()
	if _, err := b.ReadFrom(body); err != nil {
		giveBack(b)
		var long *http.MaxBytesError
		if errors.As(err, &long) {
			tooLarge()
		} else if x.confirm() {
			writeRPCError(x.w, nil, http.StatusBadRequest, codeParse, "the body could not be read")
		}
		return nil, false
	}
	return b, true
}

// endpointURL is the URL of the endpoint as its owner gave it out.
func (h *handler) endpointURL(id uuid.UUID) string { return h.PublicURL + "/mcp/" + id.String() }
