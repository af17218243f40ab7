package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// at is a moment of a made-up history, in seconds.
func at(seconds float64) int64 { return int64(seconds * float64(time.Second)) }

// sound is a history without fault: a todo that is created twice under one key,
// claimed, kept, lost, claimed again and completed, with a repeat; one that was
// released and canceled; one more urgent than the first.
func soundHistory() *history {
	const lease = 5
	call := func(kind, todo string, from, to float64, more operation) operation {
		more.Kind, more.Todo, more.Invoked, more.Returned = kind, todo, at(from), at(to)
		if more.Outcome == "" {
			more.Outcome = outcomeOK
		}
		more.Lane = "bob/reviews"
		return more
	}
	claim := func(todo, who, token string, from, to float64, attempt int, version int64, title string) operation {
		return call("claim_next", todo, from, to, operation{
			Who: who, Token: token, ClaimID: who + token, State: "leased", Version: version, Attempt: attempt, Lease: at(lease), Expires: at(to - .01 + lease), Read: title,
		})
	}
	return &history{
		MaxOpen: 2, MaxAttempts: 5,
		Operations: []operation{
			call("create_for", "t1", 1, 1.1, operation{Who: "alice", Line: "a", Key: "k1", Said: "todo k1", State: "ready", Version: 1, Priority: 5}),
			call("create_for", "t1", 1.2, 1.3, operation{Who: "alice", Line: "a", Key: "k1", Said: "todo k1", State: "ready", Version: 1, Priority: 5, Deduplicated: true}),
			call("create_for", "", 1.4, 1.5, operation{Who: "alice", Line: "a", Key: "k1", Said: "another", Outcome: "conflict"}),
			claim("t1", "w1", "f1", 2, 2.1, 1, 2, "todo k1"),
			claim("t1", "w1", "f1", 2.2, 2.3, 1, 2, "todo k1"), // a repeat, whose Expires is set below
			call("heartbeat", "t1", 3, 3.1, operation{Who: "w1", Token: "f1", State: "leased", Version: 3, Expires: at(3.05 + lease)}),
			claim("t1", "w2", "f2", 8.1, 9, 2, 5, "todo k1"),
			call("complete", "t1", 9.1, 9.2, operation{Who: "w1", Token: "f1", Said: "r1", Outcome: "lease_lost"}),
			call("complete", "t1", 9.3, 9.4, operation{Who: "w2", Token: "f2", Said: "r2", State: "done", Version: 6}),
			call("complete", "t1", 9.5, 9.6, operation{Who: "w2", Token: "f2", Said: "r2", State: "done", Version: 6}),
			call("create_for", "t2", 10, 10.1, operation{Who: "alice", Line: "a", Key: "k2", Said: "todo k2", State: "ready", Version: 1, Priority: 5}),
			claim("t2", "w1", "f3", 11, 11.1, 1, 2, "todo k2"),
			call("release", "t2", 11.2, 11.3, operation{Who: "w1", Token: "f3", Said: "no", State: "ready", Version: 3}),
			call("cancel_todo", "t2", 12, 12.1, operation{Who: "alice", Line: "a", State: "canceled", Version: 4}),
			call("create_for", "t3", 20, 20.1, operation{Who: "alice", Line: "a", Key: "k3", Said: "todo k3", State: "ready", Version: 1, Priority: 5}),
			call("create_for", "t4", 20, 20.1, operation{Who: "carol", Line: "c", Key: "k3", Said: "todo of carol", State: "ready", Version: 1, Priority: 8}),
			claim("t4", "w1", "f4", 25, 25.1, 1, 2, "todo of carol"),
			claim("t3", "w2", "f5", 29, 29.1, 1, 2, "todo k3"),
			call("fail", "t4", 26, 26.1, operation{Who: "w1", Token: "f4", Said: "e", State: "failed", Version: 3}),
			call("complete", "t3", 29.2, 29.3, operation{Who: "w2", Token: "f5", Said: "r3", State: "done", Version: 3}),
			{Kind: "create_for", Who: "alice", Line: "a", Lane: "bob/reviews", Key: "k9", Said: "todo k9", Invoked: at(30), Outcome: outcomeUnknown, Priority: 5},
		},
		Finals: []final{
			{Todo: "t1", Title: "todo k1", State: "done", Result: "r2", Version: 6, Attempt: 2},
			{Todo: "t2", Title: "todo k2", State: "canceled", Version: 4, Attempt: 1},
			{Todo: "t3", Title: "todo k3", State: "done", Result: "r3", Version: 3, Attempt: 1},
			{Todo: "t4", Title: "todo of carol", State: "failed", Version: 3, Attempt: 1},
		},
	}
}

