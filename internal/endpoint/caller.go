package endpoint

import (
	"errors"
	"slices"
	"strings"
	"time"

	"switchboard/internal/scope"
)

// Caller is what a good token proves. It may come from a cache: every domain
// call that it makes compares (Endpoint.ID, Endpoint.Version) on the locked
// (writes) or joined (reads) row of the view endpoint_authority(id, owner,
// version) and Until against clock_timestamp() in the same transaction, and
// answers ErrStale when they differ; the transport then calls Refresh and tries
// once more. Callers share their slices and must not change them.
type Caller struct {
	Endpoint   Endpoint
	TokenID    []byte    // SHA-256 of the bearer
	TokenScope []string  // verb:queue the token is limited to; nil = the endpoint's whole scope
	Until      time.Time // earlier of token's and endpoint's end
	ProofKey   string    // DPoP thumbprint the token is bound to, "" when it is a plain bearer
}

// ErrStale says that the endpoint changed since the caller was resolved (see
// [Caller]). Never shown outside.
var ErrStale = errors.New("the endpoint has changed since the caller was resolved")

// Effective is endpoint scope ∩ token scope: the queues and verbs of which the
// caller may use at least one with another. A token may be limited to pairs that
// are no product of queues and verbs; May decides on a pair.
func (c Caller) Effective() scope.Scope {
	s := c.Endpoint.Scope
	if c.TokenScope == nil {
		return s
	}
	e := scope.Scope{Queues: []string{}, Verbs: []scope.Verb{}, Limits: s.Limits}
	for _, q := range s.Queues {
		if slices.ContainsFunc(s.Verbs, func(v scope.Verb) bool { return c.May(v, q) }) {
			e.Queues = append(e.Queues, q)
		}
	}
	for _, v := range s.Verbs {
		if slices.ContainsFunc(s.Queues, func(q string) bool { return c.May(v, q) }) {
			e.Verbs = append(e.Verbs, v)
		}
	}
	return e
}

// May reports whether the caller may use the verb on the queue. A home endpoint
// has no verbs: what counts there is the queue.
func (c Caller) May(v scope.Verb, queue string) bool {
	if c.Endpoint.Kind == Home {
		return slices.Contains(c.Endpoint.Scope.Queues, queue)
	}
	return c.Endpoint.Scope.Allows(v, queue) && (c.TokenScope == nil || slices.Contains(c.TokenScope, string(v)+":"+queue))
}

// HasTool reports whether the caller sees the tool in tools/list: the
// endpoint's tools, less those that its token's scope leaves out.
func (c Caller) HasTool(name string) bool {
	if !c.Endpoint.HasTool(name) {
		return false
	}
	if c.TokenScope == nil || name == Whoami || c.Endpoint.Kind == Home {
		return true
	}
	return slices.ContainsFunc(c.TokenScope, func(s string) bool {
		verb, queue, _ := strings.Cut(s, ":")
		return verb == name && slices.Contains(c.Endpoint.Scope.Queues, queue)
	})
}
