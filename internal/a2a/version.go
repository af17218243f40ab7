package a2a

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	jsonv2 "github.com/go-json-experiment/json"

	legacy "github.com/a2aproject/a2a-go/a2a"
)

// version is an A2A protocol version. Everything that differs between the two
// stands in this file and in card.go.
type version string

const (
	v1  version = "1.0"
	v03 version = "0.3"
)

// spelled matches a version as a request may name it; a patch number is heard
// and not considered (A2A 1.0 §3.6).
var spelled = regexp.MustCompile(`^(0\.3|1\.0)(\.\d{1,9})?$`)

// versionOf reads A2A-Version from header or query; absent means 0.3.
func versionOf(r *http.Request) (version, bool) {
	asked := strings.TrimSpace(r.Header.Get("A2A-Version"))
	if asked == "" {
		asked = strings.TrimSpace(r.URL.Query().Get("A2A-Version"))
	}
	if asked == "" {
		return v03, true
	}
	m := spelled.FindStringSubmatch(asked)
	if m == nil {
		return "", false
	}
	return version(m[1]), true
}

// extensionHeader names the header of activated extensions.
func (v version) extensionHeader() string {
	if v == v1 {
		return "A2A-Extensions"
	}
	return "X-A2A-Extensions"
}

func (v version) userRole() string {
	if v == v1 {
		return "ROLE_USER"
	}
	return "user"
}

type partV1 struct {
	Text      json.RawMessage `json:"text"`
	Raw       json.RawMessage `json:"raw"`
	URL       json.RawMessage `json:"url"`
	Data      json.RawMessage `json:"data"`
	MediaType string          `json:"mediaType"`
}

type partV03 struct {
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// dataOf takes the data of a data part, byte for byte; any other part is work
// of some kind, which this agent does not take.
func (v version) dataOf(raw json.RawMessage) (json.RawMessage, error) {
	if v == v03 {
		var p partV03
		if err := jsonv2.Unmarshal(raw, &p); err != nil {
			return nil, invalidParams("a part does not have the form of an A2A 0.3 part")
		}
		switch {
		case p.Kind == "text" || p.Kind == "file":
			return nil, errContentType
		case p.Kind != "data" || len(p.Data) == 0:
			return nil, invalidParams("a part does not have the form of an A2A 0.3 part")
		}
		return p.Data, nil
	}
	var p partV1
	if err := jsonv2.Unmarshal(raw, &p); err != nil {
		return nil, invalidParams("a part does not have the form of an A2A 1.0 part")
	}
	kinds := 0
	for _, k := range []json.RawMessage{p.Text, p.Raw, p.URL, p.Data} {
		if len(k) > 0 {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return nil, invalidParams("a part has exactly one of text, raw, url and data")
	case len(p.Data) == 0:
		return nil, errContentType
	case p.MediaType != "" && p.MediaType != "application/json":
		return nil, errContentType
	}
	return p.Data, nil
}

// sent is the result of send: 1.0 wraps the task.
func (v version) sent(t *a2a.Task) any {
	if v == v03 {
		return v.task(t)
	}
	return a2a.StreamResponse{Event: t}
}

func (v version) task(t *a2a.Task) any {
	if v == v03 {
		return a2av0.FromV1Task(t)
	}
	return t
}

func (v version) list(l *a2a.ListTasksResponse) any {
	if v == v1 {
		return l
	}
	// 0.3 has no list over JSON-RPC; ours is 1.0's with the tasks of 0.3.
	out := listV03{Tasks: []*legacy.Task{}, TotalSize: l.TotalSize, PageSize: l.PageSize, NextPageToken: l.NextPageToken}
	for _, t := range l.Tasks {
		out.Tasks = append(out.Tasks, a2av0.FromV1Task(t))
	}
	return out
}

type listV03 struct {
	Tasks         []*legacy.Task `json:"tasks"`
	TotalSize     int            `json:"totalSize"`
	PageSize      int            `json:"pageSize"`
	NextPageToken string         `json:"nextPageToken"`
}

// event is one event of a stream.
func (v version) event(e a2a.Event, final bool) (any, error) {
	if v == v1 {
		return a2a.StreamResponse{Event: e}, nil
	}
	out, err := a2av0.FromV1Event(e)
	if err != nil {
		return nil, err
	}
	if s, ok := out.(*legacy.TaskStatusUpdateEvent); ok {
		s.Final = final
	}
	return out, nil
}

// unspecified is how some 1.0 clients spell no state at all.
const unspecified = "TASK_STATE_UNSPECIFIED"

// state reads a task state as this version spells it.
func (v version) state(s string) (a2a.TaskState, bool) {
	state := a2a.TaskState(s)
	if v == v03 { // an unknown word comes out as no state
		state = a2av0.ToV1TaskState(legacy.TaskState(s))
	}
	return state, knownState(state)
}
