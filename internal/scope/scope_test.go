package scope_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

var (
	queueNames = []string{"a", "b", "c", "inbox"}
	queues     = rapid.SliceOfNDistinct(rapid.SampledFrom(queueNames), 1, 4, rapid.ID)
	verbs      = rapid.SliceOfNDistinct(rapid.SampledFrom(scope.Verbs()), 1, 5, rapid.ID)
)

// limit is small so that equal, narrower and wider all come up.
func limit(t *rapid.T, name string) *int64 {
	if rapid.Bool().Draw(t, name+" is left out") {
		return nil
	}
	v := rapid.Int64Range(1, 4).Draw(t, name)
	return &v
}

func partial(t *rapid.T, name string) scope.Partial {
	return scope.Partial{
		MaxOpen: limit(t, name+" max_open"), PerHour: limit(t, name+" per_hour"), MaxPayloadBytes: limit(t, name+" max_payload_bytes"),
		MaxPriority: limit(t, name+" max_priority"), MaxDelayDays: limit(t, name+" max_delay_days"), ExpiresInDays: limit(t, name+" expires_in_days"),
	}
}

func asked(t *rapid.T, name string) scope.Asked {
	return scope.Asked{Queues: queues.Draw(t, name+" queues"), Verbs: verbs.Draw(t, name+" verbs"), Limits: partial(t, name)}
}

// full draws a complete scope in its canonical form.
func full(t *rapid.T, name string) scope.Scope {
	n := func(member string) int64 { return rapid.Int64Range(1, 3).Draw(t, name+" "+member) }
	all := scope.Scope{Queues: queueNames, Verbs: scope.Verbs(), Limits: scope.Limits{
		MaxOpen: n("max_open"), PerHour: n("per_hour"), MaxPayloadBytes: n("max_payload_bytes"),
		MaxPriority: n("max_priority"), MaxDelayDays: n("max_delay_days"), ExpiresInDays: n("expires_in_days"),
	}}
	s, err := all.Narrow(scope.Asked{Queues: queues.Draw(t, name+" queues"), Verbs: verbs.Draw(t, name+" verbs")})
	require.NoError(t, err)
	return s
}

func offers(t *rapid.T) []scope.Offer {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) scope.Offer {
		return scope.Offer{Queue: rapid.SampledFrom(queueNames).Draw(t, "queue"), Verbs: verbs.Draw(t, "verbs"), Limits: partial(t, "offer")}
	}), 0, 5).Draw(t, "offers")
}

// covered says what "inside the offers" means, written anew: each named queue is
// offered with each named verb and limits at least as wide.
func covered(s scope.Scope, offers []scope.Offer) bool {
	for _, q := range s.Queues {
		for _, v := range s.Verbs {
			if !slices.ContainsFunc(offers, func(o scope.Offer) bool {
				one := scope.Scope{Queues: []string{q}, Verbs: []scope.Verb{v}, Limits: s.Limits}
				return o.Queue == q && one.Narrower(scope.Scope{Queues: []string{q}, Verbs: o.Verbs, Limits: o.Full()})
			}) {
				return false
			}
		}
	}
	return true
}

func TestNarrower_IsAPartialOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := full(t, "a"), full(t, "b"), full(t, "c")
		require.True(t, a.Narrower(a), "equal counts as narrower")
		if a.Narrower(b) && b.Narrower(a) {
			require.Equal(t, a, b, "canonical forms of equals are equal")
		}
		if a.Narrower(b) && b.Narrower(c) {
			require.True(t, a.Narrower(c))
		}
	})
}

func TestNarrower_MeansAllowsNothingMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := full(t, "a"), full(t, "b")
		more := false
		for _, q := range queueNames {
			for _, v := range scope.Verbs() {
				more = more || a.Allows(v, q) && !b.Allows(v, q)
			}
		}
		if a.Narrower(b) {
			require.False(t, more)
			require.Subset(t, b.Strings(), a.Strings())
		}
		l, w := a.Limits, b.Limits
		within := l.MaxOpen <= w.MaxOpen && l.PerHour <= w.PerHour && l.MaxPayloadBytes <= w.MaxPayloadBytes &&
			l.MaxPriority <= w.MaxPriority && l.MaxDelayDays <= w.MaxDelayDays && l.ExpiresInDays <= w.ExpiresInDays
		require.Equal(t, within && !more, a.Narrower(b))
	})
}

