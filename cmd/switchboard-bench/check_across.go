package main

import (
	"cmp"
	"slices"
	"time"
)

// checkClaims: a repeated claim returns the leases of the first, as long as they
// are held.
func (c *checker) checkClaims() {
	type call struct {
		who, id  string
		returned int64
	}
	byID := map[string]map[call][]*operation{}
	for i := range c.h.Operations {
		o := &c.h.Operations[i]
		if o.ClaimID == "" || !o.ok() {
			continue
		}
		k := o.Who + "/" + o.ClaimID
		if byID[k] == nil {
			byID[k] = map[call][]*operation{}
		}
		at := call{o.Who, o.ClaimID, o.Returned}
		byID[k][at] = append(byID[k][at], o)
	}
	for _, answers := range byID {
		if len(answers) < 2 {
			continue
		}
		calls := slices.SortedFunc(keysOf(answers), func(a, b call) int { return cmp.Compare(a.returned, b.returned) })
		first := tokensOf(answers[calls[0]])
		for _, later := range calls[1:] {
			again := tokensOf(answers[later])
			for token := range again {
				if _, there := first[token]; !there && len(first) > 0 {
					c.violatedf(ruleClaims, "claim %s of %s returned other leases when it was repeated", later.id, later.who)
				}
			}
			for token, o := range first {
				if _, there := again[token]; !there && c.heldAt(o, later.returned) {
					c.violatedf(ruleClaims, "claim %s of %s lost a lease when it was repeated", later.id, later.who)
				}
			}
		}
	}
}

// heldAt reports whether the lease of the claim was certainly held until moment.
func (c *checker) heldAt(claim *operation, moment int64) bool {
	if claim.Todo == "" || claim.Expires <= moment {
		return false
	}
	l := c.todos[claim.Todo].byToken[claim.Token]
	return !slices.ContainsFunc(l.ends, func(o *operation) bool { return o.mayHaveActed() && o.Invoked <= moment })
}

func tokensOf(ops []*operation) map[string]*operation {
	out := map[string]*operation{}
	for _, o := range ops {
		if o.Token != "" { // none when there was nothing to claim
			out[o.Token] = o
		}
	}
	return out
}

func keysOf[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// checkLimit: at no moment were more todos of a line certainly open than it may
// have: created as told, and not yet told, or asked, to end.
func (c *checker) checkLimit() {
	if c.h.MaxOpen == 0 {
		return
	}
	type step struct {
		at   int64
		what int
	}
	lines := map[string][]step{}
	for _, id := range c.order {
		t := c.todos[id]
		var line string
		opened := int64(1<<63 - 1)
		for _, o := range t.creations {
			if o.ok() {
				line, opened = o.Line, min(opened, o.Returned)
			}
		}
		if line == "" {
			continue
		}
		if t.final != nil && t.final.State == "failed" && !t.failed() {
			continue // it lapsed too often, under claims that had no answer perhaps
		}
		closed := t.mayEnd(c.h.MaxAttempts)
		if closed > opened {
			lines[line] = append(lines[line], step{opened, 1}, step{closed, -1})
		}
	}
	for line, steps := range lines {
		slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.what, b.what)) })
		open, most := 0, 0
		for _, s := range steps {
			open += s.what
			most = max(most, open)
		}
		if most > c.h.MaxOpen {
			c.violatedf(ruleLimit, "line %s had %d todos open and may have %d", line, most, c.h.MaxOpen)
		}
	}
}

// failed reports whether a failure was acknowledged.
func (t *trail) failed() bool {
	return slices.ContainsFunc(t.leases, func(l *leaseTrail) bool {
		return slices.ContainsFunc(l.ends, func(o *operation) bool { return o.ok() && o.State == "failed" })
	})
}

// mayEnd is the earliest moment at which the todo may have ended.
func (t *trail) mayEnd(maxAttempts int) int64 {
	earliest := int64(1<<63 - 1)
	for _, l := range t.leases {
		for _, o := range l.ends {
			if o.mayHaveActed() && o.Kind != "ask" {
				earliest = min(earliest, o.Invoked)
			}
		}
		// The last attempt of a budget ends it when it lapses.
		if l.attempt >= maxAttempts {
			earliest = min(earliest, l.expiry(1<<63-1))
		}
	}
	for _, o := range t.cancels {
		if o.mayHaveActed() {
			earliest = min(earliest, o.Invoked)
		}
	}
	return earliest
}

// overlooked is how long a more urgent todo may stay behind: those who locked it
// may have been slow, though they are not disturbed.
const overlooked = int64(2 * time.Second)

// fresh is a todo before its first attempt.
type fresh struct {
	from, to int64 // certainly ready
	id       string
	claim    *operation // that ended it
}

// checkPriority: a claim takes the most urgent of what is certainly ready. Only
// todos before their first attempt are looked at, and only while nothing was
// killed: a claim that dies holds the locks of what it had chosen for a moment.
func (c *checker) checkPriority() {
	type class struct {
		lane     string
		priority int
	}
	ready := map[class][]fresh{}
	for _, id := range c.order {
		if f, o := c.todos[id].fresh(); o != nil {
			k := class{o.Lane, o.Priority}
			ready[k] = append(ready[k], f)
		}
	}
	for _, list := range ready {
		slices.SortFunc(list, func(a, b fresh) int { return cmp.Compare(a.from, b.from) })
	}
	for low, list := range ready {
		for high, urgent := range ready {
			if high.lane == low.lane && high.priority > low.priority {
				c.checkUrgent(low.lane, low.priority, high.priority, list, urgent)
			}
		}
	}
}

// checkUrgent: of the urgent ones, which are sorted by when they became ready,
// none was ready all the time that one of the list was being claimed.
func (c *checker) checkUrgent(lane string, low, high int, list, urgent []fresh) {
	// Of those that became ready up to each, the one that stayed longest.
	longest := make([]fresh, len(urgent))
	for i, u := range urgent {
		if longest[i] = u; i > 0 && longest[i-1].to > u.to {
			longest[i] = longest[i-1]
		}
	}
	for _, f := range list {
		if f.claim.Returned == 0 || c.disturbed(f.claim.Invoked, f.claim.Returned+overlooked) {
			continue
		}
		n, _ := slices.BinarySearchFunc(urgent, f.claim.Invoked-slack, func(u fresh, at int64) int { return cmp.Compare(u.from, at) })
		if n > 0 && longest[n-1].to > f.claim.Returned+overlooked {
			c.violatedf(rulePriority, "%s: todo %s (priority %d) was claimed, %s (priority %d) stayed behind", lane, f.id, low, longest[n-1].id, high)
		}
	}
}

// fresh tells when the todo was certainly ready before its first attempt, and by
// which creation; nil when that is not known.
func (t *trail) fresh() (fresh, *operation) {
	var by *operation
	for _, o := range t.creations {
		if o.Later || (o.ok() && by == nil) {
			by = o
		}
	}
	if by == nil || by.Later || len(t.leases) == 0 || t.leases[0].attempt != 1 || len(t.leases[0].claims) == 0 || len(t.cancels) > 0 {
		return fresh{}, nil
	}
	first := t.leases[0]
	return fresh{from: by.Returned, to: first.start, id: t.id, claim: first.claims[0]}, by
}

func (c *checker) disturbed(from, to int64) bool {
	return slices.ContainsFunc(c.h.Disturbances, func(d disturbance) bool { return d.From < to && d.To > from })
}
