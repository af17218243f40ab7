package web

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"switchboard/internal/address"
	"switchboard/internal/human"
	"switchboard/internal/refusal"
)

// maxForm bounds a form before it is parsed; the longest field is a todo's body of 64 KiB.
const maxForm = 256 << 10

// site is the pages of one instance.
type site struct {
	Deps
	pages  pages
	assets assets
	mux    *http.ServeMux
	live   *live

	mailOffs *address.Limit
}

// New returns the pages, to be mounted at "/". What it does not know is 404.
func New(d Deps) http.Handler {
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.PollEvery == 0 {
		d.PollEvery = 2 * time.Second
	}
	if d.ClientAddress == nil {
		d.ClientAddress = func(r *http.Request) netip.Addr {
			at, _ := netip.ParseAddrPort(r.RemoteAddr)
			return at.Addr()
		}
	}
	s := &site{Deps: d, mux: http.NewServeMux(), assets: loadAssets(), mailOffs: address.NewLimit(mailOffMost)}
	s.live = newLive(s)
	s.pages = loadPages(s.functions())
	s.routes()
	refuse := func(w http.ResponseWriter, r *http.Request, status int, err *refusal.Error) {
		(&visit{site: s, w: w, r: r}).problem(status, err)
	}
	return s.headers(human.SameOrigin(d.PublicURL, refuse)(s.mux))
}

func (s *site) routes() {
	s.mux.HandleFunc("GET /assets/{file...}", s.asset)
	s.mux.HandleFunc("GET /favicon.ico", s.icon)
	s.page("GET /{$}", anyone, (*visit).home)
	s.page("GET /login", anyone, (*visit).login)
	s.page("GET /login/callback", anyone, (*visit).issuerAnswer)
	s.page("POST /logout", anyone, (*visit).logout)
	s.page("GET /notifications/off", anyone, (*visit).mailOffPage)
	s.page("POST /notifications/off", anyone, (*visit).mailOff)
	s.friendSignInRoutes()
	s.programSignInRoutes()

	s.page("GET /inbox", resident, (*visit).inbox)
	s.page("GET /events", resident, (*visit).events)
	s.page("GET /inbox/requests/{id}", resident, (*visit).request)
	s.page("POST /inbox/requests/{id}/preview", resident, (*visit).requestPreview)
	s.page("GET /inbox/requests/{id}/preview", resident, (*visit).requestPreviewed)
	s.page("POST /inbox/requests/{id}/approve", resident, (*visit).requestApprove)
	s.page("POST /inbox/requests/{id}/decline", resident, (*visit).requestDecline)

	s.page("GET /friends", signedIn, (*visit).friends)
	s.page("POST /friends/pause-all", resident, (*visit).friendsPauseAll)
	s.page("GET /friends/{grant}", signedIn, (*visit).grant)
	s.page("POST /friends/{grant}/{act}", signedIn, (*visit).grantAct)
	s.page("POST /requests/{id}/withdraw", signedIn, (*visit).requestWithdraw)

	s.page("GET /personas", resident, (*visit).personas)
	s.page("POST /agents", resident, (*visit).agentCreate)
	s.page("POST /agents/{id}", resident, (*visit).agentChange)
	s.page("GET /personas/new", resident, (*visit).personaNew)
	s.page("POST /personas/new", resident, (*visit).personaCreate)
	s.page("GET /personas/{id}", resident, (*visit).persona)
	s.page("POST /personas/{id}", resident, (*visit).personaChange)
	s.page("POST /personas/{id}/delete", resident, (*visit).personaDelete)

	s.page("GET /endpoints", resident, (*visit).endpoints)
	s.page("GET /endpoints/new", resident, (*visit).endpointNew)
	s.page("POST /endpoints/new", resident, (*visit).endpointVend)
	s.page("GET /endpoints/{id}", resident, (*visit).endpoint)
	s.page("POST /endpoints/{id}/{act}", resident, (*visit).endpointAct)

	s.page("GET /queues", resident, (*visit).queues)
	s.page("POST /queues", resident, (*visit).queueCreate)
	s.page("GET /queues/{name}", resident, (*visit).queue)
	s.page("POST /queues/{name}", resident, (*visit).queueChange)
	s.page("POST /queues/{name}/todos", resident, (*visit).todoCreate)
	s.page("GET /todos/{id}", resident, (*visit).todo)
	s.page("POST /todos/{id}/{act}", resident, (*visit).todoAct)

	s.page("GET /activity", resident, (*visit).activity)
	s.page("GET /settings", resident, (*visit).settings)
	s.page("GET /settings/erase", signedIn, (*visit).erase)
	s.page("POST /settings/erase", signedIn, (*visit).eraseAccount)
	s.page("GET /settings/export", resident, (*visit).export)
	s.page("POST /settings/{act}", resident, (*visit).settingsAct)
	s.page("/", anyone, func(*visit) error { return errNoPage })
}

var errNoPage = refusal.New(refusal.NotFound, "There is no such page.")

// access is who may see a page.
type access int

