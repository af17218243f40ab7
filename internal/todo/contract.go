// Package todo: the durable queue: states, leases, fences, deduplication, wake-ups.
// CONTRACT FILE: the owner of this room spreads it over files and deletes it.
//
// JSON tags are the wire members of specs/protocol.md section 5, so that transports only encode.
package todo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
)

type State string

const (
	Ready         State = "ready"
	Leased        State = "leased"
	InputRequired State = "input_required"
	Done          State = "done"
	Failed        State = "failed"
	Canceled      State = "canceled"
)

type Store struct{}

// Outcome of one item of a batch: exactly one of Value and Err (a *refusal.Error) is set.
type Outcome[T any] struct {
	Value T
	Err   error
}

// ---- what a peer (and home `create`) does ----

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

type Created struct {
	TodoID       uuid.UUID `json:"todo_id"`
	State        State     `json:"state"`
	Version      int64     `json:"version"`
	Deduplicated bool      `json:"deduplicated"`
}

// Create serves create_for (peer caller) and create (home caller). One outcome an item, in order.
// Every method that takes a Caller returns endpoint.ErrStale (whole call) when the caller must be refreshed.
func (s *Store) Create(ctx context.Context, c endpoint.Caller, items []New) ([]Outcome[Created], error) {
	panic("contract")
}

type Artifact struct {
	Name      string          `json:"name"`
	MediaType string          `json:"media_type"`
	Text      *string         `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	URL       string          `json:"url,omitempty"`
}

type Progress struct {
	Percent *float64 `json:"percent,omitempty"`
	Note    string   `json:"note,omitempty"`
}

type Question struct {
	ID      uuid.UUID `json:"id"`
	Text    string    `json:"text"`
	AskedAt time.Time `json:"asked_at"`
}

type AnswerGiven struct {
	Text    string          `json:"text"`
	Payload json.RawMessage `json:"payload,omitempty"`
	At      time.Time       `json:"at"`
}

type Exchange struct {
	Question Question     `json:"question"`
	Answer   *AnswerGiven `json:"answer,omitempty"`
}

// Status is what a friend (or creator) sees of a todo.
type Status struct {
	TodoID        uuid.UUID       `json:"todo_id"`
	Queue         string          `json:"queue"`
	Title         string          `json:"title"`
	State         State           `json:"state"`
	Version       int64           `json:"version"`
	Attempt       int             `json:"attempt"`
	Progress      *Progress       `json:"progress,omitempty"`
	Question      *Question       `json:"question,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
	Artifacts     []Artifact      `json:"artifacts"`
	PublicMessage string          `json:"public_message,omitempty"`
	CreatedAt     time.Time       `json:"created_at"`
	FinishedAt    *time.Time      `json:"finished_at,omitempty"`
	WorkedBy      json.RawMessage `json:"worked_by,omitempty"` // {attempt, endpoint, trace}
}

// Status waits up to wait for version > since (0 wait = at once). Unknown, foreign and out-of-scope todos: refusal.NotFound, one message.
func (s *Store) Status(ctx context.Context, c endpoint.Caller, id uuid.UUID, wait time.Duration, since *int64) (Status, error) {
	panic("contract")
}

// ListCreated lists the line's todos in the granted queues, newest first.
func (s *Store) ListCreated(ctx context.Context, c endpoint.Caller, queue string, state State, cursor string, limit int) ([]Status, string, error) {
	panic("contract")
}

type Changed struct {
	TodoID          uuid.UUID `json:"todo_id"`
	State           State     `json:"state"`
	Version         int64     `json:"version"`
	CancelRequested *bool     `json:"cancel_requested,omitempty"` // set by Cancel and Heartbeat only
}

type Reply struct {
	TodoID         uuid.UUID
	Text           string
	QuestionID     *uuid.UUID
	Payload        json.RawMessage
	IdempotencyKey string
}

func (s *Store) Answer(ctx context.Context, c endpoint.Caller, r Reply) (Changed, error) {
	panic("contract")
}
func (s *Store) Cancel(ctx context.Context, c endpoint.Caller, id uuid.UUID, reason string) (Changed, error) {
	panic("contract")
}

type Used struct {
	Open     int64 `json:"open"`
	ThisHour int64 `json:"this_hour"`
}

func (s *Store) Used(ctx context.Context, c endpoint.Caller) (Used, error) { panic("contract") }

// ---- what a worker (home caller) does ----

type FromFriend struct {
	Identity    string          `json:"identity"` // verified: issuer and subject or authoritative e-mail, as package friend gives it at vending
	CallsItself string          `json:"calls_itself"`
	Title       string          `json:"title"`
	Body        string          `json:"body,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

type PriorAttempt struct {
	Attempt   int        `json:"attempt"`
	Worker    uuid.UUID  `json:"worker"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Outcome   string     `json:"outcome"` // completed, failed, released, asked, lapsed, canceled
	Error     string     `json:"error,omitempty"`
	Progress  *Progress  `json:"progress,omitempty"`
}

