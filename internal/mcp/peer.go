package mcp

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

// What friends may do. The descriptions are short because every token of them
// is paid for by each of the friend's models in each of its conversations: the
// whole list stays under 1,500.

// errorMember stands in every output schema: clients check refusals against
// the schema as well.
const errorMember = `"error":{"type":"object"}`

const newTodoMembers = `"queue":{"type":"string"},"title":{"type":"string","maxLength":200},"idempotency_key":{"type":"string","maxLength":200},` +
	`"body":{"type":"string"},"payload":{"description":"any JSON"},"priority":{"type":"integer","minimum":1,"maximum":9},` +
	`"not_before":{"type":"string","format":"date-time"},"deadline":{"type":"string","format":"date-time"},"traceparent":{"type":"string"}`

const createInput = `{"type":"object","properties":{` + newTodoMembers +
	`,"items":{"type":"array","maxItems":100,"description":"instead of the above: a batch of such objects","items":{"type":"object","required":["queue","title","idempotency_key"]}}},"additionalProperties":false}`

const createOutput = `{"type":"object","properties":{"todo_id":{"type":"string"},"state":{"type":"string"},"version":{"type":"integer"},"deduplicated":{"type":"boolean"},` +
	`"results":{"type":"array","items":{"type":"object"}},` + errorMember + `},` +
	`"anyOf":[{"required":["todo_id","state","version","deduplicated"]},{"required":["results"]},{"required":["error"]}]}`

var createForTool = with(tool{
	name:        "create_for",
	description: "Hand work to the owner of this endpoint: a durable todo in one of the granted queues. queue, title and idempotency_key are required. Repeating a key with the same content returns the same todo.",
	hints:       hints{idempotent: true, openWorld: true},
	input:       createInput, output: createOutput,
	verb: scope.CreateFor,
}, readCreate, createTodos)

// createArgs is one todo as it travels.
type createArgs struct {
	itemsMember
	Queue          string         `json:"queue"`
	Title          string         `json:"title"`
	IdempotencyKey string         `json:"idempotency_key"`
	Body           string         `json:"body"`
	Payload        jsontext.Value `json:"payload"`
	Priority       *int           `json:"priority"`
	NotBefore      *time.Time     `json:"not_before"`
	Deadline       *time.Time     `json:"deadline"`
	Traceparent    string         `json:"traceparent"`
}

func (a *createArgs) todo() (todo.New, error) {
	err := first(
		required("queue", a.Queue), required("title", a.Title), required("idempotency_key", a.IdempotencyKey),
		text("title", a.Title, maxTitle), text("idempotency_key", a.IdempotencyKey, maxKey),
		document("body", a.Body), between("priority", a.Priority, 1, 9),
	)
	if err == nil && a.Traceparent != "" && !traceparentForm.MatchString(a.Traceparent) {
		err = refusal.Invalid("traceparent", "traceparent must be as W3C Trace Context spells it")
	}
	return todo.New{
		Queue: a.Queue, Title: a.Title, IdempotencyKey: a.IdempotencyKey, Body: a.Body, Payload: present(a.Payload),
		Priority: a.Priority, NotBefore: a.NotBefore, Deadline: a.Deadline, Traceparent: a.Traceparent,
	}, err
}

// creation is a batch of new todos.
type creation struct{ *batch[todo.New] }

func (c creation) queues() []string {
	names := make([]string, len(c.good))
	for i, n := range c.good {
		names[i] = n.Queue
	}
	return names
}

// readCreate takes the trace of the request's _meta where a todo names none.
func readCreate(v jsontext.Value, m requestMeta) (creation, error) {
	b, err := decodeBatch(v, (*createArgs).todo)
	if err != nil {
		return creation{}, err
	}
	if m.traceparent != "" && traceparentForm.MatchString(m.traceparent) {
		for i := range b.good {
			if b.good[i].Traceparent == "" {
				b.good[i].Traceparent = m.traceparent
			}
		}
	}
	return creation{b}, nil
}

