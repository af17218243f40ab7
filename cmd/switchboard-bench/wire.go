package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// mcpVersion is the era that the clients speak.
const mcpVersion = "2025-11-25"

// target is an MCP endpoint as a client reaches it.
type target struct {
	Addr       string `json:"addr"` // to connect to
	Host       string `json:"host"` // of the instance's name
	Path       string `json:"path"`
	Credential string `json:"credential"`
	Queue      string `json:"queue"`
}

func (h home) at(addr, host string) target {
	return target{Addr: addr, Host: host, Path: "/mcp/" + h.ID.String(), Credential: h.Credential, Queue: h.Queue}
}

func targets(homes []home, addr, host string) []target {
	out := make([]target, len(homes))
	for i, h := range homes {
		out[i] = h.at(addr, host)
	}
	return out
}

// connection carries tools/call requests one after another to one target.
type connection interface {
	// call returns the body of the answer, which is good until the next call.
	call(ctx context.Context, body []byte) ([]byte, error)
	close()
}

// appendCall begins a tools/call; the arguments follow, and then "}}".
func appendCall(b []byte, tool string) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`...)
	b = append(b, tool...)
	return append(b, `","arguments":`...)
}

func appendCreate(b []byte, queue, key string) []byte {
	b = append(b, `{"queue":"`...)
	b = append(b, queue...)
	b = append(b, `","title":"`+title+`","idempotency_key":"`...)
	b = append(b, key...)
	return append(b, `","body":"`+body+`","payload":`+payload+`}`...)
}

// What a todo says, in every contender.
const (
	title   = "Review 7"
	body    = "Look at the change of the billing address."
	payload = `{"repository":"billing","pull_request":7}`
	result  = `{"verdict":"approve","comments":2}`
)

func appendClaim(b []byte, most int, wait time.Duration) []byte {
	b = append(b, `{"max":`...)
	b = strconv.AppendInt(b, int64(most), 10)
	if wait > 0 {
		b = append(b, `,"wait_seconds":`...)
		b = strconv.AppendInt(b, int64(wait/time.Second), 10)
	}
	return append(b, '}')
}

func appendHeld(b []byte, h held) []byte {
	b = append(b, `{"todo_id":"`...)
	b = append(b, h.id...)
	b = append(b, `","lease_token":"`...)
	b = append(b, h.token...)
	return append(b, `"}`...)
}

func appendComplete(b []byte, h held) []byte {
	b = appendHeld(b, h)
	b = b[:len(b)-1]
	return append(b, `,"result":`+result+`}`...)
}

// held is a todo under a lease.
type held struct{ id, token string }

// appendItems writes a batch of what f writes for each.
func appendItems[T any](b []byte, items []T, f func([]byte, T) []byte) []byte {
	b = append(b, `{"items":[`...)
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = f(b, item)
	}
	return append(b, `]}`...)
}

var errAnswer = errors.New("the call was refused")

// sound reports whether an answer carries no error, without taking it apart.
func sound(answer []byte) error {
	if !bytes.HasPrefix(answer, []byte(`{"jsonrpc":"2.0","id":1,"result":`)) || bytes.Contains(answer, []byte(`"error":{`)) {
		return fmt.Errorf("%w: %.300s", errAnswer, answer)
	}
	return nil
}

// structured is the part of an answer that a program reads.
func structured(answer []byte) []byte {
	i := bytes.Index(answer, []byte(`"structuredContent":`))
	if i < 0 {
		return nil
	}
	return answer[i:]
}

// member finds a string member in JSON that escapes nothing, and what follows.
func member(b []byte, name string) (value string, rest []byte) {
	i := bytes.Index(b, []byte(`"`+name+`":"`))
	if i < 0 {
		return "", nil
	}
	b = b[i+len(name)+4:]
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return "", nil
	}
	return string(b[:end]), b[end:]
}

// claimed lists the leases of a claim's answer.
func claimed(answer []byte, into []held) []held {
	b := structured(answer)
	for {
		var h held
		if h.id, b = member(b, "todo_id"); b == nil {
			return into
		}
		if h.token, b = member(b, "lease_token"); b == nil {
			return into
		}
		into = append(into, h)
	}
}