type Claimed struct {
	TodoID         uuid.UUID       `json:"todo_id"`
	Queue          string          `json:"queue"`
	State          State           `json:"state"`
	Version        int64           `json:"version"`
	LeaseToken     string          `json:"lease_token"`
	LeaseExpiresAt time.Time       `json:"lease_expires_at"`
	Attempt        int             `json:"attempt"`
	Priority       int             `json:"priority"`
	Deadline       *time.Time      `json:"deadline,omitempty"`
	FromFriend     *FromFriend     `json:"from_friend,omitempty"`
	Title          string          `json:"title,omitempty"`
	Body           string          `json:"body,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	Exchanges      []Exchange      `json:"exchanges"`
	PriorAttempts  []PriorAttempt  `json:"prior_attempts"`
	Artifacts      []Artifact      `json:"artifacts"`
}

type ClaimNext struct {
	Queues  []string // nil = all of the endpoint
	Max     int      // 0 = 1
	Wait    time.Duration
	Lease   time.Duration // 0 = 300 s
	ClaimID string
}

func (s *Store) Claim(ctx context.Context, c endpoint.Caller, id uuid.UUID, lease time.Duration, claimID string) (Claimed, error) {
	panic("contract")
}
func (s *Store) ClaimNext(ctx context.Context, c endpoint.Caller, n ClaimNext) ([]Claimed, error) {
	panic("contract")
}

type Beat struct {
	TodoID     uuid.UUID
	LeaseToken string
	Lease      time.Duration // 0 = the attempt's lease length
	Progress   *Progress
	Artifacts  []Artifact
}

type Beaten struct {
	TodoID          uuid.UUID `json:"todo_id"`
	State           State     `json:"state"`
	Version         int64     `json:"version"`
	LeaseExpiresAt  time.Time `json:"lease_expires_at"`
	CancelRequested bool      `json:"cancel_requested"`
}

func (s *Store) Heartbeat(ctx context.Context, c endpoint.Caller, items []Beat) ([]Outcome[Beaten], error) {
	panic("contract")
}

type Completion struct {
	TodoID     uuid.UUID
	LeaseToken string
	Result     json.RawMessage
	Artifacts  []Artifact
}

func (s *Store) Complete(ctx context.Context, c endpoint.Caller, items []Completion) ([]Outcome[Changed], error) {
	panic("contract")
}

type Failure struct {
	TodoID        uuid.UUID
	LeaseToken    string
	Error         string
	PublicMessage string
	NoRetry       bool
	RetryAfter    *time.Duration
}

func (s *Store) Fail(ctx context.Context, c endpoint.Caller, items []Failure) ([]Outcome[Changed], error) {
	panic("contract")
}

type Return struct {
	TodoID     uuid.UUID
	LeaseToken string
	Reason     string
}

func (s *Store) Release(ctx context.Context, c endpoint.Caller, items []Return) ([]Outcome[Changed], error) {
	panic("contract")
}
func (s *Store) Ask(ctx context.Context, c endpoint.Caller, id uuid.UUID, leaseToken, question string) (Changed, error) {
	panic("contract")
}

// Detail is the whole of a todo for its owner (home get_todo, REST, page).
type Detail struct {
	TodoID          uuid.UUID       `json:"todo_id"`
	Queue           string          `json:"queue"`
	Kind            string          `json:"kind"` // work, friend_request
	State           State           `json:"state"`
	Version         int64           `json:"version"`
	Priority        int             `json:"priority"`
	Attempt         int             `json:"attempt"`
	MaxAttempts     int             `json:"max_attempts"`
	NotBefore       *time.Time      `json:"not_before,omitempty"`
	Deadline        *time.Time      `json:"deadline,omitempty"`
	CancelRequested bool            `json:"cancel_requested"`
	LeaseExpiresAt  *time.Time      `json:"lease_expires_at,omitempty"`
	FromFriend      *FromFriend     `json:"from_friend,omitempty"`
	GrantID         *uuid.UUID      `json:"grant_id,omitempty"`
	Title           string          `json:"title,omitempty"`
	Body            string          `json:"body,omitempty"`
	Payload         json.RawMessage `json:"payload,omitempty"`
	Progress        *Progress       `json:"progress,omitempty"`
	Question        *Question       `json:"question,omitempty"`
	Result          json.RawMessage `json:"result,omitempty"`
	PublicMessage   string          `json:"public_message,omitempty"`
	Artifacts       []Artifact      `json:"artifacts"`
	Attempts        []PriorAttempt  `json:"attempts,omitempty"`  // get only
	Exchanges       []Exchange      `json:"exchanges,omitempty"` // get only
	CreatedAt       time.Time       `json:"created_at"`
	FinishedAt      *time.Time      `json:"finished_at,omitempty"`
}

func (s *Store) ListForWorker(ctx context.Context, c endpoint.Caller, queue string, state State, cursor string, limit int) ([]Detail, string, error) {
	panic("contract")
}
func (s *Store) GetForWorker(ctx context.Context, c endpoint.Caller, id uuid.UUID) (Detail, error) {
	panic("contract")
}

// ---- what the human does (session or API token; the transport has decided who may) ----

type Queue struct {
	Name                         string
	Description                  string
	Paused                       bool
	MaxAttempts                  int
	RetentionDays                int
	CreatedAt                    time.Time
	Version                      int64
	Ready, Leased, InputRequired int64 // counts for the board; approximate is not allowed, cap at 10000
}

func (s *Store) CreateQueue(ctx context.Context, owner uuid.UUID, name, description string) (Queue, error) {
	panic("contract")
}
func (s *Store) Queues(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Queue, string, error) {
	panic("contract")
}

type QueuePatch struct {
	Description   *string
	Paused        *bool
	MaxAttempts   *int
	RetentionDays *int
	IfVersion     *int64
}

func (s *Store) UpdateQueue(ctx context.Context, owner uuid.UUID, name string, p QueuePatch) (Queue, error) {
	panic("contract")
}

// QueuesExist is used by packages persona and endpoint: refusal.InvalidArgument naming the first unknown one; inbox counts as unknown.
func (s *Store) QueuesExist(ctx context.Context, owner uuid.UUID, names []string) error {
	panic("contract")
}

// HumanCreated makes the inbox (human.Arrivals).
func (s *Store) HumanCreated(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error {
	panic("contract")
}

type Filter struct {
	Queue   string
	State   State
	GrantID uuid.UUID
}

func (s *Store) List(ctx context.Context, owner uuid.UUID, f Filter, cursor string, limit int) ([]Detail, string, error) {
	panic("contract")
}
func (s *Store) Get(ctx context.Context, owner, id uuid.UUID) (Detail, error) { panic("contract") }
func (s *Store) CreateOwn(ctx context.Context, owner uuid.UUID, n New) (Created, error) {
	panic("contract")
}
func (s *Store) Retry(ctx context.Context, owner, id uuid.UUID) (Changed, error) { panic("contract") }
func (s *Store) CancelOwn(ctx context.Context, owner, id uuid.UUID, reason string) (Changed, error) {
	panic("contract")
}
func (s *Store) ReleaseOwn(ctx context.Context, owner, id uuid.UUID) (Changed, error) {
	panic("contract")
}
func (s *Store) AnswerOwn(ctx context.Context, owner uuid.UUID, r Reply) (Changed, error) {
	panic("contract")
}

// InboxItem: what waits for the human: open consent todos first, then inbox todos and todos in input_required of own lines.
type InboxItem struct {
	ID              uuid.UUID // the todo
	Kind            string    // friend_request, todo, question
	FriendRequestID *uuid.UUID
	Queue           string
	Title           string
	Question        *Question
	CreatedAt       time.Time
}

func (s *Store) Inbox(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]InboxItem, string, error) {
	panic("contract")
}

// ---- within other domains' transactions ----

// OpenConsent makes the consent todo (kind friend_request, in inbox) of a friend request. Such a todo is invisible
// and untouchable to every Caller and to Retry/CancelOwn/...: only FinishConsent ends it.
func (s *Store) OpenConsent(ctx context.Context, tx pgx.Tx, owner, friendRequest uuid.UUID, title string) (uuid.UUID, error) {
	panic("contract")
}

// FinishConsent ends it: done for approved or declined, canceled for withdrawn, failed for expired.
func (s *Store) FinishConsent(ctx context.Context, tx pgx.Tx, owner, friendRequest uuid.UUID, outcome State, result json.RawMessage) error {
	panic("contract")
}

// CancelByEndpoint cancels what a peer endpoint's line left open (revoke with open_todos=cancel): ready and input_required at once, leased by cancel_requested.
func (s *Store) CancelByEndpoint(ctx context.Context, tx pgx.Tx, owner, endpoint uuid.UUID, reason string) (int, error) {
	panic("contract")
}

// Woken is called after another domain's commit touched todos of the owner.
func (s *Store) Woken(owner uuid.UUID) { panic("contract") }

// Run reaps lapsed leases, deadlines, unanswered questions, retention; ends with ctx. Any number of replicas may run it.
func (s *Store) Run(ctx context.Context) error { panic("contract") }
