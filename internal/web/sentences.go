package web

import (
	"fmt"
	"html/template"
	"strings"

	"switchboard/internal/scope"
)

// permission is what one verb of a scope means, for people.
type permission struct {
	Verb  scope.Verb
	Icon  string
	Words template.HTML
}

// permissions puts a scope into one fixed sentence a verb, with its real
// numbers. Every place that shows a scope shows these.
func permissions(s scope.Scope) []permission {
	q := queueWords(s.Queues)
	l := s.Limits
	out := make([]permission, 0, len(s.Verbs))
	for _, v := range s.Verbs {
		p := permission{Verb: v}
		switch v {
		case scope.CreateFor:
			p.Icon = "plus"
			switch {
			case l.PerHour == 0 || l.MaxOpen == 0:
				p.Words = html("may add no todos: a limit is 0")
			default:
				p.Words = html("may add up to <b>%s an hour</b> to %s, with at most <b>%s open</b> at once", plural(l.PerHour, "todo"), q, number(l.MaxOpen))
				p.Words += html("<small>each with up to %s of payload, priority up to %d of 9, %s</small>", size(l.MaxPayloadBytes), l.MaxPriority, ahead(l.MaxDelayDays))
			}
		case scope.TodoStatus:
			p.Icon = "eye"
			p.Words = html("may follow <b>its own todos</b> in %s: state, progress, questions, result", q)
		case scope.ListCreated:
			p.Icon = "list"
			p.Words = html("may list <b>its own todos</b> in %s, and no others", q)
		case scope.Answer:
			p.Icon = "reply"
			p.Words = html("may answer what your agent asks about <b>its own todos</b> in %s", q)
		case scope.CancelTodo:
			p.Icon = "x"
			p.Words = html("may cancel <b>its own todos</b> in %s", q)
		}
		out = append(out, p)
	}
	return out
}

func ahead(days int64) string {
	if days == 0 {
		return "to be worked on at once"
	}
	return "scheduled up to " + plural(days, "day") + " ahead"
}

// queueWords names queues in bold. Their alphabet needs no escaping, and gets it all the same.
func queueWords(queues []string) template.HTML {
	words := make([]string, len(queues))
	for i, q := range queues {
		words[i] = "<b>" + template.HTMLEscapeString(q) + "</b>"
	}
	switch len(words) {
	case 0:
		return "no queue"
	case 1:
		return template.HTML(words[0]) //nolint:gosec // escaped above
	}
	last := len(words) - 1
	return template.HTML(strings.Join(words[:last], ", ") + " and " + words[last]) //nolint:gosec // escaped above
}

// html fills a fixed text with escaped words, or with HTML of ours.
func html(format string, args ...any) template.HTML {
	for i, a := range args {
		switch v := a.(type) {
		case template.HTML, int64, int:
		case string:
			args[i] = template.HTMLEscapeString(v)
		default:
			args[i] = template.HTMLEscapeString(fmt.Sprint(v))
		}
	}
	return template.HTML(fmt.Sprintf(format, args...)) //nolint:gosec // the format is ours, the rest escaped
}

// tools are the MCP tools that a scope gives its friend, in their fixed order.
func tools(s scope.Scope) []string {
	out := make([]string, 0, len(s.Verbs)+1)
	for _, v := range s.Verbs {
		out = append(out, string(v))
	}
	return append(out, "whoami")
}

var verbNames = map[scope.Verb]string{
	scope.CreateFor: "add todos", scope.TodoStatus: "follow its todos", scope.ListCreated: "list its todos",
	scope.Answer: "answer questions", scope.CancelTodo: "cancel its todos",
}

// verbWords names a verb in a few words.
func verbWords(v scope.Verb) string { return verbNames[v] }

// limit ties a limit's wire name to its words.
type limit struct {
	Name, Label, Unit string
	Min, Max          int64
	of                func(*scope.Limits) *int64
	part              func(*scope.Partial) **int64
}

var limits = []limit{
	{"per_hour", "Todos an hour", "an hour", 0, 1_000_000_000, func(l *scope.Limits) *int64 { return &l.PerHour }, func(p *scope.Partial) **int64 { return &p.PerHour }},
	{"max_open", "Open at once", "open", 0, 1_000_000_000, func(l *scope.Limits) *int64 { return &l.MaxOpen }, func(p *scope.Partial) **int64 { return &p.MaxOpen }},
	{"max_payload_bytes", "Payload of one todo", "bytes", 0, 1_000_000_000, func(l *scope.Limits) *int64 { return &l.MaxPayloadBytes }, func(p *scope.Partial) **int64 { return &p.MaxPayloadBytes }},
	{"max_priority", "Highest priority", "of 9", 0, 9, func(l *scope.Limits) *int64 { return &l.MaxPriority }, func(p *scope.Partial) **int64 { return &p.MaxPriority }},
	{"max_delay_days", "Scheduled ahead", "days", 0, 1_000_000_000, func(l *scope.Limits) *int64 { return &l.MaxDelayDays }, func(p *scope.Partial) **int64 { return &p.MaxDelayDays }},
	{"expires_in_days", "Ends after", "days", 1, 365, func(l *scope.Limits) *int64 { return &l.ExpiresInDays }, func(p *scope.Partial) **int64 { return &p.ExpiresInDays }},
}