// find returns the n-th operation of a kind on a todo.
func (h *history) find(kind, todo string, n int) *operation {
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Kind == kind && o.Todo == todo {
			if n == 0 {
				return o
			}
			n--
		}
	}
	return nil
}

func (h *history) add(o operation) {
	if o.Lane == "" {
		o.Lane = "bob/reviews"
	}
	h.Operations = append(h.Operations, o)
}

func TestASoundHistoryIsOk(t *testing.T) {
	t.Parallel()
	h := soundHistory()
	h.find("claim_next", "t1", 1).Expires = h.find("claim_next", "t1", 0).Expires
	out := check(h)
	require.Empty(t, out.violations)
	require.Equal(t, 4, out.todos)
	require.Equal(t, 5, out.leases)
	require.Equal(t, len(h.Operations), out.operations)
}

// TestEachRuleFindsWhatBreaksIt: a checker that cannot fail says nothing.
func TestEachRuleFindsWhatBreaksIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, rule string
		bend       func(h *history)
	}{
		{"a claim is refused", ruleRefusals, func(h *history) { h.find("claim_next", "t2", 0).Outcome = "not_found" }},
		{"a fault in peace", ruleRefusals, func(h *history) { h.find("cancel_todo", "t2", 0).Outcome = outcomeInternal }},
		{"a holder is refused", ruleRefusals, func(h *history) { h.find("heartbeat", "t1", 0).Outcome = "lease_lost" }},

		{"one key, two todos", ruleKeys, func(h *history) { h.find("create_for", "t1", 1).Todo = "t2" }},
		{"created twice", ruleKeys, func(h *history) { h.find("create_for", "t1", 1).Deduplicated = false }},
		{"another content under a key", ruleKeys, func(h *history) { h.find("create_for", "t1", 1).Said = "another" }},
		{"a repeat is a conflict", ruleKeys, func(h *history) { h.find("create_for", "t1", 1).Outcome = "conflict" }},
		{"two keys, one todo", ruleKeys, func(h *history) { h.find("create_for", "t3", 0).Todo = "t2" }},
		{"a todo of nobody", ruleKeys, func(h *history) {
			h.Finals = append(h.Finals, final{Todo: "t7", Title: "todo k7", State: "done", Result: "r"})
		}},
		{"a todo is there twice", ruleKeys, func(h *history) {
			h.Finals = append(h.Finals, final{Todo: "t7", Title: "todo k1", State: "done", Result: "r"})
		}},

		{"an acknowledged todo is gone", ruleLost, func(h *history) { h.Finals = h.Finals[:3] }},
		{"an acknowledged completion is gone", ruleLost, func(h *history) { h.Finals[0].State = "failed" }},
		{"an acknowledged failure is gone", ruleLost, func(h *history) { h.Finals[3].State, h.Finals[3].Result = "done", "e" }},
		{"an acknowledged result is gone", ruleLost, func(h *history) { h.Finals[0].Result = "r1" }},
		{"a result of nobody", ruleLost, func(h *history) { h.find("complete", "t3", 0).Outcome = "lease_lost" }},
		{"an acknowledged attempt is gone", ruleLost, func(h *history) { h.Finals[0].Attempt = 1 }},
		{"canceled by nobody", ruleLost, func(h *history) { h.find("cancel_todo", "t2", 0).Outcome = "conflict" }},
		{"failed by nobody", ruleLost, func(h *history) { h.find("fail", "t4", 0).Outcome = "lease_lost" }},
		{"not ended", ruleDrained, func(h *history) { h.Finals[2].State = "ready" }},

		{"a token of nobody", ruleFences, func(h *history) { h.find("complete", "t3", 0).Token = "f9" }},
		{"an attempt with two tokens", ruleFences, func(h *history) { h.find("claim_next", "t1", 2).Attempt = 1 }},
		{"a token with two attempts", ruleFences, func(h *history) { h.find("claim_next", "t1", 1).Attempt = 2 }},

		{"a token for two workers", ruleOverlap, func(h *history) { h.find("claim_next", "t1", 1).Who = "w2" }},
		{"reclaimed too early", ruleOverlap, func(h *history) { h.find("claim_next", "t1", 2).Expires -= at(2) }},
		{"a heartbeat did not count", ruleOverlap, func(h *history) {
			o := h.find("heartbeat", "t1", 0)
			o.Invoked, o.Returned, o.Expires = at(6), at(6.1), at(11.05)
		}},

		{"a lost lease is heartbeaten", ruleStale, func(h *history) {
			o := h.find("heartbeat", "t1", 0)
			o.Invoked, o.Returned = at(9.05), at(9.06)
		}},
		{"a lost lease is released", ruleStale, func(h *history) {
			h.add(operation{Kind: "release", Who: "w1", Todo: "t1", Token: "f1", Said: "no", State: "ready", Invoked: at(9.05), Returned: at(9.06), Outcome: outcomeOK})
		}},
		{"an ended lease is heartbeaten", ruleStale, func(h *history) {
			h.add(operation{Kind: "heartbeat", Who: "w2", Todo: "t1", Token: "f2", Invoked: at(9.7), Returned: at(9.8), Expires: at(15), Outcome: outcomeOK})
		}},

		{"two ends under one fence", ruleTwice, func(h *history) {
			o := h.find("complete", "t1", 2)
			o.Kind, o.State = "release", "ready"
		}},
		{"two results under one fence", ruleTwice, func(h *history) { h.find("complete", "t1", 2).Said = "r9" }},
		{"completed under two tokens", ruleTwice, func(h *history) {
			o := h.find("complete", "t1", 0)
			o.Outcome, o.State, o.Version = outcomeOK, "done", 6
		}},

		{"claimed after its end", ruleAfterEnd, func(h *history) {
			h.add(operation{Kind: "claim_next", Who: "w3", Todo: "t1", Token: "f8", Attempt: 3, Version: 7, Lease: at(5), Expires: at(16), Read: "todo k1", Invoked: at(10.9), Returned: at(11.1), Outcome: outcomeOK})
		}},
		{"claimed after it was canceled", ruleAfterEnd, func(h *history) {
			h.add(operation{Kind: "claim_next", Who: "w3", Todo: "t2", Token: "f8", Attempt: 2, Version: 7, Lease: at(5), Expires: at(18), Read: "todo k2", Invoked: at(12.9), Returned: at(13.1), Outcome: outcomeOK})
		}},

		{"a version goes back", ruleVersions, func(h *history) { h.find("heartbeat", "t1", 0).Version = 1 }},
		{"the last version is lower", ruleVersions, func(h *history) { h.Finals[0].Version = 5 }},
		{"too many are open", ruleLimit, func(h *history) {
			h.MaxOpen = 0
			h.MaxOpen = 1
			h.find("create_for", "t2", 0).Returned = at(9)
			h.find("create_for", "t2", 0).Invoked = at(8.9)
		}},
		{"a worker reads something else", ruleContent, func(h *history) { h.find("claim_next", "t2", 0).Read = "todo k1" }},
		{"the less urgent first", rulePriority, func(h *history) {
			o := h.find("claim_next", "t3", 0)
			o.Invoked, o.Returned, o.Expires = at(21), at(21.1), at(26)
			o = h.find("complete", "t3", 0)
			o.Invoked, o.Returned = at(21.2), at(21.3)
		}},

		{"a repeated claim returns something else", ruleClaims, func(h *history) {
			o := h.find("claim_next", "t2", 0)
			o.ClaimID, o.Invoked = "w1f1", at(10.9)
		}},
		{"a repeated claim returns nothing", ruleClaims, func(h *history) {
			o := h.find("claim_next", "t1", 1)
			o.Todo, o.Token = "", ""
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := soundHistory()
			h.find("claim_next", "t1", 1).Expires = h.find("claim_next", "t1", 0).Expires
			c.bend(h)
			var found []string
			for _, v := range check(h).violations {
				found = append(found, v.rule)
			}
			require.Contains(t, found, c.rule)
		})
	}
}

