package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/human"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

type queueView struct {
	Name          string    `json:"name"`
	Description   string    `json:"description"`
	Paused        bool      `json:"paused"`
	MaxAttempts   int       `json:"max_attempts"`
	RetentionDays int       `json:"retention_days"`
	Ready         int64     `json:"ready" doc:"Counted up to 10000."`
	Leased        int64     `json:"leased"`
	InputRequired int64     `json:"input_required"`
	CreatedAt     time.Time `json:"created_at"`
}

func viewQueue(q todo.Queue) queueView {
	return queueView{
		Name: q.Name, Description: q.Description, Paused: q.Paused, MaxAttempts: q.MaxAttempts, RetentionDays: q.RetentionDays,
		Ready: q.Ready, Leased: q.Leased, InputRequired: q.InputRequired, CreatedAt: q.CreatedAt,
	}
}

func showQueue(q todo.Queue) *tagged[queueView] { return tag(q.Version, viewQueue(q)) }

// todoView is todo.Detail with its id named as everywhere in REST.
type todoView struct {
	ID              uuid.UUID           `json:"id"`
	Queue           string              `json:"queue"`
	Kind            string              `json:"kind" enum:"work,friend_request"`
	State           todo.State          `json:"state"`
	Version         int64               `json:"version"`
	Priority        int                 `json:"priority"`
	Attempt         int                 `json:"attempt"`
	MaxAttempts     int                 `json:"max_attempts"`
	NotBefore       *time.Time          `json:"not_before,omitempty"`
	Deadline        *time.Time          `json:"deadline,omitempty"`
	CancelRequested bool                `json:"cancel_requested"`
	LeaseExpiresAt  *time.Time          `json:"lease_expires_at,omitempty"`
	FromFriend      *todo.FromFriend    `json:"from_friend,omitempty"`
	GrantID         *uuid.UUID          `json:"grant_id,omitempty"`
	Title           string              `json:"title,omitempty"`
	Body            string              `json:"body,omitempty"`
	Payload         json.RawMessage     `json:"payload,omitempty"`
	Progress        *todo.Progress      `json:"progress,omitempty"`
	Question        *todo.Question      `json:"question,omitempty"`
	Result          json.RawMessage     `json:"result,omitempty"`
	PublicMessage   string              `json:"public_message,omitempty"`
	Artifacts       []todo.Artifact     `json:"artifacts"`
	Attempts        []todo.PriorAttempt `json:"attempts,omitempty"`
	Exchanges       []todo.Exchange     `json:"exchanges,omitempty"`
	CreatedAt       time.Time           `json:"created_at"`
	FinishedAt      *time.Time          `json:"finished_at,omitempty"`
}

func viewTodo(d todo.Detail) todoView {
	return todoView{
		ID: d.TodoID, Queue: d.Queue, Kind: d.Kind, State: d.State, Version: d.Version, Priority: d.Priority, Attempt: d.Attempt,
		MaxAttempts: d.MaxAttempts, NotBefore: d.NotBefore, Deadline: d.Deadline, CancelRequested: d.CancelRequested,
		LeaseExpiresAt: d.LeaseExpiresAt, FromFriend: d.FromFriend, GrantID: d.GrantID, Title: d.Title, Body: d.Body, Payload: d.Payload,
		Progress: d.Progress, Question: d.Question, Result: d.Result, PublicMessage: d.PublicMessage, Artifacts: orEmpty(d.Artifacts),
		Attempts: d.Attempts, Exchanges: d.Exchanges, CreatedAt: d.CreatedAt, FinishedAt: d.FinishedAt,
	}
}

func showTodo(d todo.Detail) *tagged[todoView] { return tag(d.Version, viewTodo(d)) }

type changedView struct {
	ID              uuid.UUID  `json:"id"`
	State           todo.State `json:"state"`
	Version         int64      `json:"version"`
	CancelRequested *bool      `json:"cancel_requested,omitempty"`
}

func viewChanged(c todo.Changed) changedView {
	return changedView{ID: c.TodoID, State: c.State, Version: c.Version, CancelRequested: c.CancelRequested}
}

