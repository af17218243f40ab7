package mcp

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

// Bounds of arguments (specs/protocol.md section 5). What the scope limits,
// package todo checks.
const (
	maxTitle    = 200      // characters
	maxDocument = 64 << 10 // bytes
	maxKey      = 200      // characters of an idempotency key or claim id
	maxNote     = 2000     // characters of a note, reason or public message
	maxCursor   = 1024     // bytes
	maxItems    = 100
	maxWait     = 50    // seconds
	maxLease    = 86400 // seconds
	maxToken    = 256   // bytes of a lease token
	maxRetryIn  = 30 * 86400
	pageSize    = 50
	maxPage     = 100
)

// decode reads arguments into T. Unknown, duplicate and case-variant members
// are refused, and so is a value of another type.
func decode[T any](args jsontext.Value) (*T, error) {
	v := new(T)
	if err := jsonv2.Unmarshal(args, v, jsonv2.RejectUnknownMembers(true)); err != nil {
		return nil, malformed(err)
	}
	return v, nil
}

// malformed says what is wrong with arguments without repeating their values.
func malformed(err error) error {
	var semantic *jsonv2.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntactic):
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return refusal.Invalid(member(syntactic.JSONPointer), "%q is there twice", bounded(member(syntactic.JSONPointer)))
		}
		return refusal.New(refusal.InvalidArgument, "the arguments hold text that is no valid Unicode")
	case errors.As(err, &semantic):
		m := member(semantic.JSONPointer)
		switch {
		case errors.Is(err, jsonv2.ErrUnknownName):
			return refusal.Invalid(m, "unknown argument %q", bounded(m))
		case m == "":
			return refusal.New(refusal.InvalidArgument, "the arguments must be an object")
		}
		return refusal.Invalid(m, "%q must be %s", bounded(m), kindOf(semantic.GoType))
	}
	return refusal.New(refusal.InvalidArgument, "the arguments could not be read").Because(err)
}

// member spells a JSON pointer as people write members: progress.percent.
func member(p jsontext.Pointer) string {
	var parts []string
	for t := range p.Tokens() {
		parts = append(parts, t)
	}
	return strings.Join(parts, ".")
}

func kindOf(t reflect.Type) string {
	if t == nil {
		return "of another type"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "a time as in RFC 3339"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "an integer"
	case t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Slice:
		return "a list"
	}
	return "an object"
}

// The checks below return refusal.InvalidArgument that names the member, but
// payload_too_large for a body.

func required(name, v string) error {
	if v == "" {
		return refusal.Invalid(name, "%s is missing", name)
	}
	return nil
}

// text checks a string's length in characters; empty is left to required.
func text(name, v string, most int) error {
	if len(v) > most && utf8.RuneCountInString(v) > most {
		return refusal.Invalid(name, "%s may have at most %d characters", name, most)
	}
	return nil
}

func document(name, v string) error {
	if len(v) > maxDocument {
		return refusal.New(refusal.PayloadTooLarge, "%s may have at most 64 KiB", name)
	}
	return nil
}

func between[N int | int64 | float64](name string, v *N, least, most N) error {
	if v != nil && (*v < least || *v > most) {
		return refusal.Invalid(name, "%s must be from %v to %v", name, least, most)
	}
	return nil
}

func todoID(v string) (uuid.UUID, error) {
	if err := required("todo_id", v); err != nil {
		return uuid.UUID{}, err
	}
	id, ok := parseID(v)
	if !ok {
		return uuid.UUID{}, refusal.Invalid("todo_id", "todo_id must be a UUID")
	}
	return id, nil
}

func leaseToken(v string) error {
	if err := required("lease_token", v); err != nil {
		return err
	}
	if len(v) > maxToken {
		return refusal.Invalid("lease_token", "lease_token may have at most %d bytes", maxToken)
	}
	return nil
}

func state(v string) (todo.State, error) {
	switch s := todo.State(v); s {
	case "", todo.Ready, todo.Leased, todo.InputRequired, todo.Done, todo.Failed, todo.Canceled:
		return s, nil
	}
	return "", refusal.Invalid("state", "state must be ready, leased, input_required, done, failed or canceled")
}

func page(cursor string, limit *int) (int, error) {
	if len(cursor) > maxCursor {
		return 0, refusal.Invalid("cursor", "cursor is not one of ours")
	}
	if err := between("limit", limit, 1, maxPage); err != nil {
		return 0, err
	}
	if limit == nil {
		return pageSize, nil
	}
	return *limit, nil
}

func seconds(v *int64) time.Duration {
	if v == nil {
		return 0
	}
	return time.Duration(*v) * time.Second
}

var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// first returns the first error there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// present is v, or nil when it was left out or null.
func present(v jsontext.Value) []byte {
	if v == nil || v.Kind() == 'n' {
		return nil
	}
	return v
}
