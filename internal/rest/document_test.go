package rest_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

// contract are the routes of specs/protocol.md section 6.
var contract = []string{
	"GET /v1/me", "PATCH /v1/me", "POST /v1/agents", "GET /v1/agents", "GET /v1/agents/{id}", "PATCH /v1/agents/{id}", "DELETE /v1/agents/{id}",
	"POST /v1/queues", "GET /v1/queues", "PATCH /v1/queues/{name}",
	"POST /v1/personas", "GET /v1/personas", "GET /v1/personas/{id}", "PATCH /v1/personas/{id}", "DELETE /v1/personas/{id}",
	"POST /v1/endpoints", "GET /v1/endpoints", "POST /v1/endpoints/{id}/narrow", "POST /v1/endpoints/{id}/rotate", "POST /v1/endpoints/{id}/pause",
	"POST /v1/endpoints/{id}/resume", "POST /v1/endpoints/{id}/revoke", "GET /v1/inbox",
	"GET /v1/friend-requests", "GET /v1/friend-requests/{id}", "POST /v1/friend-requests/{id}/approve", "POST /v1/friend-requests/{id}/decline", "POST /v1/friend-requests/{id}/withdraw",
	"GET /v1/grants", "GET /v1/grants/{id}", "POST /v1/grants/{id}/narrow", "POST /v1/grants/{id}/pause", "POST /v1/grants/{id}/resume", "POST /v1/grants/{id}/revoke", "POST /v1/grants/{id}/leave",
	"GET /v1/todos", "GET /v1/todos/{id}", "POST /v1/todos", "POST /v1/todos/{id}/retry", "POST /v1/todos/{id}/cancel", "POST /v1/todos/{id}/release", "POST /v1/todos/{id}/answer",
	"GET /v1/directory", "GET /v1/activity", "GET /v1/blocks", "DELETE /v1/blocks/{id}", "POST /v1/api-tokens", "GET /v1/api-tokens", "DELETE /v1/api-tokens/{id}",
	"POST /v1/a2a/{persona}/friend-requests", "GET /v1/a2a/{persona}/friend-requests", "GET /v1/a2a/{persona}/friend-requests/{id}", "POST /v1/a2a/{persona}/friend-requests/{id}/cancel",
}

type parameter struct {
	Name, In string
	Required bool
}

type operation struct {
	OperationID string `json:"operationId"`
	Parameters  []parameter
	RequestBody struct {
		Content map[string]struct{ Example json.RawMessage }
	}
	Responses map[string]struct {
		Description *string
		Content     map[string]struct{ Schema, Example json.RawMessage }
	}
	Security []map[string][]string
}

type document struct {
	OpenAPI    string `json:"openapi"`
	Info       struct{ Title, Version string }
	Paths      map[string]map[string]operation
	Components struct {
		Schemas         map[string]json.RawMessage
		SecuritySchemes map[string]struct{ Type string }
	}
}

var inPath = regexp.MustCompile(`\{([a-z_]+)\}`)