type inboxView struct {
	ID              uuid.UUID      `json:"id"`
	Kind            string         `json:"kind" enum:"friend_request,todo,question"`
	FriendRequestID *uuid.UUID     `json:"friend_request_id,omitempty"`
	Queue           string         `json:"queue"`
	Title           string         `json:"title"`
	Question        *todo.Question `json:"question,omitempty"`
	CreatedAt       time.Time      `json:"created_at"`
}

func viewInbox(i todo.InboxItem) inboxView {
	return inboxView{ID: i.ID, Kind: i.Kind, FriendRequestID: i.FriendRequestID, Queue: i.Queue, Title: i.Title, Question: i.Question, CreatedAt: i.CreatedAt}
}

var todoStates = []todo.State{todo.Ready, todo.Leased, todo.InputRequired, todo.Done, todo.Failed, todo.Canceled}

func todoState(s string) (todo.State, error) {
	if s == "" || slices.Contains(todoStates, todo.State(s)) {
		return todo.State(s), nil
	}
	return "", refusal.Invalid("state", "state is ready, leased, input_required, done, failed or canceled")
}

func (a *api) registerTodos() {
	a.registerQueues()
	route(a, operation("list-inbox", http.MethodGet, "/v1/inbox", "What waits for me, approvals first", "inbox", reading, 200),
		func(ctx context.Context, who human.Human, in *Page) (*body[list[inboxView]], error) {
			return page(viewInbox)(a.Todos.Inbox(ctx, who.ID, in.Cursor, in.Limit))
		})
	type todos struct {
		Page
		Queue string `query:"queue" maxLength:"63"`
		State string `query:"state" maxLength:"20"`
		Grant string `query:"grant_id" maxLength:"36"`
	}
	route(a, operation("list-todos", http.MethodGet, "/v1/todos", "My todos", "todos", reading, 200),
		func(ctx context.Context, who human.Human, in *todos) (*body[list[todoView]], error) {
			state, err := todoState(in.State)
			if err != nil {
				return nil, err
			}
			f := todo.Filter{Queue: in.Queue, State: state}
			if in.Grant != "" {
				if f.GrantID, err = uuid.Parse(in.Grant); err != nil {
					return nil, refusal.Invalid("grant_id", "not an id")
				}
			}
			return page(viewTodo)(a.Todos.List(ctx, who.ID, f, in.Cursor, in.Limit))
		})
	route(a, operation("get-todo", http.MethodGet, "/v1/todos/{id}", "One todo's whole history", "todos", reading, 200),
		func(ctx context.Context, who human.Human, in *ByID) (*tagged[todoView], error) {
			return answer(showTodo)(a.Todos.Get(ctx, who.ID, in.ID.UUID))
		})
	type newTodo struct {
		IdempotencyKey string `header:"Idempotency-Key" maxLength:"255"`
		Body           struct {
			Queue          string          `json:"queue" maxLength:"63"`
			Title          string          `json:"title" minLength:"1"`
			Body           string          `json:"body,omitempty"`
			Payload        json.RawMessage `json:"payload,omitempty"`
			Priority       *int            `json:"priority,omitempty"`
			NotBefore      *time.Time      `json:"not_before,omitempty"`
			Deadline       *time.Time      `json:"deadline,omitempty"`
			IdempotencyKey string          `json:"idempotency_key,omitempty" maxLength:"255"`
		}
	}
	type createdView struct {
		ID           uuid.UUID  `json:"id"`
		State        todo.State `json:"state"`
		Version      int64      `json:"version"`
		Deduplicated bool       `json:"deduplicated"`
	}
	route(a, operation("create-todo", http.MethodPost, "/v1/todos", "Add a todo of my own", "todos", owning, 201),
		func(ctx context.Context, who human.Human, in *newTodo) (*body[createdView], error) {
			b := in.Body
			key := b.IdempotencyKey
			if key == "" {
				key = in.IdempotencyKey // the queue's own deduplication serves the header, in the same transaction
			}
			if key == "" {
				key = uuid.Must(uuid.NewV7()).String()
			}
			c, err := a.Todos.CreateOwn(ctx, who.ID, todo.New{
				Queue: b.Queue, Title: b.Title, Body: b.Body, Payload: b.Payload, Priority: b.Priority, NotBefore: b.NotBefore, Deadline: b.Deadline,
				IdempotencyKey: key,
			})
			if err != nil {
				return nil, err
			}
			return &body[createdView]{createdView{ID: c.TodoID, State: c.State, Version: c.Version, Deduplicated: c.Deduplicated}}, nil
		})
	type cancelTodo struct {
		ByID
		Body *struct {
			Reason string `json:"reason,omitempty" maxLength:"2000"`
		}
	}
	route(a, operation("cancel-todo", http.MethodPost, "/v1/todos/{id}/cancel", "Cancel a todo; a leased one is asked to stop", "todos", writing, 200),
		func(ctx context.Context, who human.Human, in *cancelTodo) (*body[changedView], error) {
			reason := ""
			if in.Body != nil {
				reason = in.Body.Reason
			}
			return answer(plain(viewChanged))(a.Todos.CancelOwn(ctx, who.ID, in.ID.UUID, reason))
		})
	type answerTodo struct {
		ByID
		Body struct {
			Text       string          `json:"text" minLength:"1" maxLength:"65536"`
			QuestionID *uuid.UUID      `json:"question_id,omitempty"`
			Payload    json.RawMessage `json:"payload,omitempty"`
		}
	}
	route(a, operation("answer-todo", http.MethodPost, "/v1/todos/{id}/answer", "Answer a worker's question", "todos", writing, 200),
		func(ctx context.Context, who human.Human, in *answerTodo) (*body[changedView], error) {
			return answer(plain(viewChanged))(a.Todos.AnswerOwn(ctx, who.ID, todo.Reply{TodoID: in.ID.UUID, Text: in.Body.Text, QuestionID: in.Body.QuestionID, Payload: in.Body.Payload}))
		})
	for _, act := range []struct {
		name, summary string
		do            func(context.Context, uuid.UUID, uuid.UUID) (todo.Changed, error)
	}{
		{"retry", "Give a failed todo a fresh budget", a.Todos.Retry},
		{"release", "Take a leased todo from its worker", a.Todos.ReleaseOwn},
	} {
		route(a, operation(act.name+"-todo", http.MethodPost, "/v1/todos/{id}/"+act.name, act.summary, "todos", writing, 200),
			func(ctx context.Context, who human.Human, in *ByID) (*body[changedView], error) {
				return answer(plain(viewChanged))(act.do(ctx, who.ID, in.ID.UUID))
			})
	}
}

