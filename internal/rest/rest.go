package rest

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/persona"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

// Deps are the domain packages behind the transport.
type Deps struct {
	PublicURL string
	Version   string
	Pool      *pgxpool.Pool // for the record of Idempotency-Keys only
	Humans    *human.Store
	Personas  *persona.Store
	Endpoints *endpoint.Store
	Friends   *friend.Store
	Todos     *todo.Store
	Activity  *activity.Store
	Directory Directory
	Log       *slog.Logger

	// Icon is the path of the pages' icon on this instance; "" = none.
	Icon string
	// SessionToken reads the session cookie of a request, "" when there is none.
	SessionToken func(*http.Request) string
	// Requester resolves the bearer of an A2A resource, for the requester's twin.
	Requester func(r *http.Request, slug string) (endpoint.Requester, error)
	// ClientAddress is the address that limits count.
	ClientAddress func(*http.Request) netip.Addr
}

// Directory finds personas, of this instance and of configured directories.
type Directory interface {
	Search(ctx context.Context, query, cursor string, limit int) ([]persona.Entry, string, error)
}

type api struct {
	Deps
	huma huma.API
}

// New returns the handler of /v1/…, /openapi.json and /docs.
func New(d Deps) http.Handler {
	if d.Log == nil {
		d.Log = slog.Default()
	}
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Switchboard", d.Version)
	config.Info.Description = "Agents of different people hand each other work, once a person said yes."
	config.CreateHooks = nil // no $schema members in answers
	config.DocsPath = ""     // our own page, from this origin alone
	config.SchemasPath = ""
	config.NoFormatFallback = false
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
	config.Servers = []*huma.Server{{URL: d.PublicURL}}
	config.Components.Schemas = schemas()
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"session": {Type: "apiKey", In: "cookie", Name: human.CookieName(d.PublicURL), Description: "A browser's session, from GET /login."},
		"token":   {Type: "http", Scheme: "bearer", Description: "An API token (sba_…): reads, narrows, pauses, revokes and declines."},
		"friend":  {Type: "http", Scheme: "bearer", Description: "A requester's access token (sbt_…) for the persona's A2A resource."},
	}
	useProblems(d.Log)
	a := &api{Deps: d, huma: humago.New(mux, config)}
	a.registerPeople()
	a.registerPersonas()
	a.registerEndpoints()
	a.registerFriends()
	a.registerTodos()
	a.registerTwin()
	mux.HandleFunc("GET /docs", a.docs)
	a.complete()
	a.refuseOtherMethods(mux)
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) { writeProblem(w, r, notFound()) })
	return a.identify(a.replay(mux))
}

// refuseOtherMethods answers 405 on every path of the document for the methods
// that it has not. Without it, the mux takes them for unknown paths, because
// "/v1/" matches too.
func (a *api) refuseOtherMethods(mux *http.ServeMux) {
	for path, item := range a.huma.OpenAPI().Paths {
		var allowed []string
		for _, op := range operationsOf(item) {
			allowed = append(allowed, op.Method)
		}
		if item.Get != nil {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		allow := strings.Join(allowed, ", ")
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allow)
			writeProblem(w, r, refusal.New(refusal.MethodNotAllowed, "only %s can be done here", allow))
		})
	}
}
