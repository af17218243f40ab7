package rest

import (
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

// Types of domain packages know no transport, so what the document says of them
// stands here.
type (
	idSchema    struct{}
	verbSchema  struct{}
	stateSchema struct{}
)

// Schema of an id.
func (idSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "uuid", Examples: []any{exampleID}}
}

// Schema of a verb.
func (verbSchema) Schema(r huma.Registry) *huma.Schema { return words(r, "Verb", scope.Verbs()...) }

// Schema of a todo's state.
func (stateSchema) Schema(r huma.Registry) *huma.Schema { return words(r, "TodoState", todoStates...) }

const exampleID = "0197a3c2-7d7e-7cc3-98c4-dc0c0c07398f"

// words is a reference to a schema of these words, so that a generated client
// has one type for them and not one for each place.
func words[T ~string](r huma.Registry, name string, all ...T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, w := range all {
		s.Enum = append(s.Enum, string(w))
	}
	s.PrecomputeMessages()
	r.Map()[name] = s
	return &huma.Schema{Ref: schemasAt + name}
}

const schemasAt = "#/components/schemas/"

// schemas are the document's schemas.
func schemas() huma.Registry {
	r := huma.NewMapRegistry(schemasAt, schemaName)
	r.RegisterTypeAlias(reflect.TypeFor[uuid.UUID](), reflect.TypeFor[idSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[pathID](), reflect.TypeFor[idSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[scope.Verb](), reflect.TypeFor[verbSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[todo.State](), reflect.TypeFor[stateSchema]())
	return r
}

// schemaName names a type in the OpenAPI document. Domain packages have types
// of one name, so theirs carry the package's.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	name := huma.DefaultSchemaNamer(t, hint)
	if t.Name() == "" || !strings.HasPrefix(t.PkgPath(), "switchboard/") {
		return name
	}
	room := path.Base(t.PkgPath())
	if room == "rest" || strings.EqualFold(room, name) {
		return name
	}
	return strings.ToUpper(room[:1]) + room[1:] + name
}

// refusals are the statuses of the errors that an operation can answer; complete
// takes away what its parameters and body rule out.
func refusals(method, path string) []int {
	out := []int{401, 403, 422, 500, 503}
	if method != http.MethodGet {
		out = append(out, 404, 409, 412, 413, 429)
	} else if strings.Contains(path, "{") {
		out = append(out, 404)
	}
	return out
}

// complete says what huma cannot know, once every operation is in the document.
func (a *api) complete() {
	for _, item := range a.huma.OpenAPI().Paths {
		for _, op := range operationsOf(item) {
			if !slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.Name == "If-Match" }) {
				delete(op.Responses, "412")
			}
			if op.RequestBody == nil {
				delete(op.Responses, "413")
			} else if example, ok := examples[op.OperationID]; ok {
				for _, media := range op.RequestBody.Content {
					media.Example = example
				}
			}
			for status, r := range op.Responses {
				if media := r.Content["application/json"]; media != nil && status < "300" {
					media.Example = a.sample("", media.Schema)
				}
			}
			describeHeader(op.Responses["401"], "WWW-Authenticate", "Bearer", huma.TypeString)
			describeHeader(op.Responses["429"], "Retry-After", "Seconds after which to try again, where they are known.", huma.TypeInteger)
		}
	}
}

func describeHeader(r *huma.Response, name, about, kind string) {
	if r != nil {
		r.Headers = map[string]*huma.Param{name: {Description: about, Schema: &huma.Schema{Type: kind}}}
	}
}

// operationsOf are the operations of one path.
func operationsOf(item *huma.PathItem) []*huma.Operation {
	all := []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete}
	return slices.DeleteFunc(all, func(op *huma.Operation) bool { return op == nil })
}
