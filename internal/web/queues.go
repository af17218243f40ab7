package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

type queuesPage struct {
	Queues []todo.Queue
	Form   form
	Start  start
	Next   string
}

func (v *visit) queues() error { return v.showQueues(http.StatusOK, newForm(nil)) }

func (v *visit) showQueues(status int, f form) error {
	queues, next, err := v.Todos.Queues(v.r.Context(), v.owner(), v.r.URL.Query().Get("cursor"), listPage)
	if err != nil {
		return err
	}
	page := queuesPage{Queues: queues, Form: f, Next: next}
	if page.Start, err = v.start(v.r.Context()); err != nil {
		return err
	}
	v.render(status, "queues", "Queues", "queues", page)
	return nil
}

// queueCreate needs no key against sending it twice: a queue's name is unique.
func (v *visit) queueCreate() error {
	f := newForm(v.r.PostForm)
	q, err := v.Todos.CreateQueue(v.r.Context(), v.owner(), strings.TrimSpace(f.Get("name")), strings.TrimSpace(f.Get("description")))
	if err == nil {
		return v.redirect("/queues/" + q.Name + "?done=created")
	}
	if err := f.refused(err, nil); err != nil {
		return err
	}
	if refusal.CodeOf(err) == refusal.Conflict {
		f.wrong("name", f.Notice())
		delete(f.Errors, "")
	}
	return v.showQueues(http.StatusUnprocessableEntity, f)
}

// column is one state of the board.
type column struct {
	State todo.State
	Name  string
	Todos []todo.Detail
	Count int64
	More  string // cursor
}

type queuePage struct {
	Q       todo.Queue
	Columns []column
	State   string // one state only, as a list
	Day     day
	Form    form
}

const boardColumn = 8

// queue shows a queue's board, or one state of it as a list.
func (v *visit) queue() error {
	q, err := v.ownQueue()
	if err != nil {
		return err
	}
	return v.showQueue(http.StatusOK, q, newForm(url.Values{"once": {uuid.NewString()}}))
}

func (v *visit) ownQueue() (todo.Queue, error) {
	name := v.r.PathValue("name")
	cursor := ""
	for {
		queues, next, err := v.Todos.Queues(v.r.Context(), v.owner(), cursor, listPage)
		if err != nil {
			return todo.Queue{}, err
		}
		for _, q := range queues {
			if q.Name == name {
				return q, nil
			}
		}
		if next == "" {
			return todo.Queue{}, errNoPage
		}
		cursor = next
	}
}

func (v *visit) showQueue(status int, q todo.Queue, f form) error {
	ctx := v.r.Context()
	page := queuePage{Q: q, Form: f, State: v.r.URL.Query().Get("state")}
	for _, c := range []column{
		{State: todo.Ready, Name: "Ready", Count: q.Ready},
		{State: todo.Leased, Name: "Leased", Count: q.Leased},
		{State: todo.InputRequired, Name: "Needs an answer", Count: q.InputRequired},
		{State: todo.Done, Name: "Done", Count: -1},
		{State: todo.Failed, Name: "Failed", Count: -1},
		{State: todo.Canceled, Name: "Canceled", Count: -1},
	} {
		most, cursor := boardColumn, ""
		if page.State != "" {
			if page.State != string(c.State) {
				continue
			}
			most, cursor = listPage, v.r.URL.Query().Get("cursor")
		}
		var err error
		if c.Todos, c.More, err = v.Todos.List(ctx, v.owner(), todo.Filter{Queue: q.Name, State: c.State}, cursor, most); err != nil {
			return err
		}
		page.Columns = append(page.Columns, c)
	}
	if page.State != "" && len(page.Columns) == 0 {
		return errNoPage
	}
	if v.fragment() {
		v.part("queue", "board", page)
		return nil
	}
	if page.State == "" {
		counted, err := v.Todos.Day(ctx, v.owner(), q.Name)
		if err != nil {
			return err
		}
		page.Day = newDay(counted)
	}
	v.render(status, "queue", q.Name, "queues", page)
	return nil
}

func (v *visit) queueChange() error {
	q, err := v.ownQueue()
	if err != nil {
		return err
	}
	f, here := newForm(v.r.PostForm), "/queues/"+q.Name
	yes, no := true, false
	switch f.Get("do") {
	case "pause":
		_, err := v.Todos.UpdateQueue(v.r.Context(), v.owner(), q.Name, todo.QueuePatch{Paused: &yes})
		return v.after(err, here, "paused")
	case "resume":
		_, err := v.Todos.UpdateQueue(v.r.Context(), v.owner(), q.Name, todo.QueuePatch{Paused: &no})
		return v.after(err, here, "resumed")
	}
	description := strings.TrimSpace(f.Get("description"))
	patch := todo.QueuePatch{Description: &description}
	for name, to := range map[string]**int{"max_attempts": &patch.MaxAttempts, "retention_days": &patch.RetentionDays} {
		if n := f.integer(name); n != nil {
			small := int(min(*n, 1<<30))
			*to = &small
		}
	}
	if !f.Bad() {
		_, err = v.Todos.UpdateQueue(v.r.Context(), v.owner(), q.Name, patch)
		if err == nil {
			return v.redirect(here + "?done=saved")
		}
		if err := f.refused(err, nil); err != nil {
			return err
		}
	}
	return v.showQueue(http.StatusUnprocessableEntity, q, f)
}

// todoCreate adds a todo of the human's own. Its key makes a second sending find the first.
func (v *visit) todoCreate() error {
	q, err := v.ownQueue()
	if err != nil {
		return err
	}
	f := newForm(v.r.PostForm)
	if _, err := uuid.Parse(f.Get("once")); err != nil {
		return refusal.New(refusal.InvalidArgument, "the form is incomplete; load the page again")
	}
	n := todo.New{Queue: q.Name, Title: strings.TrimSpace(f.Get("title")), Body: f.Get("body"), IdempotencyKey: "page:" + f.Get("once")}
	if p := f.integer("priority"); p != nil {
		priority := int(min(*p, 1000))
		n.Priority = &priority
	}
	if !f.Bad() {
		made, err := v.Todos.CreateOwn(v.r.Context(), v.owner(), n)
		if err == nil {
			done := "created"
			if made.Deduplicated {
				done = "again"
			}
			return v.redirect("/todos/" + made.TodoID.String() + "?done=" + done)
		}
		if err := f.refused(err, nil); err != nil {
			return err
		}
	}
	return v.showQueue(http.StatusUnprocessableEntity, q, f)
}