const (
	anyone access = iota
	signedIn
	resident
)

// visit is one request by one person.
type visit struct {
	*site
	w       http.ResponseWriter
	r       *http.Request
	session human.Session
	signed  bool
}

// page registers a handler behind the checks that all pages share.
func (s *site) page(pattern string, need access, handle func(*visit) error) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		v := &visit{site: s, w: w, r: r}
		err := v.enter(need)
		if err == nil {
			err = v.legible()
		}
		if err == nil {
			err = handle(v)
		}
		if err != nil && !errors.Is(err, errAnswered) {
			v.fail(err)
		}
	})
}

// errAnswered ends a visit that has been answered already.
var errAnswered = errors.New("answered")

func (v *visit) enter(need access) error {
	session, err := v.Humans.SessionFromRequest(v.r)
	switch {
	case err == nil:
		v.session, v.signed = session, true
	case refusal.CodeOf(err) != refusal.Unauthenticated:
		return err
	}
	if v.r.Method == http.MethodPost {
		v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
		if err := v.r.ParseForm(); err != nil {
			return refusal.New(refusal.PayloadTooLarge, "That is more than a form of this page can hold.").Because(err)
		}
	}
	if need == anyone {
		return nil
	}
	if !v.signed {
		if v.r.Method == http.MethodPost || v.fragment() {
			return refusal.New(refusal.Unauthenticated, "You were signed out. Sign in and try again.")
		}
		return v.redirect("/login?return_to=" + url.QueryEscape(v.r.URL.RequestURI()))
	}
	if v.r.Method == http.MethodPost && subtle.ConstantTimeCompare([]byte(v.r.PostForm.Get("csrf")), []byte(v.session.CSRF)) != 1 {
		return refusal.New(refusal.Forbidden, "This form belongs to a session that has ended. Load the page again.")
	}
	if need == resident && !v.session.Human.Resident {
		return errNoPage
	}
	return nil
}

// legible refuses an address with what the database could not even compare: text
// with a NUL or that is no UTF-8. A path with it leads nowhere. What is wrong in a
// form is said beside its field.
func (v *visit) legible() error {
	if !storable(v.r.URL.Path) {
		return errNoPage
	}
	for name, values := range v.r.URL.Query() {
		if slices.ContainsFunc(append(values, name), func(text string) bool { return !storable(text) }) {
			return refusal.New(refusal.InvalidArgument, "This address has characters that are no text.")
		}
	}
	return nil
}

func storable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// fragment reports whether a script of ours asks for a part of a page.
func (v *visit) fragment() bool { return v.r.Header.Get("HX-Request") == "true" }

func (v *visit) redirect(to string) error {
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return errAnswered
}

// id reads a UUID of the path; what is none is no page.
func (v *visit) id(name string) (uuid.UUID, error) {
	id, err := uuid.Parse(v.r.PathValue(name))
	if err != nil || len(v.r.PathValue(name)) != 36 {
		return uuid.Nil, errNoPage
	}
	return id, nil
}

func (v *visit) owner() uuid.UUID { return v.session.Human.ID }

// fail answers with the page of an error.
func (v *visit) fail(err error) {
	if code := refusal.CodeOf(err); v.r.Context().Err() != nil && (code == refusal.Internal || code == refusal.Unavailable) {
		// The browser went away, and what it asked for ended with it.
		v.Log.DebugContext(context.WithoutCancel(v.r.Context()), "page left", "method", v.r.Method, "path", v.r.URL.Path, "error", err)
		return
	}
	e := refusal.From(err)
	if e.Code == refusal.Internal || e.Cause != nil {
		level := slog.LevelInfo
		if e.Code == refusal.Internal {
			level = slog.LevelError
		}
		v.Log.Log(v.r.Context(), level, "page refused", "method", v.r.Method, "path", v.r.URL.Path, "code", e.Code, "error", err)
	}
	v.problem(e.Code.HTTP(), e)
}

func (v *visit) problem(status int, e *refusal.Error) {
	page := problemPage{Status: status, Message: sentence(e.Message), Code: string(e.Code)}
	switch e.Code {
	case refusal.NotFound:
		page.Title = "Nothing here"
	case refusal.Forbidden:
		page.Title = "Not possible"
	case refusal.Unauthenticated:
		page.Title = "Please sign in"
		page.SignIn = true
	case refusal.Internal:
		page.Title = "Something went wrong on our side"
		page.Message = "It is not your fault, and it has been noted. Try again in a moment."
	case refusal.Conflict, refusal.PreconditionFailed:
		page.Title = "It has changed meanwhile"
	default:
		page.Title = "That did not work"
	}
	v.w.Header().Set("Cache-Control", "no-store")
	v.render(status, "problem", page.Title, "", page)
}

type problemPage struct {
	Status               int
	Title, Message, Code string
	SignIn               bool
}

// headers sets what holds for every answer.
func (s *site) headers(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	secure := strings.HasPrefix(s.PublicURL, "https:")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// Not no-referrer: browsers would then send "Origin: null" with our own forms.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		if secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}
