package a2a

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
)

// call is one JSON-RPC request on its way.
type call struct {
	*Handler
	r       *http.Request
	w       http.ResponseWriter
	persona persona.Persona
	request request
	version version
}

type request struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// id is the request's id as it came, null where there is none.
func (c *call) id() json.RawMessage {
	if len(c.request.ID) == 0 {
		return json.RawMessage("null")
	}
	return c.request.ID
}

// operation is what a method does, whatever its name in a version.
type operation int

const (
	send operation = iota + 1
	get
	list
	cancel
	streamSend
	subscribe
	push
	extendedCard
)

var methods = map[version]map[string]operation{
	v1: {
		"SendMessage": send, "GetTask": get, "ListTasks": list, "CancelTask": cancel,
		"SendStreamingMessage": streamSend, "SubscribeToTask": subscribe, "GetExtendedAgentCard": extendedCard,
		"CreateTaskPushNotificationConfig": push, "GetTaskPushNotificationConfig": push,
		"ListTaskPushNotificationConfigs": push, "DeleteTaskPushNotificationConfig": push,
	},
	v03: {
		"message/send": send, "tasks/get": get, "tasks/list": list, "tasks/cancel": cancel,
		"message/stream": streamSend, "tasks/resubscribe": subscribe, "agent/getAuthenticatedExtendedCard": extendedCard,
		"tasks/pushNotificationConfig/set": push, "tasks/pushNotificationConfig/get": push,
		"tasks/pushNotificationConfig/list": push, "tasks/pushNotificationConfig/delete": push,
	},
}

// serve runs the request in body.
func (c *call) serve(body []byte) {
	if err := c.read(body); err != nil {
		c.fail(err)
		return
	}
	result, err := c.run()
	switch {
	case err != nil:
		c.fail(err)
	case result != nil: // nil: a stream has answered already
		c.succeed(result)
	}
}

// read checks the body and finds the version.
func (c *call) read(body []byte) error {
	if _, err := provenance.ParseStrict(body, provenance.MaxBody); err != nil {
		if errors.Is(err, provenance.ErrNotJSON) {
			return parseError
		}
		return err
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return invalidRequest
	}
	var q request
	if err := jsonv2.Unmarshal(body, &q); err != nil {
		return invalidRequest
	}
	if !validID(q.ID) {
		return invalidRequest
	}
	c.request = q
	if q.JSONRPC != "2.0" || q.Method == "" || len(q.ID) == 0 {
		return invalidRequest
	}
	if p := bytes.TrimSpace(q.Params); len(p) > 0 && p[0] != '{' {
		return invalidParams("params must be an object")
	}
	v, ok := versionOf(c.r)
	if !ok {
		return versionUnknown
	}
	c.version = v
	return nil
}

// validID reports whether id is a string, a number or null (JSON-RPC 2.0 §4).
func validID(id json.RawMessage) bool {
	if len(id) == 0 {
		return true
	}
	switch id[0] {
	case '{', '[', 't', 'f':
		return false
	}
	return len(id) <= 256
}

// params decodes the parameters; members of other names, and the same name in
// other case, are not seen.
func (c *call) params(into any) error {
	raw := c.request.Params
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	if err := jsonv2.Unmarshal(raw, into); err != nil {
		return invalidParams("params do not have the form that the method takes")
	}
	return nil
}

func (c *call) run() (any, error) {
	op, ok := methods[c.version][c.request.Method]
	if !ok {
		return nil, methodNotFound
	}
	switch op {
	case push:
		return nil, pushNotSupported
	case extendedCard:
		return nil, unsupported
	case send, streamSend:
		return c.send(op == streamSend)
	}
	who, err := c.Requester(c.r, c.persona.Slug)
	if err != nil {
		return nil, err
	}
	asker := friend.Asker{Persona: c.persona.Slug, Key: who.Key, Identity: who.Identity}
	switch op {
	case get:
		return c.get(asker)
	case list:
		return c.list(asker)
	case subscribe:
		return c.subscribe(asker)
	}
	return c.cancel(asker)
}