func TestMeet_IsTheGreatestLowerBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := full(t, "a"), full(t, "b"), full(t, "c")
		m, ok := scope.Meet(a, b)
		if !ok {
			require.False(t, c.Narrower(a) && c.Narrower(b), "there is a lower bound, so there is a meet")
			return
		}
		require.True(t, m.Narrower(a) && m.Narrower(b))
		if c.Narrower(a) && c.Narrower(b) {
			require.True(t, c.Narrower(m), "none is wider")
		}
		other, _ := scope.Meet(b, a)
		require.Equal(t, m, other)
		again, ok := scope.Meet(m, m)
		require.True(t, ok)
		require.Equal(t, m, again)
		if a.Narrower(b) {
			require.Equal(t, a, m)
		}
		// Associative, where both ways exist.
		left, okLeft := scope.Meet(m, c)
		if bc, ok := scope.Meet(b, c); ok {
			right, okRight := scope.Meet(a, bc)
			require.Equal(t, okLeft, okRight)
			require.Equal(t, left, right)
		} else {
			require.False(t, okLeft)
		}
	})
}

func TestResolve_IsInsideTheOffersOrRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, of := asked(t, "asked"), offers(t)
		s, err := scope.Resolve(a, of)
		if err != nil {
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
			require.Zero(t, s)
			return
		}
		require.True(t, covered(s, of), "%v is wider than %v", s, of)
		require.NoError(t, s.Inside(of))
		requireKept(t, a, s)
		once, err := scope.Resolve(s.Asked(), of)
		require.NoError(t, err, "what is spelt out resolves to itself")
		require.Equal(t, s, once)
	})
}

func TestResolve_RefusesOnlyWhatIsOutside(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, of := full(t, "asked"), offers(t)
		_, err := scope.Resolve(s.Asked(), of)
		require.Equal(t, covered(s, of), err == nil, "%v in %v: %v", s, of, err)
	})
}

func TestResolve_WhatIsLeftOutIsTheOffers(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	of := []scope.Offer{
		{Queue: "a", Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Partial{MaxOpen: n(200), ExpiresInDays: n(30)}},
		{Queue: "b", Verbs: []scope.Verb{scope.CreateFor}, Limits: scope.Partial{MaxOpen: n(7)}},
	}
	s, err := scope.Resolve(scope.Asked{Queues: []string{"a"}, Verbs: []scope.Verb{scope.TodoStatus, scope.CreateFor}}, of)
	require.NoError(t, err)
	want := scope.Defaults()
	want.MaxOpen, want.ExpiresInDays = 200, 30
	require.Equal(t, scope.Scope{Queues: []string{"a"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: want}, s)

	s, err = scope.Resolve(scope.Asked{Queues: []string{"b", "a"}, Verbs: []scope.Verb{scope.CreateFor}}, of)
	require.NoError(t, err)
	want.MaxOpen = 7 // of several offers the least, which lies inside each
	require.Equal(t, scope.Scope{Queues: []string{"a", "b"}, Verbs: []scope.Verb{scope.CreateFor}, Limits: want}, s)
}

func TestNarrow_IsNarrowerOrRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from, a := full(t, "from"), asked(t, "asked")
		s, err := from.Narrow(a)
		if err != nil {
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
			require.NotEmpty(t, refusal.From(err).Field)
			require.Zero(t, s)
			return
		}
		require.True(t, s.Narrower(from))
		requireKept(t, a, s)
		// What is left out stays.
		bare, err := from.Narrow(scope.Asked{Queues: from.Queues, Verbs: from.Verbs})
		require.NoError(t, err)
		require.Equal(t, from, bare)
	})
}

// requireKept: nothing that was named was dropped or changed.
func requireKept(t *rapid.T, a scope.Asked, s scope.Scope) {
	require.ElementsMatch(t, a.Queues, s.Queues)
	require.ElementsMatch(t, a.Verbs, s.Verbs)
	require.True(t, slices.IsSorted(s.Queues))
	named, err := json.Marshal(a.Limits)
	require.NoError(t, err)
	kept := s.Limits.Partial()
	require.NoError(t, json.Unmarshal(named, &kept))
	require.Equal(t, s.Limits.Partial(), kept)
}

