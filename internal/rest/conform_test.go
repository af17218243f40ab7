package rest_test

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"switchboard/internal/rest"
	"switchboard/internal/server/servertest"
)

// contractDocument is the OpenAPI document with what is needed to hold answers
// against it.
type contractDocument struct {
	document
	paths    map[string]*regexp.Regexp
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by pointer
	mu       sync.Mutex
}

// openDocument makes the document without an instance: what it says does not
// depend on one.
var openDocument = sync.OnceValue(func() *contractDocument {
	w := httptest.NewRecorder()
	rest.New(rest.Deps{PublicURL: "https://todo.example", Version: "test"}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	d := &contractDocument{paths: map[string]*regexp.Regexp{}, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	text := w.Body.String()
	must(json.Unmarshal([]byte(text), &d.document))
	for path := range d.Paths {
		d.paths[path] = regexp.MustCompile("^" + inPath.ReplaceAllString(path, "[^/]+") + "$")
	}
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	must(err)
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	must(d.compiler.AddResource("openapi.json", whole))
	return d
})

// schema compiles what stands at a JSON pointer, once.
func (d *contractDocument) schema(pointer ...string) (*jsonschema.Schema, error) {
	at := "openapi.json#"
	for _, p := range pointer {
		at += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schemas[at]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(at)
	d.schemas[at] = s
	return s, err
}

// asDocumented holds every answer that any test of this package gets against
// the document: its status, its media type and its body are declared for the
// operation.
func asDocumented(t testing.TB, method, path string, r servertest.Reply) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	d := openDocument()
	for template, pattern := range d.paths {
		if !pattern.MatchString(path) {
			continue
		}
		op, ok := d.Paths[template][strings.ToLower(method)]
		if !ok {
			require.Contains(t, []int{http.StatusMethodNotAllowed, http.StatusOK}, r.Status, "%s %s", method, path) // 200: HEAD
			return
		}
		status := strconv.Itoa(r.Status)
		answer, ok := op.Responses[status]
		require.True(t, ok, "%s %s answers %s, which the document does not know: %s", method, template, status, r.Body)
		if len(answer.Content) == 0 {
			require.Empty(t, r.Body, "%s %s", method, template)
			return
		}
		media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		require.NoError(t, err)
		require.Contains(t, answer.Content, media, "%s %s", method, template)
		schema, err := d.schema("paths", template, strings.ToLower(method), "responses", status, "content", media, "schema")
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(r.Body))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(value), "%s %s: %s", method, template, r.Body)
		return
	}
}

// TestExamplesAreWhatTheirSchemasSay: every body of a request and of an answer
// has an example.
func TestExamplesAreWhatTheirSchemasSay(t *testing.T) {
	t.Parallel()
	d := openDocument()
	for path, methods := range d.Paths {
		for method, op := range methods {
			good := func(example json.RawMessage, pointer ...string) {
				require.NotEmpty(t, example, op.OperationID)
				schema, err := d.schema(append(append([]string{"paths", path, method}, pointer...), "content", "application/json", "schema")...)
				require.NoError(t, err)
				value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(example)))
				require.NoError(t, err)
				require.NoError(t, schema.Validate(value), "%s: %s", op.OperationID, example)
			}
			if media, ok := op.RequestBody.Content["application/json"]; ok {
				good(media.Example, "requestBody")
			}
			for status, answer := range op.Responses {
				if media, ok := answer.Content["application/json"]; ok {
					good(media.Example, "responses", status)
				}
			}
		}
	}
}

// TestCreatingOperationsSayThatTheyTakeAnIdempotencyKey.
func TestCreatingOperationsSayThatTheyTakeAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	n := 0
	for path, methods := range openDocument().Paths {
		op := methods["post"]
		if _, creates := op.Responses["201"]; !creates || path == "/v1/program-sign-in" { // a code is good once
			continue
		}
		n++
		key := slices.IndexFunc(op.Parameters, func(p parameter) bool { return p.In == "header" && p.Name == "Idempotency-Key" })
		require.GreaterOrEqual(t, key, 0, op.OperationID)
		require.Equal(t, strings.HasPrefix(path, "/v1/a2a/"), op.Parameters[key].Required, op.OperationID)
	}
	require.Equal(t, 7, n)
}
