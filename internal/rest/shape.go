package rest

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"switchboard/internal/persona"
	"switchboard/internal/refusal"
)

// Page are the parameters of every list.
type Page struct {
	Cursor string `query:"cursor" maxLength:"1024" doc:"The next_cursor of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
}

var errTwoReadings = errors.New("the body holds a member twice, or text that is no valid Unicode")

// unmarshal reads a body as encoding/json does, except where two readers could
// see two things in it (RFC 7493): that is refused, so that what was checked is
// what is kept and handed on.
func unmarshal(b []byte, v any) error {
	if json.Valid(b) && !jsontext.Value(b).IsValid() {
		return errTwoReadings
	}
	return json.Unmarshal(b, v)
}

// list is every list's shape.
type list[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor" doc:"null on the last page."`
}

type body[T any] struct {
	Body T
}

// tagged is an object with its version as entity tag.
type tagged[T any] struct {
	ETag string `header:"ETag"`
	Body T
}

func tag[T any](version int64, v T) *tagged[T] {
	return &tagged[T]{ETag: `"` + strconv.FormatInt(version, 10) + `"`, Body: v}
}

// plain is an answer without a version.
func plain[F, T any](view func(F) T) func(F) *body[T] {
	return func(f F) *body[T] { return &body[T]{Body: view(f)} }
}

// answer wraps a call of a domain package: what it returned, as it is shown.
func answer[F, O any](show func(F) *O) func(F, error) (*O, error) {
	return func(f F, err error) (*O, error) {
		if err != nil {
			return nil, err
		}
		return show(f), nil
	}
}

// page is answer for a call that returns one page of a list.
func page[F, T any](view func(F) T) func([]F, string, error) (*body[list[T]], error) {
	return func(from []F, next string, err error) (*body[list[T]], error) {
		if err != nil {
			return nil, err
		}
		l := list[T]{Items: make([]T, 0, len(from))}
		for _, f := range from {
			l.Items = append(l.Items, view(f))
		}
		if next != "" {
			l.NextCursor = &next
		}
		return &body[list[T]]{Body: l}, nil
	}
}

// ByID is the id in a path. (What huma embeds must be exported.)
type ByID struct {
	ID pathID `path:"id"`
}

// pathID reads a path's id; a malformed one is answered like an unknown one.
type pathID struct{ uuid.UUID }

// UnmarshalText reads the one spelling that ids have.
func (p *pathID) UnmarshalText(text []byte) (err error) {
	if len(text) != 36 {
		return notFound()
	}
	p.UUID, err = uuid.ParseBytes(text)
	return err
}

// IfMatch is the header of a change that depends on a version.
type IfMatch struct {
	IfMatch string `header:"If-Match" maxLength:"64" doc:"The ETag that the change is based on; 412 when it is no longer current."`
}

// version reads If-Match (RFC 9110 §13.1.1): nil when absent or *.
func (m IfMatch) version() (*int64, error) {
	if m.IfMatch == "" || m.IfMatch == "*" {
		return nil, nil
	}
	v, err := strconv.ParseInt(strings.Trim(m.IfMatch, `"`), 10, 64)
	if err != nil {
		return nil, refusal.New(refusal.PreconditionFailed, "this is not the current version")
	}
	return &v, nil
}

// ByVersion is the id in a path of something that has a version.
type ByVersion struct {
	ByID
	IfMatch
}

// expect refuses when the version that now returns is not the one that the
// caller has seen.
func (v ByVersion) expect(now func(id uuid.UUID) (int64, error)) error {
	want, err := v.version()
	if err != nil || want == nil {
		return err
	}
	got, err := now(v.ID.UUID)
	if err == nil && got != *want {
		err = refusal.New(refusal.PreconditionFailed, "this is not the current version")
	}
	return err
}

func optional(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// whoMayAsk is "anyone", "nobody" or a list of issuers on the wire.
type whoMayAsk struct{ persona.WhoMayAsk } //nolint:recvcheck // encoding/json wants the one so and the other so

// Schema says so in the document.
func (whoMayAsk) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: `"anyone" (of the trusted issuers), "nobody", or a list of issuers.`,
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Enum: []any{"anyone", "nobody"}},
			{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}},
		},
	}
}

// MarshalJSON writes the wire form.
func (w whoMayAsk) MarshalJSON() ([]byte, error) {
	switch {
	case w.Nobody:
		return []byte(`"nobody"`), nil
	case len(w.Issuers) > 0:
		return json.Marshal(w.Issuers)
	}
	return []byte(`"anyone"`), nil
}

// UnmarshalJSON reads the wire form.
func (w *whoMayAsk) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		switch word {
		case "anyone":
			w.WhoMayAsk = persona.WhoMayAsk{}
		case "nobody":
			w.WhoMayAsk = persona.WhoMayAsk{Nobody: true}
		default:
			return refusal.Invalid("who_may_ask", `who_may_ask is "anyone", "nobody" or a list of issuers`)
		}
		return nil
	}
	var issuers []string
	if err := json.Unmarshal(b, &issuers); err != nil || len(issuers) == 0 {
		return refusal.Invalid("who_may_ask", `who_may_ask is "anyone", "nobody" or a list of issuers`)
	}
	w.WhoMayAsk = persona.WhoMayAsk{Issuers: issuers}
	return nil
}
