package todo

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// New is a todo to create (specs/protocol.md section 5, create_for and create).
type New struct {
	Queue          string          `json:"queue"`
	Title          string          `json:"title"`
	IdempotencyKey string          `json:"idempotency_key"`
	Body           string          `json:"body,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	Priority       *int            `json:"priority,omitempty"`
	NotBefore      *time.Time      `json:"not_before,omitempty"`
	Deadline       *time.Time      `json:"deadline,omitempty"`
	Traceparent    string          `json:"traceparent,omitempty"`
}

// Created is a todo that was created, now or by an earlier call of the same key.
type Created struct {
	TodoID       uuid.UUID `json:"todo_id"`
	State        State     `json:"state"`
	Version      int64     `json:"version"`
	Deduplicated bool      `json:"deduplicated"`
}

// creation is one item of Create.
type creation struct {
	verdict
	auth                                      *authority
	line                                      uuid.UUID
	key                                       string
	name                                      uuid.UUID // stands for line and key
	hash                                      uuid.UUID // of the content
	id                                        uuid.UUID
	queue                                     string
	title, body, trace, identity, callsItself string
	payload                                   *string
	priority                                  int
	notBefore                                 *time.Time
	deadline                                  *time.Time
	grant                                     *uuid.UUID
	limits                                    *scope.Limits // of a peer; nil when nothing is counted

	known   bool // its content is remembered for claims
	fresh   bool // created by this call
	created Created
}

// rank is the priority as it is stored: what is claimed first is least.
func (c *creation) rank() int16 { return int16(10 - c.priority) }

func (c *creation) share() share {
	return share{class{lane{c.auth.owner, c.queue}, c.rank()}, c.line}
}

// Create serves create_for (peer caller) and create (home caller): one outcome an
// item, in order. endpoint.ErrStale, for the whole call, says that the caller must
// be resolved anew.
func (s *Store) Create(ctx context.Context, c endpoint.Caller, items []New) ([]Outcome[Created], error) {
	w := &work{auth: authorityOf(c)}
	limits := &c.Endpoint.Scope.Limits
	if w.auth.home {
		limits = nil
	}
	out := make([]Outcome[Created], len(items))
	made := make([]*creation, len(items))
	for i, n := range items {
		if !c.May(scope.CreateFor, n.Queue) {
			out[i].Err = errNoQueue
			continue
		}
		m, err := newCreation(n, limits)
		if err != nil {
			out[i].Err = err
			continue
		}
		m.auth, m.line = &w.auth, c.Endpoint.Line
		if !w.auth.home {
			m.grant, m.identity, m.callsItself = &c.Endpoint.GrantID, c.Endpoint.IdentityText, c.Endpoint.CallsItself
		}
		made[i] = m
		w.add(m)
	}
	if err := checkItems(len(items)); err != nil {
		return nil, err
	}
	if len(w.creates) > 0 {
		if err := s.create(ctx, w); err != nil {
			return nil, err
		}
	}
	for i, m := range made {
		if m != nil {
			out[i].Value, out[i].Err = m.created, m.err
		}
	}
	return out, nil
}

// CreateOwn puts a todo into a queue of the human's own, inbox included.
func (s *Store) CreateOwn(ctx context.Context, owner uuid.UUID, n New) (Created, error) {
	w := &work{auth: authority{owner: owner}}
	m, err := newCreation(n, nil)
	if err != nil {
		return Created{}, err
	}
	m.auth, m.line = &w.auth, owner
	w.add(m)
	if err := s.create(ctx, w); err != nil {
		return Created{}, err
	}
	return m.created, m.err
}

// create carries out creations. A call that waits for one of them claims in the same
// transaction, so that work reaches an idle worker with the commit that makes it
// durable, and not one later.
func (s *Store) create(ctx context.Context, w *work) error {
	g := s.hub.invite(w)
	if g == nil {
		return s.do(ctx, w)
	}
	// The guest depends on how this ends, so it is not left before it has.
	err := s.do(context.WithoutCancel(ctx), w)
	g.end(g.w.demand.decided) // what it has is its own, however the creation went on
	return err
}

func (w *work) add(m *creation) {
	m.name = keyName(m.line, m.key)
	w.creates = append(w.creates, m)
	w.size += itemSize + len(m.title) + len(m.body)
	if m.payload != nil {
		w.size += len(*m.payload)
	}
}

func checkItems(n int) error {
	if n < 1 || n > maxItems {
		return refusal.Invalid("items", "items must be from 1 to %d", maxItems)
	}
	return nil
}

// newCreation checks an item as far as that needs no look at the database.
func newCreation(n New, limits *scope.Limits) (*creation, error) {
	if !scope.QueueName(n.Queue) { // a name of other characters would fail the whole batch
		return nil, errNoQueue
	}
	if err := line("title", n.Title, maxTitle); err != nil {
		return nil, err
	}
	if err := line("idempotency_key", n.IdempotencyKey, maxKey); err != nil {
		return nil, err
	}
	if err := long("body", n.Body, maxBody); err != nil {
		return nil, err
	}
	if err := checkTrace(n.Traceparent); err != nil {
		return nil, err
	}
	maxPayload, maxPriority := int64(homePayload), int64(9)
	if limits != nil {
		maxPayload, maxPriority = limits.MaxPayloadBytes, limits.MaxPriority
	}
	payload, err := document("payload", n.Payload, maxPayload)
	if err != nil {
		return nil, err
	}
	priority := int(min(5, maxPriority))
	asked := ""
	if n.Priority != nil {
		priority, asked = *n.Priority, strconv.Itoa(*n.Priority)
		if priority < 1 || priority > 9 {
			return nil, refusal.Invalid("priority", "priority must be from 1 to 9")
		}
		if int64(priority) > maxPriority {
			return nil, refusal.Invalid("priority", "priority must not be above %d, the most that this endpoint may ask for", maxPriority)
		}
	}
	return &creation{
		key: n.IdempotencyKey, id: newID(), queue: n.Queue, title: n.Title, body: n.Body, trace: n.Traceparent,
		payload: payload, priority: priority, notBefore: n.NotBefore, deadline: n.Deadline, limits: limits,
		// Everything but traceparent: a repeat may run under another trace. The
		// priority as it was asked for, since the default may have been narrowed.
		hash: short16(digest(n.Queue, n.Title, n.Body, string(canonical(payload)), asked, moment(n.NotBefore), moment(n.Deadline))),
	}, nil
}
