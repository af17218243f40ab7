package a2a

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/provenance"
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
			return errParseError
		}
		c.request.ID = looseID(body)
		return err
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return errInvalidRequest
	}
	var q request
	if err := jsonv2.Unmarshal(body, &q); err != nil {
		return errInvalidRequest
	}
	if !validID(q.ID) {
		return errInvalidRequest
	}
	c.request = q
	if !carriesJSON(c.r) {
		return errBodyType
	}
	if q.JSONRPC != "2.0" || q.Method == "" || len(q.ID) == 0 {
		return errInvalidRequest
	}
	if !given(q.Params) { // null is how some clients leave it out
		c.request.Params = nil
	} else if q.Params[0] != '{' {
		return invalidParams("params must be an object")
	}
	v, ok := versionOf(c.r)
	if !ok {
		return errVersionUnknown
	}
	c.version = v
	return nil
}

// looseID finds the id in a body that is JSON and yet refused, so that its
// sender can tell which request was; nil when the id itself is no good.
func looseID(body []byte) json.RawMessage {
	var q struct {
		ID json.RawMessage `json:"id"`
	}
	if err := jsonv2.Unmarshal(body, &q, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil
	}
	if _, err := provenance.ParseStrict(q.ID, maxID); err != nil || !validID(q.ID) {
		return nil
	}
	return q.ID
}

// maxID bounds the id that is repeated in the answer, in bytes.
const maxID = 256

// validID reports whether id is a string, a number or null (JSON-RPC 2.0 §4).
func validID(id json.RawMessage) bool {
	if len(id) == 0 {
		return true
	}
	switch id[0] {
	case '{', '[', 't', 'f':
		return false
	}
	return len(id) <= maxID
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
		return nil, errMethodNotFound
	}
	switch op {
	case push:
		return nil, errPush
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
	case extendedCard:
		return c.extendedCard(asker)
	}
	return c.cancel(asker)
}

type sendParams struct {
	Message *struct {
		Kind       string            `json:"kind"`
		MessageID  string            `json:"messageId"`
		ContextID  string            `json:"contextId"`
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
		return nil, errExtensionRequired
	}
	if given(p.Configuration.Push1) || given(p.Configuration.Push0) {
		return nil, errPush
	}
	switch {
	case m.MessageID == "" || len(m.MessageID) > 255:
		return nil, invalidParams("message.messageId must have 1 to 255 characters")
	case m.Role != c.version.userRole():
		return nil, invalidParams("message.role must be " + c.version.userRole())
	case c.version == v03 && m.Kind != "message":
		return nil, invalidParams(`message.kind must be "message"`)
	case m.TaskID != "":
		return nil, errNotAContinuation
	case m.ContextID != "": // A2A 1.0 §3.4.1: who cannot accept one must refuse it
		return nil, invalidParams("message.contextId: each friend request is a context of its own; leave it out")
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
	c.w.Header().Set(c.version.extensionHeader(), Extension) // activated (A2A 1.0 §4.6)
	if stream {
		return nil, c.stream(req, friend.Asker{Persona: c.persona.Slug, Key: req.Key}, "")
	}
	return c.version.sent(task(req, true)), nil
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