func createTodos(c *call, a creation) (any, error) {
	return runBatch(c, a.batch, func(caller endpoint.Caller, items []todo.New) ([]todo.Outcome[todo.Created], error) {
		return c.h.Todos.Create(c.ctx, caller, items)
	})
}

const statusMembers = `"todo_id":{"type":"string"},"queue":{"type":"string"},"title":{"type":"string"},"state":{"type":"string"},"version":{"type":"integer"},"attempt":{"type":"integer"},` +
	`"progress":{"type":"object"},"question":{"type":"object"},"result":{},"artifacts":{"type":"array"},"public_message":{"type":"string"},` +
	`"created_at":{"type":"string"},"finished_at":{"type":"string"},"worked_by":{"type":"object"}`

var todoStatusTool = with(tool{
	name:        "todo_status",
	description: "Read a todo that you handed over: state (ready, leased, input_required, done, failed, canceled), progress, question, result. wait_seconds waits for a version after since_version.",
	hints:       hints{readOnly: true, idempotent: true},
	input:       `{"type":"object","properties":{"todo_id":{"type":"string"},"wait_seconds":{"type":"integer","minimum":0,"maximum":50},"since_version":{"type":"integer"}},"required":["todo_id"],"additionalProperties":false}`,
	output: `{"type":"object","properties":{` + statusMembers + `,` + errorMember + `},` +
		`"anyOf":[{"required":["todo_id","queue","title","state","version","attempt","artifacts","created_at"]},{"required":["error"]}]}`,
	verb: scope.TodoStatus,
}, readStatus, runStatus)

type statusArgs struct {
	TodoID       string `json:"todo_id"`
	WaitSeconds  *int64 `json:"wait_seconds"`
	SinceVersion *int64 `json:"since_version"`

	id uuid.UUID
}

func (a *statusArgs) wait() time.Duration { return seconds(a.WaitSeconds) }

func readStatus(v jsontext.Value, _ requestMeta) (*statusArgs, error) {
	a, err := decode[statusArgs](v)
	if err != nil {
		return nil, err
	}
	if a.id, err = todoID(a.TodoID); err != nil {
		return nil, err
	}
	return a, between("wait_seconds", a.WaitSeconds, 0, maxWait)
}

func runStatus(c *call, a *statusArgs) (any, error) {
	s, err := c.h.Todos.Status(c.ctx, *c.caller, a.id, c.left(a.wait()), a.SinceVersion)
	showStatus(&s)
	return s, err
}

var listCreatedTool = with(tool{
	name:        "list_created",
	description: "List the todos that you handed over, newest first.",
	hints:       hints{readOnly: true, idempotent: true},
	input:       `{"type":"object","properties":{"state":{"type":"string"},"queue":{"type":"string"},"cursor":{"type":"string"},"limit":{"type":"integer","minimum":1,"maximum":100}},"additionalProperties":false}`,
	output: `{"type":"object","properties":{"todos":{"type":"array","items":{"type":"object"}},"next_cursor":{"type":["string","null"]},` + errorMember + `},` +
		`"anyOf":[{"required":["todos","next_cursor"]},{"required":["error"]}]}`,
	verb: scope.ListCreated,
}, readList, func(c *call, a *listArgs) (any, error) {
	todos, next, err := c.h.Todos.ListCreated(c.ctx, *c.caller, a.Queue, a.state, a.Cursor, a.limit)
	for i := range todos {
		showStatus(&todos[i])
	}
	return listOf("todos", todos, next), err
})

type listArgs struct {
	Queue  string `json:"queue"`
	State  string `json:"state"`
	Cursor string `json:"cursor"`
	Limit  *int   `json:"limit"`

	state todo.State
	limit int
}

func readList(v jsontext.Value, _ requestMeta) (*listArgs, error) {
	a, err := decode[listArgs](v)
	if err != nil {
		return nil, err
	}
	if a.state, err = state(a.State); err != nil {
		return nil, err
	}
	a.limit, err = page(a.Cursor, a.Limit)
	return a, err
}