// TestWhatIsUnknownIsNoFault: what had no answer may have happened, or not.
func TestWhatIsUnknownIsNoFault(t *testing.T) {
	t.Parallel()
	for name, bend := range map[string]func(h *history){
		"an end without answer": func(h *history) {
			for n := range 2 {
				o := h.find("complete", "t1", n+1)
				o.Outcome, o.Returned = outcomeUnknown, 0
			}
		},
		"a lease ended by a release without answer": func(h *history) {
			h.add(operation{Kind: "release", Who: "w1", Todo: "t1", Token: "f1", Said: "no", Invoked: at(4), Outcome: outcomeUnknown})
			o := h.find("claim_next", "t1", 2)
			o.Invoked, o.Returned, o.Expires = at(4.1), at(4.3), at(9.2)
			h.find("complete", "t1", 0).Invoked = at(4.4)
		},
		"a fault while a server was killed": func(h *history) {
			o := h.find("create_for", "t1", 1)
			o.Outcome = outcomeInternal
			h.Disturbances = []disturbance{{at(1), at(2)}}
		},
		"a claimer that dies": func(h *history) {
			o := h.find("claim_next", "t3", 0)
			o.Invoked, o.Returned, o.Expires = at(21), at(21.1), at(26)
			o = h.find("complete", "t3", 0)
			o.Invoked, o.Returned = at(21.2), at(21.3)
			h.Disturbances = []disturbance{{at(20.5), at(22)}}
		},
		"a creation without answer took effect": func(h *history) {
			h.Finals = append(h.Finals, final{Todo: "t9", Title: "todo k9", State: "failed", Version: 12, Attempt: 8})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := soundHistory()
			h.find("claim_next", "t1", 1).Expires = h.find("claim_next", "t1", 0).Expires
			bend(h)
			require.Empty(t, check(h).violations)
		})
	}
}