// TestTheDocumentIsValidAndTrue: OpenAPI 3.1, each schema good JSON Schema, each
// reference leads somewhere, every route of the contract is in it, and what the
// server answers is what it says.
func TestTheDocumentIsValidAndTrue(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	r := i.Stranger(t, "").Do(http.MethodGet, "/openapi.json", nil)
	require.Equal(t, http.StatusOK, r.Status)
	var doc document
	r.Into(t, &doc)
	require.Regexp(t, `^3\.1\.\d+$`, doc.OpenAPI)
	require.NotEmpty(t, doc.Info.Title)
	require.NotEmpty(t, doc.Info.Version)

	// The compiler checks every schema against its meta-schema and resolves its references.
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(r.Body))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, compiler.AddResource("openapi.json", whole))
	require.NotEmpty(t, doc.Components.Schemas)
	for name := range doc.Components.Schemas {
		_, err := compiler.Compile("openapi.json#/components/schemas/" + name)
		require.NoError(t, err, name)
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"([^"]*)"`).FindAllStringSubmatch(strings.ReplaceAll(r.Body, `": "`, `":"`), -1) {
		name, ok := strings.CutPrefix(ref[1], "#/components/schemas/")
		require.True(t, ok, ref[1])
		require.Contains(t, doc.Components.Schemas, name)
	}

	has, ids := map[string]bool{}, map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			has[strings.ToUpper(method)+" "+path] = true
			require.NotEmpty(t, op.OperationID, path)
			require.False(t, ids[op.OperationID], op.OperationID)
			ids[op.OperationID] = true
			require.NotEmpty(t, op.Responses, op.OperationID)
			for status, answer := range op.Responses {
				require.NotNil(t, answer.Description, "%s %s", op.OperationID, status)
			}
			declared := map[string]bool{}
			for _, p := range op.Parameters {
				require.False(t, declared[p.In+p.Name], "%s: %s twice", op.OperationID, p.Name)
				declared[p.In+p.Name] = true
				require.True(t, p.In != "path" || p.Required, op.OperationID)
			}
			for _, m := range inPath.FindAllStringSubmatch(path, -1) {
				require.True(t, declared["path"+m[1]], "%s: %s", op.OperationID, m[1])
			}
			for _, alternatives := range op.Security {
				for scheme := range alternatives {
					require.Contains(t, doc.Components.SecuritySchemes, scheme)
				}
			}
		}
	}
	for _, route := range contract {
		require.True(t, has[route], route)
	}

	// Answers as documented.
	bob, alice := i.SignIn(t, "bob"), i.SignIn(t, "alice")
	home := bob.Publish("reviewer")
	task := i.Agent(t, "alice").Ask(t, servertest.V1, home)
	i.Agent(t, "carol").Ask(t, servertest.V1, home)
	var grant, own struct{ ID string }
	bob.Post("/v1/friend-requests/"+task.ID+"/approve", map[string]any{}, &grant)
	bob.Post("/v1/todos", map[string]any{"queue": home.Queue, "title": "a", "payload": map[string]any{"pr": 7}}, &own)
	bob.Post("/v1/api-tokens", map[string]any{"name": "a"}, nil)
	for _, who := range []*servertest.Person{bob, alice} {
		for route, at := range map[string]string{
			"/v1/me": "", "/v1/agents": "", "/v1/agents/{id}": home.AgentID, "/v1/queues": "", "/v1/personas": "", "/v1/personas/{id}": home.PersonaID,
			"/v1/endpoints": "", "/v1/inbox": "", "/v1/friend-requests": "?direction=in", "/v1/friend-requests/{id}": task.ID, "/v1/grants": "?direction=out",
			"/v1/grants/{id}": grant.ID, "/v1/todos": "", "/v1/todos/{id}": own.ID, "/v1/directory": "?q=review", "/v1/activity": "", "/v1/blocks": "", "/v1/api-tokens": "",
		} {
			path := strings.ReplaceAll(route, "{id}", at)
			if strings.HasPrefix(at, "?") {
				path += at
			}
			answer := who.Do(http.MethodGet, path, nil)
			pointer := "200/content/application~1json"
			if answer.Status != http.StatusOK {
				pointer = "404/content/application~1problem+json"
				refused(t, 404, "not_found", answer)
			}
			schema, err := compiler.Compile("openapi.json#/paths/" + strings.NewReplacer("/", "~1", "{", "%7B", "}", "%7D").Replace(route) + "/get/responses/" + pointer + "/schema")
			require.NoError(t, err, route)
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(answer.Body))
			require.NoError(t, err)
			require.NoError(t, schema.Validate(value), "%s: %s", route, answer.Body)
		}
	}
	for _, at := range timesIn(t, bob) {
		require.True(t, strings.HasSuffix(at, "Z"), "%s is not UTC", at)
	}
}

// timesIn gathers every time that bob is shown.
func timesIn(t *testing.T, bob *servertest.Person) (out []string) {
	t.Helper()
	moment := regexp.MustCompile(`"(\d{4}-\d\d-\d\dT[^"]*)"`)
	for _, path := range []string{"/v1/me", "/v1/agents", "/v1/queues", "/v1/personas", "/v1/endpoints", "/v1/inbox", "/v1/friend-requests", "/v1/grants", "/v1/todos", "/v1/activity", "/v1/api-tokens"} {
		found := moment.FindAllStringSubmatch(bob.Do(http.MethodGet, path, nil).Body, -1)
		require.NotEmpty(t, found, path)
		for _, m := range found {
			out = append(out, m[1])
		}
	}
	return out
}

// TestTheDocumentsPageIsSelfHosted: one origin, no script.
func TestTheDocumentsPageIsSelfHosted(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	s := i.Stranger(t, "")
	r := s.Do(http.MethodGet, "/docs", nil)
	require.Equal(t, http.StatusOK, r.Status)
	require.Contains(t, r.Header.Get("Content-Type"), "text/html")
	policy := r.Header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "http")
	require.NotContains(t, r.Body, "<script")
	require.Contains(t, r.Body, `href="/"`, "a way back")
	require.Contains(t, r.Body, `rel="icon"`)
	require.Contains(t, policy, "img-src 'self'")
	icon := s.Do(http.MethodGet, "/favicon.ico", nil)
	require.Equal(t, http.StatusOK, icon.Status, "of who did not read the page, as for openapi.json")
	require.Equal(t, "image/svg+xml", icon.Header.Get("Content-Type"))
	linked := regexp.MustCompile(`(?:src|href|action)="([^"]*)"`).FindAllStringSubmatch(r.Body, -1)
	require.NotEmpty(t, linked)
	for _, m := range linked {
		require.Regexp(t, `^(#|/$|/[^/]|\?)`, m[1])
		if strings.HasPrefix(m[1], "/") || strings.HasPrefix(m[1], "?") {
			at := m[1]
			if at[0] == '?' {
				at = "/docs" + at
			}
			require.Less(t, s.Do(http.MethodGet, at, nil).Status, 400, at)
		}
	}
	for _, route := range contract {
		require.Contains(t, r.Body, strings.Fields(route)[1])
	}
}
