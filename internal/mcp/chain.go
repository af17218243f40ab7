package mcp

import (
	"context"
	"slices"
	"strings"

	"switchboard/internal/refusal"
)

// leg is one of several lists that a caller reads as one.
type leg[T any] struct {
	name string
	list func(ctx context.Context, cursor string) ([]T, string, error)
}

// chained is one page of a chain.
type chained[T any] struct {
	items []T
	next  string
	err   error
}

// as is the page under the name that the tool gives it.
func (c chained[T]) as(name string) (any, error) { return listOf(name, c.items, c.next), c.err }

// chain reads the page that cursor points at: its leg and that leg's own
// cursor. When a leg ends, its page is filled no further; the next one begins
// with the next call.
func chain[T any](ctx context.Context, cursor string, legs ...leg[T]) chained[T] {
	at := 0
	if cursor != "" {
		name, rest, _ := strings.Cut(cursor, ".")
		if at = slices.IndexFunc(legs, func(l leg[T]) bool { return l.name == name }); at < 0 {
			return chained[T]{err: refusal.Invalid("cursor", "cursor is not one of this list")}
		}
		cursor = rest
	}
	for {
		items, next, err := legs[at].list(ctx, cursor)
		switch {
		case err != nil:
			return chained[T]{err: err}
		case next != "":
			return chained[T]{items: items, next: legs[at].name + "." + next}
		case at+1 == len(legs):
			return chained[T]{items: items}
		case len(items) > 0:
			return chained[T]{items: items, next: legs[at+1].name + "."}
		}
		at, cursor = at+1, ""
	}
}