type sendParams struct {
	Message *struct {
		Kind       string            `json:"kind"`
		MessageID  string            `json:"messageId"`
		TaskID     string            `json:"taskId"`
		Role       string            `json:"role"`
		Extensions []string          `json:"extensions"`
		Parts      []json.RawMessage `json:"parts"`
	} `json:"message"`
	Configuration struct {
		Push1 json.RawMessage `json:"taskPushNotificationConfig"`
		Push0 json.RawMessage `json:"pushNotificationConfig"`
	} `json:"configuration"`
}

// send stores a friend request. It always returns at once, whatever blocking or
// returnImmediately say: a person decides, in their own time.
func (c *call) send(stream bool) (any, error) {
	var p sendParams
	if err := c.params(&p); err != nil {
		return nil, err
	}
	if p.Message == nil {
		return nil, invalidParams("message is missing")
	}
	m := p.Message
	if !declared(c.r, m.Extensions) {
		return nil, extensionRequired
	}
	if given(p.Configuration.Push1) || given(p.Configuration.Push0) {
		return nil, pushNotSupported
	}
	switch {
	case m.MessageID == "" || len(m.MessageID) > 255:
		return nil, invalidParams("message.messageId must have 1 to 255 characters")
	case m.Role != c.version.userRole():
		return nil, invalidParams("message.role must be " + c.version.userRole())
	case c.version == v03 && m.Kind != "message":
		return nil, invalidParams(`message.kind must be "message"`)
	case m.TaskID != "":
		return nil, notAContinuation
	case len(m.Parts) == 0:
		return nil, invalidParams("message.parts is empty")
	}
	var data json.RawMessage
	for _, raw := range m.Parts {
		d, err := c.version.dataOf(raw)
		if err != nil {
			return nil, err
		}
		data = d
	}
	if len(m.Parts) > 1 {
		return nil, invalidParams("message.parts must hold exactly one data part")
	}
	req, _, err := c.Friends.Submit(c.r.Context(), friend.Submission{
		Persona: c.persona.Slug, MessageID: m.MessageID, Part: data, Address: c.ClientAddress(c.r),
	})
	if err != nil {
		return nil, err
	}
	if stream {
		return nil, c.stream(req, friend.Asker{Persona: c.persona.Slug, Key: req.Key})
	}
	return c.version.sent(task(req, true)), nil
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

type taskParams struct {
	ID            string `json:"id"`
	HistoryLength *int   `json:"historyLength"`
}

func (c *call) taskID() (uuid.UUID, error) {
	var p taskParams
	if err := c.params(&p); err != nil {
		return uuid.Nil, err
	}
	if p.ID == "" {
		return uuid.Nil, invalidParams("id is missing")
	}
	if p.HistoryLength != nil && *p.HistoryLength < 0 {
		return uuid.Nil, invalidParams("historyLength must not be negative")
	}
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return uuid.Nil, taskNotFound
	}
	return id, nil
}

func (c *call) get(who friend.Asker) (any, error) {
	id, err := c.taskID()
	if err != nil {
		return nil, err
	}
	req, err := c.Friends.GetOwn(c.r.Context(), who, id)
	if err != nil {
		return nil, asTask(err)
	}
	return c.version.task(task(req, true)), nil
}

func (c *call) cancel(who friend.Asker) (any, error) {
	id, err := c.taskID()
	if err != nil {
		return nil, err
	}
	req, err := c.Friends.Withdraw(c.r.Context(), who, id)
	if err != nil {
		return nil, asTask(err)
	}
	return c.version.task(task(req, true)), nil
}

// asTask turns the domain's words into A2A's.
func asTask(err error) error {
	switch refusal.CodeOf(err) {
	case refusal.NotFound:
		return taskNotFound
	case refusal.Conflict:
		return taskNotCancelable
	}
	return err
}

