package web

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"path"
	"strings"

	"switchboard/internal/human"
)

//go:embed templates
var templateFiles embed.FS

// pages are the templates, each with the layout and the shared parts.
type pages map[string]*template.Template

func loadPages(functions template.FuncMap) pages {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout/*.html"))
	out := pages{}
	entries, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err) // embedded
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		t := template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, path.Join("templates", e.Name())))
		out[strings.TrimSuffix(e.Name(), ".html")] = t
	}
	return out
}

// layout is what every page has around it.
type layout struct {
	Title   string
	Nav     string // the entry of the navigation that is current
	Signed  bool
	Session human.Session
	CSRF    string
	Waiting int
	Flash   string
	Page    any
}

// render answers with a whole page.
func (v *visit) render(status int, name, title, nav string, page any) {
	l := layout{
		Title: title, Nav: nav, Signed: v.signed, Session: v.session, CSRF: v.session.CSRF,
		Flash: flashes[v.r.URL.Query().Get("done")], Page: page,
	}
	if v.signed && v.session.Human.Resident {
		l.Waiting = v.live.waiting(v.r.Context(), v.owner())
	}
	v.execute(status, name, "layout", l)
}

// part answers with one named part of a page, for a script of ours.
func (v *visit) part(name, part string, page any) {
	v.execute(http.StatusOK, name, part, layout{Signed: v.signed, Session: v.session, CSRF: v.session.CSRF, Page: page})
}

func (v *visit) execute(status int, name, part string, data any) {
	var b bytes.Buffer
	if err := v.pages[name].ExecuteTemplate(&b, part, data); err != nil {
		v.Log.ErrorContext(v.r.Context(), "page not rendered", "page", name, "error", err)
		http.Error(v.w, "something went wrong on our side", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if v.w.Header().Get("Cache-Control") == "" {
		v.w.Header().Set("Cache-Control", "no-store")
	}
	v.w.WriteHeader(status)
	_, _ = b.WriteTo(v.w) // a reader that went away needs no answer
}

// flashes are the messages that an address may call for; it never carries text itself.
var flashes = map[string]string{
	"approved":        "Approved. The endpoint is open, and their agent can fetch its token now.",
	"declined":        "Declined. Nothing was granted.",
	"blocked":         "Declined and blocked. This person cannot ask you again until you lift the block in Settings.",
	"narrowed":        "Narrowed. It holds from now on, for calls under way too.",
	"paused":          "Paused. Nothing gets through until you resume.",
	"resumed":         "Resumed, exactly as it was.",
	"revoked":         "Revoked. The endpoint is gone for good.",
	"left":            "You left. The endpoint is closed.",
	"withdrawn":       "Withdrawn.",
	"paused-all":      "Everything is paused. Resume friends one by one.",
	"token-ended":     "That token no longer works.",
	"saved":           "Saved.",
	"created":         "Created.",
	"deleted":         "Deleted.",
	"again":           "This form had been sent already; nothing was done twice.",
	"retried":         "Back in the queue, with a fresh budget of attempts.",
	"canceled":        "Canceled.",
	"cancel-asked":    "Asked to stop. The worker learns of it at its next heartbeat.",
	"released":        "Released. Another worker can claim it now.",
	"answered":        "Answered. The todo goes on.",
	"session-out":     "That session is signed out.",
	"unblocked":       "The block is lifted.",
	"sent":            "A test notification is on its way.",
	"signed-out":      "You are signed out.",
	"erased":          "Your account is erased, and you are signed out.",
	"confirmed-erase": "Thank you. Nothing is erased yet: the last step is below.",
	"confirmed":       "Welcome back. Look once more, then approve.",
	"vended-again":    "This form had been sent already, and the credential was shown then. Rotate it if you did not see it.",
}
