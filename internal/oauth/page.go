package oauth

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"switchboard/internal/endpoint"
	"switchboard/internal/scope"
)

//go:embed pages.html
var pagesHTML string

var pages = template.Must(template.New("").Parse(pagesHTML))

// consent is what the consent page shows.
type consent struct {
	Stylesheet string
	Client     string // what the program calls itself, "" when it says nothing
	ClientHost string // where its document was fetched from, the only part that is proven
	ClientID   string
	Person     string
	Issuer     string
	To         string // where the answer goes
	Local      bool   // that is this computer
	Persona    string
	Resource   string
	Home       bool
	May        []string
	Expires    time.Time // zero when it does not
	Hidden     []field
}

type field struct{ Name, Value string }

func (s *Server) consentPage(w http.ResponseWriter, q *request, t endpoint.Target) {
	c := consent{
		Stylesheet: s.Stylesheet, Client: q.client.name, ClientID: q.client.id, ClientHost: hostOf(q.client.id),
		Person: personOf(q), Issuer: q.session.Human.Issuer,
		To: q.redirect.Host, Local: q.redirect.Scheme == "http", Persona: t.Persona, Resource: t.Resource, May: may(t),
	}
	if c.To == "" || (q.redirect.Scheme != "http" && q.redirect.Scheme != "https") {
		c.To, c.Local = q.redirect.Scheme+":", true
	}
	if t.Endpoint != nil {
		c.Home = t.Endpoint.Kind == endpoint.Home
		c.Expires = t.Endpoint.ExpiresAt.UTC()
	}
	for _, name := range parameters {
		if v := q.form[name]; v != "" {
			c.Hidden = append(c.Hidden, field{name, v})
		}
	}
	c.Hidden = append(c.Hidden, field{"csrf", q.session.CSRF})
	s.page(w, http.StatusOK, "consent", formTarget(q.redirect), c)
}

func (s *Server) refusePage(w http.ResponseWriter, status int, why string) {
	s.page(w, status, "refused", "", struct{ Stylesheet, Why string }{s.Stylesheet, why})
}

// page writes a page that runs nothing, loads nothing from elsewhere and cannot
// be framed. Browsers hold a form's redirects to form-action too, so the
// client's own redirect stands there.
func (s *Server) page(w http.ResponseWriter, status int, name, formTo string, data any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		s.Log.Error("page not rendered", "page", name, "error", err)
		http.Error(w, "something went wrong on our side", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", strings.TrimSpace("default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self' "+formTo))
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	// With no-referrer a browser would send the form with "Origin: null".
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w) // a reader that went away needs no answer
}

func personOf(q *request) string {
	h := q.session.Human
	for _, name := range []string{h.Name, h.Email} {
		if name != "" {
			return name
		}
	}
	return h.Subject
}

func hostOf(id string) string {
	rest := id[strings.Index(id, "://")+3:]
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// may says in words what the client could do.
func may(t endpoint.Target) []string {
	e := t.Endpoint
	switch {
	case e == nil:
		return []string{"see the friend requests that you sent to " + t.Persona, "withdraw those that are not decided"}
	case e.Kind == endpoint.Home:
		tools := e.Tools
		if tools == nil {
			tools = endpoint.HomeTools()
		}
		return []string{
			"work as your agent on " + strings.Join(e.Scope.Queues, ", "),
			"with the tools " + strings.Join(tools, ", "),
		}
	}
	var lines []string
	for _, v := range e.Scope.Verbs {
		var queues []string
		for _, q := range e.Scope.Queues {
			if t.Scope == nil || slices.Contains(t.Scope, string(v)+":"+q) {
				queues = append(queues, q)
			}
		}
		if len(queues) > 0 {
			lines = append(lines, sentence(v, strings.Join(queues, ", "), e.Scope.Limits))
		}
	}
	return lines
}

func sentence(v scope.Verb, queues string, l scope.Limits) string {
	switch v {
	case scope.CreateFor:
		return fmt.Sprintf("add up to %d todos an hour to %s, %d open at once", l.PerHour, queues, l.MaxOpen)
	case scope.TodoStatus:
		return "follow todos in " + queues + " that were added as you"
	case scope.ListCreated:
		return "list todos in " + queues + " that were added as you"
	case scope.Answer:
		return "answer questions about them in " + queues
	case scope.CancelTodo:
		return "cancel them in " + queues
	}
	return string(v) + " in " + queues
}
