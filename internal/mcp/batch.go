package mcp

import (
	"github.com/go-json-experiment/json/jsontext"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

// itemsMember stands in the arguments of every tool that takes a batch.
type itemsMember struct {
	Items *[]jsontext.Value `json:"items"`
}

func (m *itemsMember) list() *[]jsontext.Value { return m.Items }

// batch is what such a tool was called with: the items that are well formed,
// and at which place each of them and each refusal stands.
type batch[A any] struct {
	single bool
	good   []A
	errs   []error // one a place; nil where an item of good stands
}

// decodeBatch reads the arguments of one item or of many. W is an item as it
// travels, build turns it into what the domain takes. With items, a bad item
// is its own outcome and does not touch the others.
func decodeBatch[W any, P interface {
	*W
	list() *[]jsontext.Value
}, A any](args jsontext.Value, build func(*W) (A, error)) (*batch[A], error) {
	w, err := decode[W](args)
	if err != nil {
		return nil, err
	}
	list := P(w).list()
	if list == nil {
		a, err := build(w)
		if err != nil {
			return nil, err
		}
		return &batch[A]{single: true, good: []A{a}, errs: make([]error, 1)}, nil
	}
	if _, err := decode[itemsMember](args); err != nil {
		return nil, refusal.Invalid("items", "items stands alone: give either items or one item's arguments")
	}
	if n := len(*list); n == 0 || n > maxItems {
		return nil, refusal.Invalid("items", "items must hold 1 to %d items", maxItems)
	}
	b := &batch[A]{good: make([]A, 0, len(*list)), errs: make([]error, len(*list))}
	for i, raw := range *list {
		w, err := decode[W](raw)
		if err == nil && P(w).list() != nil {
			err = refusal.Invalid("items", "an item holds no items")
		}
		var a A
		if err == nil {
			a, err = build(w)
		}
		if b.errs[i] = err; err == nil {
			b.good = append(b.good, a)
		}
	}
	return b, nil
}

// runBatch calls the domain once with all good items and returns the single
// outcome, or {results: […]} with each outcome in its place.
func runBatch[A, R any](c *call, b *batch[A], do func(endpoint.Caller, []A) ([]todo.Outcome[R], error)) (any, error) {
	var outcomes []todo.Outcome[R]
	if len(b.good) == 0 {
		if err := c.live(); err != nil {
			return nil, err
		}
	} else {
		var err error
		if outcomes, err = do(*c.caller, b.good); err != nil {
			return nil, err
		}
	}
	if b.single {
		return outcomes[0].Value, outcomes[0].Err
	}
	results := make([]any, len(b.errs))
	next := 0
	for i, err := range b.errs {
		var value any
		if err == nil {
			value, err = outcomes[next].Value, outcomes[next].Err
			next++
		}
		if err != nil {
			value = map[string]any{"error": c.x.errorObject(err)}
		}
		results[i] = value
	}
	return map[string]any{"results": results}, nil
}
