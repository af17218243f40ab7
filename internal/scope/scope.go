package scope

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"switchboard/internal/refusal"
)

// Verb is one thing that a friend may do with a queue; each is an MCP tool.
type Verb string

// The verbs. whoami is none: every endpoint lists it.
const (
	CreateFor   Verb = "create_for"
	TodoStatus  Verb = "todo_status"
	ListCreated Verb = "list_created"
	Answer      Verb = "answer"
	CancelTodo  Verb = "cancel_todo"
)

// Verbs lists all verbs in the fixed order in which they are always shown.
func Verbs() []Verb { return []Verb{CreateFor, TodoStatus, ListCreated, Answer, CancelTodo} }

// Limits are the numbers of a scope, complete. None is infinite.
type Limits struct {
	MaxOpen         int64 `json:"max_open"`          // open todos of the line at once
	PerHour         int64 `json:"per_hour"`          // todos created in any 60 minutes
	MaxPayloadBytes int64 `json:"max_payload_bytes"` // bytes of one payload's JSON
	MaxPriority     int64 `json:"max_priority"`      // highest priority, 0 to 9
	MaxDelayDays    int64 `json:"max_delay_days"`    // how far not_before may lie ahead, days
	ExpiresInDays   int64 `json:"expires_in_days"`   // 1 to 365, from approval
}

// Defaults returns the server's default limits, which stand where both a
// request and the offer are silent.
func Defaults() Limits {
	return Limits{MaxOpen: 20, PerHour: 60, MaxPayloadBytes: 65536, MaxPriority: 5, MaxDelayDays: 7, ExpiresInDays: 90}
}

// Partial are limits of which some are left out (nil).
type Partial struct {
	MaxOpen         *int64 `json:"max_open,omitempty"`
	PerHour         *int64 `json:"per_hour,omitempty"`
	MaxPayloadBytes *int64 `json:"max_payload_bytes,omitempty"`
	MaxPriority     *int64 `json:"max_priority,omitempty"`
	MaxDelayDays    *int64 `json:"max_delay_days,omitempty"`
	ExpiresInDays   *int64 `json:"expires_in_days,omitempty"`
}

// Scope is a complete scope.
type Scope struct {
	Queues []string `json:"queues"`
	Verbs  []Verb   `json:"verbs"`
	Limits Limits   `json:"limits"`
}

// Asked is a scope as somebody wrote it, limits possibly left out.
type Asked struct {
	Queues []string `json:"queues"`
	Verbs  []Verb   `json:"verbs"`
	Limits Partial  `json:"limits,omitempty"`
}

// Offer is what a persona lets friends ask for on one queue.
type Offer struct {
	Queue  string  `json:"queue"`
	Verbs  []Verb  `json:"verbs"`
	Limits Partial `json:"limits,omitempty"`
}

// MaxQueues bounds the queues that one scope may name.
const MaxQueues = 32

// maxLimit keeps every limit far from overflow; nobody means more by a number.
const maxLimit = 1_000_000_000

// QueueName reports whether name is of the alphabet of queue names and persona
// slugs, [a-z0-9-]{1,63}.
func QueueName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return 1 <= len(name) && len(name) <= 63
}

// member ties a limit's wire name to its place, its bounds and its fixed order.
type member struct {
	name     string
	min, max int64
	full     func(*Limits) *int64
	partial  func(*Partial) **int64
}

var members = []member{
	{"max_open", 0, maxLimit, func(l *Limits) *int64 { return &l.MaxOpen }, func(p *Partial) **int64 { return &p.MaxOpen }},
	{"per_hour", 0, maxLimit, func(l *Limits) *int64 { return &l.PerHour }, func(p *Partial) **int64 { return &p.PerHour }},
	{"max_payload_bytes", 0, maxLimit, func(l *Limits) *int64 { return &l.MaxPayloadBytes }, func(p *Partial) **int64 { return &p.MaxPayloadBytes }},
	{"max_priority", 0, maxLimit, func(l *Limits) *int64 { return &l.MaxPriority }, func(p *Partial) **int64 { return &p.MaxPriority }},
	{"max_delay_days", 0, maxLimit, func(l *Limits) *int64 { return &l.MaxDelayDays }, func(p *Partial) **int64 { return &p.MaxDelayDays }},
	{"expires_in_days", 1, 365, func(l *Limits) *int64 { return &l.ExpiresInDays }, func(p *Partial) **int64 { return &p.ExpiresInDays }},
}

