package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The rules of a history. Each is sound: a queue that does what it promises never
// breaks one, however its calls were delayed, lost or repeated. What had no
// answer may or may not have happened.
const (
	ruleRefusals = "refusals"  // nothing is refused that should not have been
	ruleKeys     = "keys"      // one todo for each idempotency key, and for nothing else
	ruleLost     = "lost"      // what was acknowledged is there in the end, as acknowledged
	ruleFences   = "fences"    // a lease token is one attempt of one todo; attempts count up
	ruleOverlap  = "overlap"   // no lease begins before the one before it ended
	ruleStale    = "stale"     // a worker that lost its lease changes nothing
	ruleTwice    = "twice"     // nothing is done twice under one fence, nor finished twice
	ruleAfterEnd = "after end" // what has ended is not claimed again
	ruleVersions = "versions"  // versions grow
	ruleLimit    = "limit"     // a line never has more open todos than it may
	ruleContent  = "content"   // a worker reads what was written
	rulePriority = "priority"  // the more urgent first
	ruleClaims   = "claims"    // a repeated claim returns the same leases
	ruleDrained  = "drained"   // in the end everything has ended
)

// violation is a broken rule.
type violation struct {
	rule, what string
}

// String says which rule is broken and how.
func (v violation) String() string { return v.rule + ": " + v.what }

// slack allows for moments that are kept in microseconds, and read a little
// before or after what they stand for.
const slack = int64(2 * time.Millisecond)

// checked is what a check looked at.
type checked struct {
	operations, acknowledged, todos, leases int
	byKind                                  map[string]int
	violations                              []violation
}

// checker goes through a history.
type checker struct {
	h     *history
	todos map[string]*trail
	order []string // of todos, as met
	out   checked
}

// trail is everything that is known of one todo.
type trail struct {
	id        string
	creations []*operation
	leases    []*leaseTrail // by attempt
	byToken   map[string]*leaseTrail
	cancels   []*operation
	answers   []*operation
	reads     []*operation
	final     *final
}

// leaseTrail is one lease, from its claims to its end.
type leaseTrail struct {
	token   string
	attempt int
	start   int64 // when the database made it
	known   int64 // when a claimer knew
	claims  []*operation
	beats   []*operation
	ends    []*operation // complete, fail, release, ask
}

func (c *checker) violatedf(rule, format string, args ...any) {
	c.out.violations = append(c.out.violations, violation{rule, fmt.Sprintf(format, args...)})
}

// check goes through all rules.
func check(h *history) checked {
	c := &checker{h: h, todos: map[string]*trail{}, out: checked{byKind: map[string]int{}}}
	c.sort()
	c.checkRefusals()
	c.checkKeys()
	for _, id := range c.order {
		t := c.todos[id]
		c.checkLeases(t)
		c.checkEnds(t)
		c.checkVersions(t)
		c.checkFinal(t)
	}
	c.checkClaims()
	c.checkLimit()
	c.checkPriority()
	return c.out
}

func (c *checker) trail(id string) *trail {
	t := c.todos[id]
	if t == nil {
		t = &trail{id: id, byToken: map[string]*leaseTrail{}}
		c.todos[id] = t
		c.order = append(c.order, id)
	}
	return t
}

func (t *trail) lease(token string) *leaseTrail {
	l := t.byToken[token]
	if l == nil {
		l = &leaseTrail{token: token, known: 1<<63 - 1, start: 1<<63 - 1}
		t.byToken[token] = l
		t.leases = append(t.leases, l)
	}
	return l
}

