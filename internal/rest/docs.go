package rest

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsText string

//go:embed docs.css
var docsStyle string

var docsPage = template.Must(template.New("docs").Parse(docsText))

type documented struct {
	Method, Path, Summary, Description, Access string
	Parameters                                 []*huma.Param
	Request                                    string
	Anchor                                     string
}

// docs shows the operations of the OpenAPI document, made from it and served
// from this origin alone: no script, no other host.
func (a *api) docs(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("style") != "" {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		w.Header().Set("Cache-Control", "max-age=3600")
		_, _ = w.Write([]byte(docsStyle))
		return
	}
	doc := a.huma.OpenAPI()
	groups := map[string][]documented{}
	var order []string
	for path, item := range doc.Paths {
		for _, op := range operationsOf(item) {
			name := op.Tags[0]
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
			d := documented{Method: op.Method, Path: path, Summary: op.Summary, Description: op.Description, Parameters: op.Parameters, Anchor: op.OperationID}
			var schemes []string
			for _, s := range op.Security {
				for scheme := range s {
					schemes = append(schemes, scheme)
				}
			}
			d.Access = strings.Join(schemes, " or ")
			if op.RequestBody != nil {
				for _, media := range op.RequestBody.Content {
					d.Request = describe(media.Schema, doc)
				}
			}
			groups[name] = append(groups[name], d)
		}
	}
	slices.Sort(order)
	for _, g := range groups {
		slices.SortFunc(g, func(x, y documented) int { return strings.Compare(x.Path+x.Method, y.Path+y.Method) })
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if err := docsPage.Execute(w, map[string]any{"Order": order, "Groups": groups, "URL": a.PublicURL}); err != nil {
		a.Log.ErrorContext(r.Context(), "docs page", "error", err)
	}
}

// describe gives a schema's members on a line each.
func describe(s *huma.Schema, doc *huma.OpenAPI) string {
	if s == nil {
		return ""
	}
	if s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	var b strings.Builder
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := s.Properties[name]
		required := ""
		if slices.Contains(s.Required, name) {
			required = ", required"
		}
		kind := p.Type
		if p.Ref != "" {
			kind = p.Ref[strings.LastIndex(p.Ref, "/")+1:]
		}
		if kind == "" {
			kind = "any"
		}
		fmt.Fprintf(&b, "%s: %s%s\n", name, kind, required)
	}
	return b.String()
}
