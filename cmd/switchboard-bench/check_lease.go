package main

import (
	"cmp"
	"slices"
	"time"
)

// expiry is the latest end of the lease that somebody was told of before moment.
func (l *leaseTrail) expiry(moment int64) int64 {
	var latest int64
	for _, list := range [][]*operation{l.claims, l.beats} {
		for _, o := range list {
			if o.ok() && o.Returned <= moment {
				latest = max(latest, o.Expires)
			}
		}
	}
	return latest
}

// claimed reports whether a claim of the lease was acknowledged.
func (l *leaseTrail) claimed() bool {
	return slices.ContainsFunc(l.claims, (*operation).ok)
}

// checkLeases: fences, overlap, stale.
func (c *checker) checkLeases(t *trail) {
	var known []*leaseTrail // acknowledged, by attempt
	for _, l := range t.leases {
		if !l.claimed() {
			c.violatedf(ruleFences, "todo %s: a token that nobody was given was used", t.id)
			continue
		}
		for _, o := range l.claims {
			if o.Attempt != l.attempt {
				c.violatedf(ruleFences, "todo %s: one token is attempt %d and %d", t.id, l.attempt, o.Attempt)
			}
			if o.Who != l.claims[0].Who {
				c.violatedf(ruleOverlap, "todo %s: attempt %d was given to %s and to %s", t.id, l.attempt, l.claims[0].Who, o.Who)
			}
		}
		known = append(known, l)
		c.checkHolder(t, l)
	}
	for i := 1; i < len(known); i++ {
		a, b := known[i-1], known[i]
		if a.attempt == b.attempt {
			c.violatedf(ruleFences, "todo %s: attempt %d has two tokens", t.id, a.attempt)
		}
		c.checkBetween(t, a, b)
	}
}

// checkHolder: a worker is not refused while it certainly holds its lease, and not
// obeyed once it has ended it.
func (c *checker) checkHolder(t *trail, l *leaseTrail) {
	endedBefore := func(o *operation, by int64, sure bool) bool {
		return slices.ContainsFunc(l.ends, func(e *operation) bool {
			if sure {
				return e != o && e.ok() && e.Returned < by
			}
			return e != o && e.mayHaveActed() && e.Invoked < by
		})
	}
	for _, list := range [][]*operation{l.beats, l.ends} {
		for _, o := range list {
			if o.Outcome == "lease_lost" && l.known < o.Invoked && o.Returned < l.expiry(o.Invoked)-slack && !endedBefore(o, o.Returned, false) {
				c.violatedf(ruleRefusals, "todo %s, attempt %d: %s was refused though the lease was held", t.id, l.attempt, o.Kind)
			}
		}
	}
	for _, o := range l.beats {
		if o.ok() && endedBefore(o, o.Invoked, true) {
			c.violatedf(ruleStale, "todo %s, attempt %d: a heartbeat was accepted after its end", t.id, l.attempt)
		}
	}
}

// checkBetween: lease b began after a had ended, and a did nothing afterwards.
func (c *checker) checkBetween(t *trail, a, b *leaseTrail) {
	// What ended a: its worker, or time.
	end := a.expiry(b.start)
	for _, o := range a.ends {
		if o.mayHaveActed() {
			end = min(end, o.Invoked)
		}
	}
	if b.start < end-slack {
		c.violatedf(ruleOverlap, "todo %s: attempt %d began %v before attempt %d ended", t.id, b.attempt, time.Duration(end-b.start), a.attempt)
	}
	for _, o := range a.beats {
		if o.ok() && o.Invoked > b.known {
			c.violatedf(ruleStale, "todo %s: a heartbeat of attempt %d was accepted during attempt %d", t.id, a.attempt, b.attempt)
		}
	}
	for _, o := range a.ends {
		if !o.ok() || o.Invoked <= b.known {
			continue
		}
		// Unless it repeats what may have been done before.
		if !slices.ContainsFunc(a.ends, func(e *operation) bool {
			return e.mayHaveActed() && e.Kind == o.Kind && e.Said == o.Said && e.Invoked <= b.known
		}) {
			c.violatedf(ruleStale, "todo %s: %s of attempt %d was accepted during attempt %d", t.id, o.Kind, a.attempt, b.attempt)
		}
	}
}

// checkEnds: twice, after end.
func (c *checker) checkEnds(t *trail) {
	var completed *operation
	var over int64 // when it was first known to have ended
	for _, l := range t.leases {
		var did *operation
		for _, o := range l.ends {
			if !o.ok() {
				continue
			}
			if did != nil && (did.Kind != o.Kind || did.Said != o.Said) {
				c.violatedf(ruleTwice, "todo %s, attempt %d: both %s and %s were accepted", t.id, l.attempt, did.Kind, o.Kind)
			}
			if did == nil {
				did = o
			}
			if o.Kind == "complete" {
				if completed != nil && completed.Token != o.Token {
					c.violatedf(ruleTwice, "todo %s was completed under two tokens", t.id)
				}
				completed = o
			}
			if ended(o.State) && (over == 0 || o.Returned < over) {
				over = o.Returned
			}
		}
	}
	for _, o := range t.cancels {
		if o.ok() && ended(o.State) && (over == 0 || o.Returned < over) {
			over = o.Returned
		}
	}
	if over == 0 {
		return
	}
	for _, l := range t.leases {
		if l.claimed() && l.start > over+slack {
			c.violatedf(ruleAfterEnd, "todo %s had ended, and was claimed (attempt %d)", t.id, l.attempt)
		}
	}
}