func TestOrderAndFairnessAreSeen(t *testing.T) {
	t.Parallel()
	list := func(text string) []placed { // line and number, as "a1 b1 A1": capitals are urgent
		var out []placed
		for _, id := range strings.Fields(text) {
			p := placed{id: id, line: strings.ToLower(id[:1]), priority: 5}
			if id[0] < 'a' {
				p.priority = 8
			}
			out = append(out, p)
		}
		return out
	}
	created := list("a1 a2 a3 a4 a5 b1 b2 A1")
	require.NoError(t, checkOrder(created, list("A1 a1 b1 a2 b2 a3 a4 a5")))
	require.NoError(t, checkOrder(created, list("A1 a1 a2 b1 b2 a3 a4 a5")), "who comes first is not promised")
	require.ErrorContains(t, checkOrder(created, list("a1 A1 b1 a2 b2 a3 a4 a5")), "priority")
	require.ErrorContains(t, checkOrder(created, list("A1 a1 a2 a3 a4 a5 b1 b2")), "fairness")
	require.ErrorContains(t, checkOrder(created, list("A1 a2 b1 a1 b2 a3 a4 a5")), "in its turn")
}

func TestAJournalSurvivesItsProcess(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	j := &journal{out: &out}
	answered, err := j.record([]operation{{Kind: "complete", Todo: "t1"}}, func(ops []operation) []operation {
		ops[0].Outcome = outcomeOK
		return ops
	})
	require.NoError(t, err)
	require.NotZero(t, answered[0].Returned)
	_, err = j.record([]operation{{Kind: "release", Todo: "t2"}}, func(ops []operation) []operation {
		// Killed here, and in the middle of the next line.
		killed := bytes.NewBufferString(out.String() + `{"n":3,"ops":[{"wh`)
		left, err := readEntries(killed)
		require.NoError(t, err)
		require.Len(t, left, 2)
		require.Equal(t, answered[0], left[0])
		require.Equal(t, "t2", left[1].Todo)
		require.Equal(t, outcomeUnknown, left[1].Outcome)
		require.NotZero(t, left[1].Invoked)
		ops[0].Outcome = outcomeUnknown
		return ops
	})
	require.NoError(t, err)
}
