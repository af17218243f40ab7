package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"switchboard/internal/scope"
)

// scopeEditor narrows a scope row by row: what was requested (or is granted
// now), what is offered beside it, and what the human grants.
type scopeEditor struct {
	From    scope.Scope  // requested, or granted now
	Offered *scope.Scope // nil when narrowing a grant
	Queues  []choiceRow
	Verbs   []choiceRow
	Limits  []limitRow
	// What the form as read grants.
	Asked       scope.Asked
	Granted     scope.Scope
	Valid       bool
	Permissions []permission
	Tools       []string
	Ends        time.Time
	Narrowed    bool
	since       time.Time // what the days until the end count from
}

type choiceRow struct {
	Value, Label     string
	Offered, Granted bool
}

type limitRow struct {
	limit
	From, Offered, Most int64
	Value, Error        string
	Hint                string
}

func newEditor(from, offered scope.Scope) scopeEditor {
	e := scopeEditor{From: from, Offered: &offered, since: time.Now()}
	for _, q := range from.Queues {
		e.Queues = append(e.Queues, choiceRow{Value: q, Label: q, Offered: slices.Contains(offered.Queues, q)})
	}
	for _, v := range from.Verbs {
		e.Verbs = append(e.Verbs, choiceRow{Value: string(v), Label: verbWords(v), Offered: slices.Contains(offered.Verbs, v)})
	}
	for _, l := range limits {
		row := limitRow{limit: l, From: *l.of(&from.Limits), Offered: *l.of(&offered.Limits)}
		row.Most = min(row.From, row.Offered)
		if len(offered.Queues) == 0 { // nothing is offered any more: the limits say nothing
			row.Most = row.From
		}
		e.Limits = append(e.Limits, row)
	}
	return e
}

// narrowEditor edits what a grant holds now.
func narrowEditor(now scope.Scope, approved time.Time) scopeEditor {
	e := newEditor(now, now)
	e.Offered, e.since = nil, approved
	return e
}

// values are the form's first values: everything that can be granted.
func (e *scopeEditor) values() url.Values {
	v := url.Values{}
	for _, q := range e.Queues {
		if q.Offered {
			v.Add("queues", q.Value)
		}
	}
	for _, verb := range e.Verbs {
		if verb.Offered {
			v.Add("verbs", verb.Value)
		}
	}
	for _, l := range e.Limits {
		v.Set(l.Name, strconv.FormatInt(l.Most, 10))
	}
	return v
}

// read takes the form, marks what is wrong, and works out what it grants.
func (e *scopeEditor) read(f *form) {
	for i := range e.Queues {
		q := &e.Queues[i]
		if q.Granted = f.Has("queues", q.Value) && q.Offered; q.Granted {
			e.Asked.Queues = append(e.Asked.Queues, q.Value)
		}
	}
	for i := range e.Verbs {
		verb := &e.Verbs[i]
		if verb.Granted = f.Has("verbs", verb.Value) && verb.Offered; verb.Granted {
			e.Asked.Verbs = append(e.Asked.Verbs, scope.Verb(verb.Value))
		}
	}
	if len(e.Asked.Queues) == 0 {
		f.wrong("queues", "Leave at least one queue, or decline")
	}
	if len(e.Asked.Verbs) == 0 {
		f.wrong("verbs", "Leave at least one thing that it may do, or decline")
	}
	for i := range e.Limits {
		row := &e.Limits[i]
		n := f.integer(row.Name)
		switch {
		case f.Error(row.Name) != "":
		case n == nil:
			n = &row.Most // an empty field is the most that can be granted
		case *n < row.Min:
			f.wrong(row.Name, "at least "+number(row.Min))
		case *n > row.Most:
			f.wrong(row.Name, e.tooWide(row))
		}
		row.Value = f.Get(row.Name)
		if row.Value == "" && n != nil {
			row.Value = strconv.FormatInt(*n, 10)
		}
		row.Error = f.Error(row.Name)
		if row.Error != "" {
			continue
		}
		*row.part(&e.Asked.Limits) = n
		e.Narrowed = e.Narrowed || *n < row.From
		if row.Name == "max_payload_bytes" {
			row.Hint = size(*n)
		}
	}
	e.Narrowed = e.Narrowed || len(e.Asked.Queues) < len(e.From.Queues) || len(e.Asked.Verbs) < len(e.From.Verbs)
	granted, err := e.From.Narrow(e.Asked)
	if err != nil || len(f.Errors) > 0 {
		return
	}
	e.Valid, e.Granted = true, granted
	e.Permissions, e.Tools = permissions(granted), tools(granted)
	e.Ends = e.since.Add(time.Duration(granted.Limits.ExpiresInDays) * 24 * time.Hour)
}

// refused takes over what else turned out to be wrong with the form.
func (e *scopeEditor) refused(f form) {
	for i := range e.Limits {
		row := &e.Limits[i]
		row.Error = f.Error(row.Name)
		e.Valid = e.Valid && row.Error == ""
	}
	e.Valid = e.Valid && f.Error("queues") == "" && f.Error("verbs") == ""
}

// tooWide says up to where a limit may go, and what sets the bound.
func (e *scopeEditor) tooWide(row *limitRow) string {
	most := "at most " + number(row.Most)
	switch {
	case e.Offered == nil:
		return most + ", which is what it holds now"
	case row.Most == row.From:
		return most + ", which is all that was asked"
	}
	return most + ", which is all that you offer"
}

// Wrongs selects what an answer to a preview says beside the rows.
func (e scopeEditor) Wrongs() string {
	ids := []string{"#queues-wrong", "#verbs-wrong"}
	for _, name := range limitNames() {
		ids = append(ids, "#"+name+"-wrong")
	}
	return strings.Join(ids, ",")
}

func limitNames() []string {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.Name
	}
	return names
}
