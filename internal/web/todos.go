package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

type todoPage struct {
	T                                       todo.Detail
	Grant                                   *friend.Grant
	Form                                    form
	CanCancel, CanRetry, CanFree, CanAnswer bool
	RequestURL                              string
	Workers                                 map[string]worker // by the endpoint that an attempt names
}

// worker is who works an attempt, in words: its agent and the persona it serves.
type worker struct{ Agent, Persona string }

// workers finds who stands behind the attempts. An endpoint that is gone stays a bare id.
func (v *visit) workers(t todo.Detail) (map[string]worker, error) {
	found := map[string]worker{}
	var agents map[uuid.UUID]string
	for _, a := range t.Attempts {
		id := a.Worker.String()
		if _, known := found[id]; known {
			continue
		}
		e, err := v.Endpoints.Get(v.r.Context(), v.owner(), a.Worker)
		if refusal.CodeOf(err) == refusal.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if agents == nil {
			if agents, err = v.agentNames(); err != nil {
				return nil, err
			}
		}
		found[id] = worker{agents[e.AgentID], e.Persona}
	}
	return found, nil
}

// Live reports whether the todo may still change by itself.
func (p todoPage) Live() bool { return p.T.FinishedAt == nil }

func (v *visit) todo() error {
	t, err := v.ownTodo()
	if err != nil {
		return err
	}
	return v.showTodo(http.StatusOK, t, newForm(url.Values{"once": {uuid.NewString()}}))
}

func (v *visit) ownTodo() (todo.Detail, error) {
	id, err := v.id("id")
	if err != nil {
		return todo.Detail{}, err
	}
	return v.Todos.Get(v.r.Context(), v.owner(), id)
}

func (v *visit) showTodo(status int, t todo.Detail, f form) error {
	page := todoPage{T: t, Form: f}
	if t.Kind != "friend_request" {
		page.CanCancel = t.State == todo.Ready || t.State == todo.Leased && !t.CancelRequested || t.State == todo.InputRequired
		page.CanRetry = t.State == todo.Failed
		page.CanFree = t.State == todo.Leased
		page.CanAnswer = t.State == todo.InputRequired && t.Question != nil
	}
	if t.GrantID != nil {
		g, err := v.Friends.Grant(v.r.Context(), v.owner(), *t.GrantID)
		if err == nil {
			page.Grant = &g
		} else if refusal.CodeOf(err) != refusal.NotFound {
			return err
		}
	}
	var err error
	if page.Workers, err = v.workers(t); err != nil {
		return err
	}
	if v.fragment() {
		v.part("todo", "history", page)
		return nil
	}
	title := t.Title
	if t.FromFriend != nil {
		title = "A friend's todo"
	}
	v.render(status, "todo", title, "queues", page)
	return nil
}

func (v *visit) todoAct() error {
	t, err := v.ownTodo()
	if err != nil {
		return err
	}
	ctx, here, f := v.r.Context(), "/todos/"+t.TodoID.String(), newForm(v.r.PostForm)
	switch v.r.PathValue("act") {
	case "retry":
		_, err = v.Todos.Retry(ctx, v.owner(), t.TodoID)
		return v.after(err, here, "retried")
	case "release":
		_, err = v.Todos.ReleaseOwn(ctx, v.owner(), t.TodoID)
		return v.after(err, here, "released")
	case "cancel":
		changed, err := v.Todos.CancelOwn(ctx, v.owner(), t.TodoID, strings.TrimSpace(f.Get("reason")))
		if err == nil && changed.State != todo.Canceled {
			return v.redirect(here + "?done=cancel-asked")
		}
		return v.after(err, here, "canceled")
	case "answer":
		return v.todoAnswer(t, f, here)
	}
	return errNoPage
}

func (v *visit) todoAnswer(t todo.Detail, f form, here string) error {
	reply := todo.Reply{TodoID: t.TodoID, Text: strings.TrimSpace(f.Get("text")), IdempotencyKey: f.Get("once")}
	if question, err := uuid.Parse(f.Get("question_id")); err == nil {
		reply.QuestionID = &question
	}
	if reply.Text == "" {
		f.wrong("text", "write the answer")
		return v.showTodo(http.StatusUnprocessableEntity, t, f)
	}
	_, err := v.Todos.AnswerOwn(v.r.Context(), v.owner(), reply)
	switch refusal.CodeOf(err) {
	case "":
		if back := f.Get("back"); back == "inbox" {
			return v.redirect("/inbox?done=answered")
		}
		return v.redirect(here + "?done=answered")
	case refusal.Conflict: // answered meanwhile, or another question by now
		return v.redirect(here)
	}
	if err := f.refused(err, nil); err != nil {
		return err
	}
	return v.showTodo(http.StatusUnprocessableEntity, t, f)
}