// listOf is a page; next_cursor is null on the last one.
func listOf[T any](name string, items []T, next string) map[string]any {
	if items == nil {
		items = []T{}
	}
	m := map[string]any{name: items, "next_cursor": nil}
	if next != "" {
		m["next_cursor"] = next
	}
	return m
}

const changedOutput = `{"type":"object","properties":{"todo_id":{"type":"string"},"state":{"type":"string"},"version":{"type":"integer"},` + errorMember + `},` +
	`"anyOf":[{"required":["todo_id","state","version"]},{"required":["error"]}]}`

var answerTool = with(tool{
	name:        "answer",
	description: "Answer the question of a todo in input_required; work then goes on.",
	hints:       hints{idempotent: true, openWorld: true},
	input:       `{"type":"object","properties":{"todo_id":{"type":"string"},"text":{"type":"string"},"question_id":{"type":"string"},"payload":{"description":"any JSON"},"idempotency_key":{"type":"string"}},"required":["todo_id","text"],"additionalProperties":false}`,
	output:      changedOutput,
	verb:        scope.Answer,
}, readAnswer, func(c *call, r *todo.Reply) (any, error) {
	return c.h.Todos.Answer(c.ctx, *c.caller, *r)
})

type answerArgs struct {
	TodoID         string         `json:"todo_id"`
	Text           string         `json:"text"`
	QuestionID     string         `json:"question_id"`
	Payload        jsontext.Value `json:"payload"`
	IdempotencyKey string         `json:"idempotency_key"`
}

func readAnswer(v jsontext.Value, _ requestMeta) (*todo.Reply, error) {
	a, err := decode[answerArgs](v)
	if err != nil {
		return nil, err
	}
	id, err := todoID(a.TodoID)
	if err = first(err, required("text", a.Text), document("text", a.Text), text("idempotency_key", a.IdempotencyKey, maxKey)); err != nil {
		return nil, err
	}
	r := &todo.Reply{TodoID: id, Text: a.Text, Payload: present(a.Payload), IdempotencyKey: a.IdempotencyKey}
	if a.QuestionID != "" {
		q, ok := parseID(a.QuestionID)
		if !ok {
			return nil, refusal.Invalid("question_id", "question_id must be a UUID")
		}
		r.QuestionID = &q
	}
	return r, nil
}

var cancelTodoTool = with(tool{
	name:        "cancel_todo",
	description: "Call back a todo that you handed over. One that is being worked on stops when its worker notices (cancel_requested).",
	hints:       hints{destructive: true, idempotent: true, openWorld: true},
	input:       `{"type":"object","properties":{"todo_id":{"type":"string"},"reason":{"type":"string"}},"required":["todo_id"],"additionalProperties":false}`,
	output: `{"type":"object","properties":{"todo_id":{"type":"string"},"state":{"type":"string"},"version":{"type":"integer"},"cancel_requested":{"type":"boolean"},` + errorMember + `},` +
		`"anyOf":[{"required":["todo_id","state","version","cancel_requested"]},{"required":["error"]}]}`,
	verb: scope.CancelTodo,
}, readCancel, func(c *call, a *cancelArgs) (any, error) {
	v, err := c.h.Todos.Cancel(c.ctx, *c.caller, a.id, a.Reason)
	if err == nil && v.CancelRequested == nil {
		v.CancelRequested = new(bool)
	}
	return v, err
})

type cancelArgs struct {
	TodoID string `json:"todo_id"`
	Reason string `json:"reason"`

	id uuid.UUID
}

func readCancel(v jsontext.Value, _ requestMeta) (*cancelArgs, error) {
	a, err := decode[cancelArgs](v)
	if err != nil {
		return nil, err
	}
	a.id, err = todoID(a.TodoID)
	return a, first(err, text("reason", a.Reason, maxNote))
}
