package mcp

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"switchboard/internal/todo"
)

// appendContent appends a tool's result as JSON without white space. What a worker
// gets at every step of a todo's life is written by hand, in a third of the time;
// a test holds that it is what marshaling says.
func appendContent(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case todo.Created:
		b = appendState(b, v.TodoID, v.State, v.Version)
		b = append(b, `,"deduplicated":`...)
		b = strconv.AppendBool(b, v.Deduplicated)
		return append(b, '}'), nil
	case todo.Beaten:
		b = appendState(b, v.TodoID, v.State, v.Version)
		b = append(b, `,"lease_expires_at":`...)
		b = appendTime(b, v.LeaseExpiresAt)
		b = append(b, `,"cancel_requested":`...)
		b = strconv.AppendBool(b, v.CancelRequested)
		return append(b, '}'), nil
	case todo.Changed:
		b = appendState(b, v.TodoID, v.State, v.Version)
		if v.CancelRequested != nil {
			b = append(b, `,"cancel_requested":`...)
			b = strconv.AppendBool(b, *v.CancelRequested)
		}
		return append(b, '}'), nil
	case claimedList:
		b = append(b, `{"todos":[`...)
		for i := range v.Todos {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendClaimed(b, &v.Todos[i]); err != nil {
				return b, err
			}
		}
		return append(b, `]}`...), nil
	}
	return appendAny(b, v)
}

func appendAny(b []byte, v any) ([]byte, error) {
	content, err := jsonv2.Marshal(v, marshaling)
	return append(b, content...), err
}

func appendClaimed(b []byte, c *todo.Claimed) (_ []byte, err error) {
	b = append(b, `{"todo_id":`...)
	b = appendID(b, c.TodoID)
	b = append(b, `,"queue":`...)
	b = appendString(b, c.Queue)
	b = append(b, `,"state":`...)
	b = appendString(b, c.State)
	b = append(b, `,"version":`...)
	b = strconv.AppendInt(b, c.Version, 10)
	b = append(b, `,"lease_token":`...)
	b = appendString(b, c.LeaseToken)
	b = append(b, `,"lease_expires_at":`...)
	b = appendTime(b, c.LeaseExpiresAt)
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(c.Attempt), 10)
	b = append(b, `,"priority":`...)
	b = strconv.AppendInt(b, int64(c.Priority), 10)
	if c.Deadline != nil {
		b = append(b, `,"deadline":`...)
		b = appendTime(b, *c.Deadline)
	}
	if c.FromFriend != nil {
		b = append(b, `,"from_friend":`...)
		if b, err = appendAny(b, c.FromFriend); err != nil {
			return b, err
		}
	}
	if c.Title != "" {
		b = append(b, `,"title":`...)
		b = appendString(b, c.Title)
	}
	if c.Body != "" {
		b = append(b, `,"body":`...)
		b = appendString(b, c.Body)
	}
	if len(c.Payload) > 0 {
		b = append(b, `,"payload":`...)
		if b, err = appendDocument(b, c.Payload); err != nil {
			return b, err
		}
	}
	b = append(b, `,"exchanges":`...)
	if b, err = appendList(b, c.Exchanges); err != nil {
		return b, err
	}
	b = append(b, `,"prior_attempts":`...)
	if b, err = appendList(b, c.PriorAttempts); err != nil {
		return b, err
	}
	b = append(b, `,"artifacts":`...)
	if b, err = appendList(b, c.Artifacts); err != nil {
		return b, err
	}
	return append(b, '}'), nil
}

// appendState begins the object that all changes of a todo answer with.
func appendState(b []byte, id uuid.UUID, state todo.State, version int64) []byte {
	b = append(b, `{"todo_id":`...)
	b = appendID(b, id)
	b = append(b, `,"state":`...)
	b = appendString(b, state)
	b = append(b, `,"version":`...)
	return strconv.AppendInt(b, version, 10)
}

func appendID(b []byte, id uuid.UUID) []byte {
	b = append(b, '"')
	b = hex.AppendEncode(b, id[:4])
	for at := 4; at < 10; at += 2 {
		b = append(b, '-')
		b = hex.AppendEncode(b, id[at:at+2])
	}
	b = append(b, '-')
	b = hex.AppendEncode(b, id[10:])
	return append(b, '"')
}

func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

func appendString[S ~string](b []byte, s S) []byte {
	b, _ = jsontext.AppendQuote(b, s) // what is no UTF-8 is replaced
	return b
}

// appendDocument appends JSON as it was given to us, without white space.
func appendDocument(b []byte, d json.RawMessage) ([]byte, error) {
	return jsontext.AppendFormat(b, d, lenient)
}

func appendList[T any](b []byte, list []T) ([]byte, error) {
	if len(list) == 0 {
		return append(b, `[]`...), nil
	}
	return appendAny(b, list)
}