func ended(state string) bool { return state == "done" || state == "failed" || state == "canceled" }

// checkVersions: what was asked after an answer has a version as least as high.
// Repeats answer what was recorded, which may be older.
func (c *checker) checkVersions(t *trail) {
	var list []*operation
	add := func(ops []*operation) {
		for _, o := range ops {
			if o.ok() && o.Version > 0 {
				list = append(list, o)
			}
		}
	}
	add(t.creations)
	add(t.cancels)
	add(t.answers)
	add(t.reads)
	for _, l := range t.leases {
		if len(l.claims) > 0 {
			add(l.claims[:1])
		}
		add(l.beats)
		if len(l.ends) > 0 {
			add(l.ends[:1])
		}
	}
	// Answers before questions: the highest version answered so far.
	byReturn := slices.SortedFunc(slices.Values(list), func(a, b *operation) int { return cmp.Compare(a.Returned, b.Returned) })
	slices.SortFunc(list, func(a, b *operation) int { return cmp.Compare(a.Invoked, b.Invoked) })
	var highest int64
	var by *operation
	next := 0
	for _, o := range list {
		for next < len(byReturn) && byReturn[next].Returned < o.Invoked {
			if byReturn[next].Version > highest {
				highest, by = byReturn[next].Version, byReturn[next]
			}
			next++
		}
		if o.Version < highest {
			c.violatedf(ruleVersions, "todo %s: %s answered version %d after %s had answered %d", t.id, o.Kind, o.Version, by.Kind, highest)
		}
	}
	for _, o := range list {
		if t.final != nil && o.Version > t.final.Version {
			c.violatedf(ruleVersions, "todo %s: %s answered version %d, and in the end it is %d", t.id, o.Kind, o.Version, t.final.Version)
		}
	}
}

// checkFinal: lost, content, drained. What the database says in the end follows
// from what was acknowledged and what may have happened.
func (c *checker) checkFinal(t *trail) {
	f := t.final
	if f == nil {
		c.violatedf(ruleLost, "todo %s was acknowledged, and does not exist", t.id)
		return
	}
	for _, l := range t.leases {
		for _, o := range l.claims {
			if o.ok() && o.Read != f.Title {
				c.violatedf(ruleContent, "todo %s: a worker read %q instead of %q", t.id, o.Read, f.Title)
			}
			if o.Attempt > f.Attempt {
				c.violatedf(ruleLost, "todo %s: attempt %d was acknowledged, the database knows %d", t.id, o.Attempt, f.Attempt)
			}
		}
	}
	var completions, failures, cancels []*operation
	for _, l := range t.leases {
		for _, o := range l.ends {
			switch {
			case !o.mayHaveActed():
			case o.Kind == "complete":
				completions = append(completions, o)
			case o.Kind == "fail":
				failures = append(failures, o)
			}
		}
	}
	for _, o := range t.cancels {
		if o.mayHaveActed() {
			cancels = append(cancels, o)
		}
	}
	acknowledged := func(state string) func(*operation) bool {
		return func(o *operation) bool { return o.ok() && o.State == state }
	}
	switch {
	case !ended(f.State):
		c.violatedf(ruleDrained, "todo %s is still %s", t.id, f.State)
	case slices.ContainsFunc(completions, (*operation).ok) && f.State != "done",
		slices.ContainsFunc(failures, acknowledged("failed")) && f.State != "failed",
		slices.ContainsFunc(cancels, acknowledged("canceled")) && f.State != "canceled":
		c.violatedf(ruleLost, "todo %s: its end was acknowledged, and it is %s", t.id, f.State)
	case f.State == "done":
		c.checkResult(t, completions)
	case f.State == "failed" && len(failures) == 0 && f.Attempt < c.h.MaxAttempts:
		c.violatedf(ruleLost, "todo %s failed after %d attempts, and nobody said so", t.id, f.Attempt)
	case f.State == "canceled" && len(cancels) == 0:
		c.violatedf(ruleLost, "todo %s was canceled by nobody", t.id)
	}
}

// checkResult: a result is that of the acknowledged completion, or else of one
// that had no answer.
func (c *checker) checkResult(t *trail, completions []*operation) {
	for _, o := range completions {
		if o.ok() {
			if o.Said != t.final.Result {
				c.violatedf(ruleLost, "todo %s was completed with %q and has the result %q", t.id, o.Said, t.final.Result)
			}
			return
		}
	}
	if !slices.ContainsFunc(completions, func(o *operation) bool { return o.Said == t.final.Result }) {
		c.violatedf(ruleLost, "todo %s has the result %q, which nobody sent", t.id, t.final.Result)
	}
}