type listParams struct {
	ContextID            string     `json:"contextId"`
	Status               string     `json:"status"`
	PageSize             *int       `json:"pageSize"`
	PageToken            string     `json:"pageToken"`
	HistoryLength        *int       `json:"historyLength"`
	StatusTimestampAfter *time.Time `json:"statusTimestampAfter"`
	LastUpdatedAfter     *time.Time `json:"lastUpdatedAfter"` // a2a-go's 0.3 name
	IncludeArtifacts     bool       `json:"includeArtifacts"`
}

const defaultPage = 50

func (c *call) list(who friend.Asker) (any, error) {
	var p listParams
	if err := c.params(&p); err != nil {
		return nil, err
	}
	size := defaultPage
	if p.PageSize != nil {
		size = *p.PageSize
	}
	switch {
	case size < 1 || size > 100:
		return nil, invalidParams("pageSize must be from 1 to 100")
	case p.HistoryLength != nil && *p.HistoryLength < 0:
		return nil, invalidParams("historyLength must not be negative")
	}
	out := &a2a.ListTasksResponse{Tasks: []*a2a.Task{}, PageSize: size}
	f := friend.AskerFilter{Since: p.StatusTimestampAfter}
	if f.Since == nil {
		f.Since = p.LastUpdatedAfter
	}
	if p.Status != "" {
		state, known := c.version.state(p.Status)
		if !known {
			return nil, invalidParams("status is no task state of this A2A version")
		}
		if f.State = requestState(state); f.State == "" {
			return c.version.list(out), nil // a state that no friend request is ever in
		}
	}
	if p.ContextID != "" { // each request is a context of its own
		id, err := uuid.Parse(p.ContextID)
		if err != nil {
			return c.version.list(out), nil
		}
		req, err := c.Friends.GetOwn(c.r.Context(), who, id)
		if err != nil && refusal.CodeOf(err) != refusal.NotFound {
			return nil, err
		}
		if err == nil && (f.State == "" || f.State == req.State) && (f.Since == nil || !req.UpdatedAt.Before(*f.Since)) {
			out.Tasks, out.TotalSize = append(out.Tasks, task(req, p.IncludeArtifacts)), 1
		}
		return c.version.list(out), nil
	}
	reqs, next, total, err := c.Friends.ListOwn(c.r.Context(), who, f, p.PageToken, size)
	if err != nil {
		if refusal.CodeOf(err) == refusal.InvalidArgument {
			return nil, invalidParams("pageToken is not one of ours")
		}
		return nil, err
	}
	for _, req := range reqs {
		out.Tasks = append(out.Tasks, task(req, p.IncludeArtifacts))
	}
	out.NextPageToken, out.TotalSize = next, total
	return c.version.list(out), nil
}

var stateOf = map[friend.RequestState]a2a.TaskState{
	friend.AwaitingSignIn: a2a.TaskStateAuthRequired,
	friend.Pending:        a2a.TaskStateSubmitted,
	friend.Approved:       a2a.TaskStateCompleted,
	friend.Declined:       a2a.TaskStateRejected,
	friend.Withdrawn:      a2a.TaskStateCanceled,
	friend.RequestExpired: a2a.TaskStateFailed,
}

func requestState(s a2a.TaskState) friend.RequestState {
	for rs, ts := range stateOf {
		if ts == s {
			return rs
		}
	}
	return ""
}

var taskStates = []a2a.TaskState{
	a2a.TaskStateSubmitted, a2a.TaskStateWorking, a2a.TaskStateCompleted, a2a.TaskStateFailed, a2a.TaskStateCanceled,
	a2a.TaskStateInputRequired, a2a.TaskStateRejected, a2a.TaskStateAuthRequired,
}

func knownState(s a2a.TaskState) bool { return slices.Contains(taskStates, s) }