func TestCheck_RefusesWhatIsNoScope(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	good := scope.Asked{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor}}
	require.NoError(t, good.Check())
	many := make([]string, scope.MaxQueues+1)
	for i := range many {
		many[i] = "q-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
	}
	for field, change := range map[string][]func(*scope.Asked){
		"queues": {
			func(a *scope.Asked) { a.Queues = nil },
			func(a *scope.Asked) { a.Queues = []string{"Reviews"} },
			func(a *scope.Asked) { a.Queues = []string{""} },
			func(a *scope.Asked) { a.Queues = []string{"reviews\n"} },
			func(a *scope.Asked) { a.Queues = []string{"reviews", "reviews"} },
			func(a *scope.Asked) { a.Queues = many },
		},
		"verbs": {
			func(a *scope.Asked) { a.Verbs = nil },
			func(a *scope.Asked) { a.Verbs = []scope.Verb{"whoami"} },
			func(a *scope.Asked) { a.Verbs = []scope.Verb{scope.CreateFor, scope.CreateFor} },
		},
		"limits.max_open":          {func(a *scope.Asked) { a.Limits.MaxOpen = n(-1) }, func(a *scope.Asked) { a.Limits.MaxOpen = n(1 << 60) }},
		"limits.max_priority":      {func(a *scope.Asked) { a.Limits.MaxPriority = n(-1) }},
		"limits.expires_in_days":   {func(a *scope.Asked) { a.Limits.ExpiresInDays = n(0) }, func(a *scope.Asked) { a.Limits.ExpiresInDays = n(366) }},
		"limits.per_hour":          {func(a *scope.Asked) { a.Limits.PerHour = n(-5) }},
		"limits.max_delay_days":    {func(a *scope.Asked) { a.Limits.MaxDelayDays = n(-1) }},
		"limits.max_payload_bytes": {func(a *scope.Asked) { a.Limits.MaxPayloadBytes = n(-1) }},
	} {
		for i, f := range change {
			a := good
			f(&a)
			err := a.Check()
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err), "%s %d", field, i)
			require.Equal(t, field, refusal.From(err).Field, "%d", i)
			_, err = scope.Resolve(a, []scope.Offer{{Queue: "reviews", Verbs: scope.Verbs()}})
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err), "%s %d", field, i)
		}
	}
	for _, o := range []scope.Offer{{Queue: "", Verbs: scope.Verbs()}, {Queue: "a"}, {Queue: "a", Verbs: scope.Verbs(), Limits: scope.Partial{ExpiresInDays: n(0)}}} {
		require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(o.Check()))
	}
	require.NoError(t, scope.Offer{Queue: "a", Verbs: scope.Verbs(), Limits: scope.Partial{MaxOpen: n(0)}}.Check(), "zero is a limit")
}

// FuzzNarrow: whatever a stranger or a page sends as a scope, nothing wider comes out.
func FuzzNarrow(f *testing.F) {
	f.Add([]byte(`{"queues":["reviews"],"verbs":["create_for"],"limits":{"max_open":3,"expires_in_days":30}}`))
	f.Add([]byte(`{"queues":["reviews","triage"],"verbs":["create_for","todo_status"],"limits":{}}`))
	f.Add([]byte(`{"queues":[],"verbs":null,"limits":{"per_hour":9223372036854775807}}`))
	of := []scope.Offer{{Queue: "reviews", Verbs: scope.Verbs()}, {Queue: "triage", Verbs: []scope.Verb{scope.CreateFor}}}
	current, err := scope.Resolve(scope.Asked{Queues: []string{"reviews"}, Verbs: scope.Verbs()}, of)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var a scope.Asked
		if json.Unmarshal(raw, &a) != nil {
			return
		}
		if s, err := scope.Resolve(a, of); err == nil {
			require.True(t, covered(s, of))
		} else {
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
		}
		if s, err := current.Narrow(a); err == nil {
			require.True(t, s.Narrower(current))
		} else {
			require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
		}
	})
}