// over returns l with every limit that p names taken from p.
func (p Partial) over(l Limits) Limits {
	for _, m := range members {
		if v := *m.partial(&p); v != nil {
			*m.full(&l) = *v
		}
	}
	return l
}

func (p Partial) check() error {
	for _, m := range members {
		if v := *m.partial(&p); v != nil && (*v < m.min || *v > m.max) {
			return refusal.Invalid("limits."+m.name, "limits.%s must be an integer from %d to %d", m.name, m.min, m.max)
		}
	}
	return nil
}

// Partial returns the limits as a Partial that names all of them.
func (l Limits) Partial() Partial {
	var p Partial
	for _, m := range members {
		v := *m.full(&l)
		*m.partial(&p) = &v
	}
	return p
}

// Asked returns the scope as an Asked that leaves nothing out.
func (s Scope) Asked() Asked {
	return Asked{Queues: slices.Clone(s.Queues), Verbs: slices.Clone(s.Verbs), Limits: s.Limits.Partial()}
}

// within reports whether every limit of l is at most that of w.
func (l Limits) within(w Limits) (string, bool) {
	for _, m := range members {
		if *m.full(&l) > *m.full(&w) {
			return m.name, false
		}
	}
	return "", true
}

// of returns the limit of this name.
func (l Limits) of(name string) int64 {
	for _, m := range members {
		if m.name == name {
			return *m.full(&l)
		}
	}
	return 0
}

func (l Limits) least(o Limits) Limits {
	for _, m := range members {
		if v := *m.full(&o); v < *m.full(&l) {
			*m.full(&l) = v
		}
	}
	return l
}

func checkVerbs(verbs []Verb) error {
	if len(verbs) == 0 {
		return refusal.Invalid("verbs", "verbs must name at least one verb")
	}
	for i, v := range verbs {
		if !slices.Contains(Verbs(), v) {
			return refusal.Invalid("verbs", "unknown verb in verbs[%d]; there are %s", i, joinVerbs())
		}
		if slices.Contains(verbs[:i], v) {
			return refusal.Invalid("verbs", "verbs names %s twice", v)
		}
	}
	return nil
}

