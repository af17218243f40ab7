package rest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsText string

//go:embed docs.css
var docsStyle string

var docsPage = template.Must(template.New("docs").Funcs(template.FuncMap{
	"anchor": func(group string) string { return strings.ReplaceAll(group, " ", "-") },
}).Parse(docsText))

type documented struct {
	Method, Path, Summary, Description string
	Access                             []string
	Parameters                         []*huma.Param
	Request, Example                   string
	Status, Answer                     string // of the success
	Errors                             []string
	Anchor                             string
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
			d := describe(op, doc)
			d.Path = path
			groups[name] = append(groups[name], d)
		}
	}
	slices.Sort(order)
	for _, g := range groups {
		slices.SortFunc(g, func(x, y documented) int { return strings.Compare(x.Path+x.Method, y.Path+y.Method) })
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if err := docsPage.Execute(w, map[string]any{"Order": order, "Groups": groups, "URL": a.PublicURL, "Icon": a.Icon}); err != nil {
		a.Log.ErrorContext(r.Context(), "docs page", "error", err)
	}
}

func describe(op *huma.Operation, doc *huma.OpenAPI) documented {
	d := documented{Method: op.Method, Summary: op.Summary, Description: op.Description, Parameters: op.Parameters, Anchor: op.OperationID}
	for _, s := range op.Security {
		d.Access = slices.AppendSeq(d.Access, maps.Keys(s))
	}
	if op.RequestBody != nil {
		for _, media := range op.RequestBody.Content {
			d.Request = members(media.Schema, doc)
			if text, err := json.MarshalIndent(media.Example, "", "  "); err == nil && media.Example != nil {
				d.Example = string(text)
			}
		}
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		if status >= "400" {
			d.Errors = append(d.Errors, status)
			continue
		}
		d.Status = status
		for _, media := range op.Responses[status].Content {
			d.Answer = kind(media.Schema)
		}
	}
	return d
}

// members gives a schema's members on a line each.
func members(s *huma.Schema, doc *huma.OpenAPI) string {
	if s == nil {
		return ""
	}
	if s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		required := ""
		if slices.Contains(s.Required, name) {
			required = ", required"
		}
		about := ""
		if p.Description != "" {
			about = "  " + p.Description
		}
		fmt.Fprintf(&b, "%s: %s%s%s\n", name, kind(p), required, about)
	}
	return b.String()
}

// kind is a schema's type in a word or two.
func kind(s *huma.Schema) string {
	switch {
	case s.Ref != "":
		return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	case s.Type == huma.TypeArray && s.Items != nil:
		return "list of " + kind(s.Items)
	case len(s.Enum) > 0:
		words := make([]string, 0, len(s.Enum))
		for _, w := range s.Enum {
			words = append(words, fmt.Sprint(w))
		}
		return strings.Join(words, " | ")
	case len(s.OneOf) > 0:
		kinds := make([]string, 0, len(s.OneOf))
		for _, one := range s.OneOf {
			kinds = append(kinds, kind(one))
		}
		return strings.Join(kinds, " | ")
	case s.Format != "" && s.Type == huma.TypeString:
		return s.Format
	case s.Type == "":
		return "any"
	}
	return s.Type
}