// sort sorts the operations by todo.
func (c *checker) sort() {
	slices.SortStableFunc(c.h.Operations, func(a, b operation) int { return cmp.Compare(a.Invoked, b.Invoked) })
	for i := range c.h.Operations {
		o := &c.h.Operations[i]
		c.out.operations++
		c.out.byKind[o.Kind]++
		if o.ok() {
			c.out.acknowledged++
		}
		if o.Todo == "" {
			continue
		}
		t := c.trail(o.Todo)
		switch o.Kind {
		case "create", "create_for":
			t.creations = append(t.creations, o)
		case "claim", "claim_next":
			l := t.lease(o.Token)
			l.claims = append(l.claims, o)
			l.attempt = o.Attempt
			l.start, l.known = min(l.start, o.Expires-o.Lease), min(l.known, o.returned())
		case "heartbeat":
			t.lease(o.Token).beats = append(t.lease(o.Token).beats, o)
		case "complete", "fail", "release", "ask":
			t.lease(o.Token).ends = append(t.lease(o.Token).ends, o)
		case "cancel_todo":
			t.cancels = append(t.cancels, o)
		case "answer":
			t.answers = append(t.answers, o)
		default:
			t.reads = append(t.reads, o)
		}
	}
	for i := range c.h.Finals {
		c.trail(c.h.Finals[i].Todo).final = &c.h.Finals[i]
	}
	for _, t := range c.todos {
		slices.SortStableFunc(t.leases, func(a, b *leaseTrail) int { return cmp.Compare(a.attempt, b.attempt) })
		c.out.leases += len(t.leases)
	}
	c.out.todos = len(c.todos)
}

// expected are the refusals that a sound queue may give here.
var expected = map[string][]string{
	"create_for": {"quota_exceeded", "conflict"}, "create": {"conflict"},
	"heartbeat": {"lease_lost"}, "complete": {"lease_lost"}, "fail": {"lease_lost"}, "release": {"lease_lost"}, "ask": {"lease_lost"},
	"answer": {"conflict"}, "cancel_todo": {"conflict"},
}

func (c *checker) checkRefusals() {
	for i := range c.h.Operations {
		o := &c.h.Operations[i]
		switch {
		case o.Outcome == outcomeInternal && !c.disturbed(o.Invoked, o.returned()),
			!o.mayHaveActed() && !slices.Contains(expected[o.Kind], o.Outcome):
			c.violatedf(ruleRefusals, "%s of %s answered %s", o.Kind, o.Who, o.Outcome)
		}
	}
}

// checkKeys: one todo for each key, with the content of whoever came first.
func (c *checker) checkKeys() {
	type name struct{ line, key string }
	byKey := map[name][]*operation{}
	titles := map[string]bool{}
	for i := range c.h.Operations {
		o := &c.h.Operations[i]
		if o.Kind == "create_for" || o.Kind == "create" {
			byKey[name{o.Line, o.Key}] = append(byKey[name{o.Line, o.Key}], o)
			if o.mayHaveActed() {
				titles[o.Said] = true
			}
		}
	}
	owner := map[string]name{}
	for n, ops := range byKey {
		todo, fresh := "", 0
		for _, o := range ops {
			if !o.ok() {
				continue
			}
			if todo != "" && todo != o.Todo {
				c.violatedf(ruleKeys, "key %s of line %s is todo %s and todo %s", n.key, n.line, todo, o.Todo)
			}
			todo = o.Todo
			if !o.Deduplicated {
				fresh++
			}
		}
		if fresh > 1 {
			c.violatedf(ruleKeys, "key %s of line %s was created %d times", n.key, n.line, fresh)
		}
		if todo != "" {
			if other, taken := owner[todo]; taken {
				c.violatedf(ruleKeys, "todo %s belongs to keys %s and %s", todo, other.key, n.key)
			}
			owner[todo] = n
		}
		c.checkConflicts(n.key, ops)
	}
	seen := map[string]string{}
	for _, f := range c.h.Finals {
		if !titles[f.Title] {
			c.violatedf(ruleKeys, "todo %s (%s) was created by nobody", f.Todo, f.Title)
		}
		if other, twice := seen[f.Title]; twice {
			c.violatedf(ruleKeys, "todos %s and %s have the content of one key (%s)", other, f.Todo, f.Title)
		}
		seen[f.Title] = f.Todo
	}
}

// checkConflicts: once a key is acknowledged with a content, another is a conflict,
// and the same is not.
func (c *checker) checkConflicts(key string, ops []*operation) {
	for _, first := range ops {
		if !first.ok() {
			continue
		}
		for _, later := range ops {
			if later.Invoked <= first.Returned {
				continue
			}
			if later.ok() && later.Said != first.Said {
				c.violatedf(ruleKeys, "key %s was accepted with %q and with %q", key, first.Said, later.Said)
			}
			if later.Outcome == "conflict" && later.Said == first.Said {
				c.violatedf(ruleKeys, "a repeat of key %s was a conflict", key)
			}
		}
		return
	}
}