func joinVerbs() string {
	names := make([]string, 0, 5)
	for _, v := range Verbs() {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// Check reports what is wrong with the form of a scope as written:
// refusal.InvalidArgument that names the member.
func (a Asked) Check() error {
	if len(a.Queues) == 0 {
		return refusal.Invalid("queues", "queues must name at least one queue")
	}
	if len(a.Queues) > MaxQueues {
		return refusal.Invalid("queues", "queues names more than %d queues", MaxQueues)
	}
	for i, q := range a.Queues {
		if !QueueName(q) {
			return refusal.Invalid("queues", "queues[%d] is no queue name ([a-z0-9-]{1,63})", i)
		}
		if slices.Contains(a.Queues[:i], q) {
			return refusal.Invalid("queues", "queues names %s twice", q)
		}
	}
	if err := checkVerbs(a.Verbs); err != nil {
		return err
	}
	return a.Limits.check()
}

// Check reports what is wrong with an offer: refusal.InvalidArgument.
func (o Offer) Check() error {
	if !QueueName(o.Queue) {
		return refusal.Invalid("queue", "an offer's queue must be a queue name ([a-z0-9-]{1,63})")
	}
	if err := checkVerbs(o.Verbs); err != nil {
		return err
	}
	return o.Limits.check()
}

// Full returns the offer's limits, the server's default where it is silent.
func (o Offer) Full() Limits { return o.Limits.over(Defaults()) }

// with returns the canonical scope of these parts: queues sorted, verbs in
// their fixed order.
func with(queues []string, verbs []Verb, l Limits) Scope {
	q := slices.Clone(queues)
	sort.Strings(q)
	v := make([]Verb, 0, len(verbs))
	for _, known := range Verbs() {
		if slices.Contains(verbs, known) {
			v = append(v, known)
		}
	}
	return Scope{Queues: q, Verbs: v, Limits: l}
}

// Resolve completes a request from the offers and checks that it lies inside
// them: each named queue is offered with each named verb and limits at least as
// wide. Nothing is clipped or split; otherwise refusal.InvalidArgument.
func Resolve(a Asked, offers []Offer) (Scope, error) {
	if err := a.Check(); err != nil {
		return Scope{}, err
	}
	base, found := Limits{}, false
	for _, o := range offers {
		if !slices.Contains(a.Queues, o.Queue) || !slices.ContainsFunc(a.Verbs, func(v Verb) bool { return slices.Contains(o.Verbs, v) }) {
			continue
		}
		if !found {
			base, found = o.Full(), true
		} else {
			base = base.least(o.Full())
		}
	}
	if !found {
		return Scope{}, refusal.Invalid("scope", "the scope lies outside what this persona offers")
	}
	s := with(a.Queues, a.Verbs, a.Limits.over(base))
	if err := s.Inside(offers); err != nil {
		return Scope{}, err
	}
	return s, nil
}

// Inside reports whether the scope lies inside the offers;
// refusal.InvalidArgument when not.
func (s Scope) Inside(offers []Offer) error {
	for _, q := range s.Queues {
		for _, v := range s.Verbs {
			ok, tooWide, most := false, "", int64(0)
			for _, o := range offers {
				if o.Queue != q || !slices.Contains(o.Verbs, v) {
					continue
				}
				full := o.Full()
				name, within := s.Limits.within(full)
				if within {
					ok = true
					break
				}
				tooWide, most = name, full.of(name)
			}
			switch {
			case ok:
			case tooWide != "":
				return refusal.Invalid("scope.limits."+tooWide, "limits.%s is wider than what this persona offers, which is at most %d", tooWide, most)
			default:
				return refusal.Invalid("scope", "the scope lies outside what this persona offers")
			}
		}
	}
	return nil
}

// Narrower reports whether s is narrower than or equal to w.
func (s Scope) Narrower(w Scope) bool { return s.wider(w) == "" }

// wider names the first member in which s exceeds w, "" when none does.
func (s Scope) wider(w Scope) string {
	for _, q := range s.Queues {
		if !slices.Contains(w.Queues, q) {
			return "queues"
		}
	}
	for _, v := range s.Verbs {
		if !slices.Contains(w.Verbs, v) {
			return "verbs"
		}
	}
	if name, ok := s.Limits.within(w.Limits); !ok {
		return "limits." + name
	}
	return ""
}

// Narrow returns a completed from s and checked to be narrower than s. It
// serves both approval (s is the requested scope) and narrowing of a grant (s
// is the current one). refusal.InvalidArgument names what is wider.
func (s Scope) Narrow(a Asked) (Scope, error) {
	if err := a.Check(); err != nil {
		return Scope{}, err
	}
	n := with(a.Queues, a.Verbs, a.Limits.over(s.Limits))
	if m := n.wider(s); m != "" {
		return Scope{}, refusal.Invalid("scope."+m, "%s is wider than before; a scope can only be narrowed", m)
	}
	return n, nil
}

// Meet returns the widest scope that is narrower than both, and false when
// there is none because they share no queue or no verb.
func Meet(a, b Scope) (Scope, bool) {
	var queues []string
	for _, q := range a.Queues {
		if slices.Contains(b.Queues, q) {
			queues = append(queues, q)
		}
	}
	var verbs []Verb
	for _, v := range a.Verbs {
		if slices.Contains(b.Verbs, v) {
			verbs = append(verbs, v)
		}
	}
	if len(queues) == 0 || len(verbs) == 0 {
		return Scope{}, false
	}
	return with(queues, verbs, a.Limits.least(b.Limits)), true
}

// Allows reports whether the scope has the verb on the queue.
func (s Scope) Allows(v Verb, queue string) bool {
	return slices.Contains(s.Verbs, v) && slices.Contains(s.Queues, queue)
}

// Strings returns the OAuth scope strings, verb:queue, in fixed order.
func (s Scope) Strings() []string {
	out := make([]string, 0, len(s.Verbs)*len(s.Queues))
	for _, v := range s.Verbs {
		for _, q := range s.Queues {
			out = append(out, fmt.Sprintf("%s:%s", v, q))
		}
	}
	return out
}
