package todo

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// State is where a todo stands.
type State string

// The states of a todo. The last three are terminal.
const (
	Ready         State = "ready"
	Leased        State = "leased"
	InputRequired State = "input_required"
	Done          State = "done"
	Failed        State = "failed"
	Canceled      State = "canceled"
)

// Terminal reports whether a todo in this state has ended.
func (s State) Terminal() bool { return s == Done || s == Failed || s == Canceled }

func (s State) known() bool {
	switch s {
	case Ready, Leased, InputRequired, Done, Failed, Canceled:
		return true
	}
	return false
}

// The kinds of todos.
const (
	kindWork    = "work"
	kindConsent = "friend_request"
)

// Inbox is the queue that every human has, for humans only.
const Inbox = "inbox"

// Outcome of one item of a batch: exactly one of Value and Err (a *refusal.Error) is set.
type Outcome[T any] struct {
	Value T
	Err   error
}

// Changed is what becomes of a todo.
type Changed struct {
	TodoID          uuid.UUID `json:"todo_id"`
	State           State     `json:"state"`
	Version         int64     `json:"version"`
	CancelRequested *bool     `json:"cancel_requested,omitempty"` // set by Cancel
}

// Artifact is a named piece of a result: text, data or a URL.
type Artifact struct {
	Name      string          `json:"name"`
	MediaType string          `json:"media_type"`
	Text      *string         `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	URL       string          `json:"url,omitempty"`
}

// Progress is how far the current attempt says it is.
type Progress struct {
	Percent *float64 `json:"percent,omitempty"`
	Note    string   `json:"note,omitempty"`
}

// Question is what a worker asked.
type Question struct {
	ID      uuid.UUID `json:"id"`
	Text    string    `json:"text"`
	AskedAt time.Time `json:"asked_at"`
}

// AnswerGiven is what it was answered.
type AnswerGiven struct {
	Text    string          `json:"text"`
	Payload json.RawMessage `json:"payload,omitempty"`
	At      time.Time       `json:"at"`
}

// Exchange is a question and, once given, its answer.
type Exchange struct {
	Question Question     `json:"question"`
	Answer   *AnswerGiven `json:"answer,omitempty"`
}

// PriorAttempt is one attempt at a todo. EndedAt is nil and Outcome empty while
// it goes on.
type PriorAttempt struct {
	Attempt   int        `json:"attempt"`
	Worker    uuid.UUID  `json:"worker"` // the home endpoint
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Outcome   string     `json:"outcome"` // completed, failed, released, asked, lapsed, canceled
	Error     string     `json:"error,omitempty"`
	Progress  *Progress  `json:"progress,omitempty"`
}

// FromFriend holds everything in a todo that a friend wrote, labelled with who
// it is.
type FromFriend struct {
	Identity    string          `json:"identity"`     // verified
	CallsItself string          `json:"calls_itself"` // what the friend's agent says of itself
	Title       string          `json:"title"`
	Body        string          `json:"body,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}