func (a *api) registerQueues() {
	type newQueue struct {
		Idempotency
		Body struct {
			Name        string `json:"name" maxLength:"63" pattern:"^[a-z0-9-]{1,63}$" example:"reviews"`
			Description string `json:"description,omitempty" maxLength:"2000"`
		}
	}
	route(a, operation("create-queue", http.MethodPost, "/v1/queues", "Make a queue", "queues", owning, 201),
		func(ctx context.Context, who human.Human, in *newQueue) (*tagged[queueView], error) {
			return answer(showQueue)(a.Todos.CreateQueue(ctx, who.ID, in.Body.Name, in.Body.Description))
		})
	route(a, operation("list-queues", http.MethodGet, "/v1/queues", "My queues", "queues", reading, 200),
		func(ctx context.Context, who human.Human, in *Page) (*body[list[queueView]], error) {
			return page(viewQueue)(a.Todos.Queues(ctx, who.ID, in.Cursor, in.Limit))
		})
	type patchQueue struct {
		Name string `path:"name"`
		IfMatch
		Body struct {
			Description   *string `json:"description,omitempty" maxLength:"2000"`
			Paused        *bool   `json:"paused,omitempty"`
			MaxAttempts   *int    `json:"max_attempts,omitempty" minimum:"1" maximum:"100"`
			RetentionDays *int    `json:"retention_days,omitempty" minimum:"1" maximum:"3650"`
		}
	}
	route(a, operation("update-queue", http.MethodPatch, "/v1/queues/{name}", "Change or pause a queue", "queues", owning, 200),
		func(ctx context.Context, who human.Human, in *patchQueue) (*tagged[queueView], error) {
			v, err := in.version()
			if err != nil {
				return nil, err
			}
			return answer(showQueue)(a.Todos.UpdateQueue(ctx, who.ID, in.Name, todo.QueuePatch{
				Description: in.Body.Description, Paused: in.Body.Paused, MaxAttempts: in.Body.MaxAttempts, RetentionDays: in.Body.RetentionDays, IfVersion: v,
			}))
		})
}
