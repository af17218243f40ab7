package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/persona"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

// Endpoints resolves bearers (package endpoint).
type Endpoints interface {
	Shared(ctx context.Context, id uuid.UUID, bearer string) (*endpoint.Caller, error) // not to be changed
	Proven(ctx context.Context, proofKey string, p endpoint.Presented) error
	Refresh(ctx context.Context, c endpoint.Caller) (endpoint.Caller, error)
	Live(ctx context.Context, c endpoint.Caller) (endpoint.Caller, error)
	Hold(ctx context.Context, c endpoint.Caller, do func(ctx context.Context) error) error
}

// Todos is the queue as friends and workers use it (package todo).
type Todos interface {
	Create(ctx context.Context, c endpoint.Caller, items []todo.New) ([]todo.Outcome[todo.Created], error)
	Status(ctx context.Context, c endpoint.Caller, id uuid.UUID, wait time.Duration, since *int64) (todo.Status, error)
	ListCreated(ctx context.Context, c endpoint.Caller, queue string, state todo.State, cursor string, limit int) ([]todo.Status, string, error)
	Answer(ctx context.Context, c endpoint.Caller, r todo.Reply) (todo.Changed, error)
	Cancel(ctx context.Context, c endpoint.Caller, id uuid.UUID, reason string) (todo.Changed, error)
	Used(ctx context.Context, c endpoint.Caller) (todo.Used, error)

	Claim(ctx context.Context, c endpoint.Caller, id uuid.UUID, lease time.Duration, claimID string) (todo.Claimed, error)
	ClaimNext(ctx context.Context, c endpoint.Caller, n todo.ClaimNext) ([]todo.Claimed, error)
	Heartbeat(ctx context.Context, c endpoint.Caller, items []todo.Beat) ([]todo.Outcome[todo.Beaten], error)
	Complete(ctx context.Context, c endpoint.Caller, items []todo.Completion) ([]todo.Outcome[todo.Changed], error)
	Fail(ctx context.Context, c endpoint.Caller, items []todo.Failure) ([]todo.Outcome[todo.Changed], error)
	Release(ctx context.Context, c endpoint.Caller, items []todo.Return) ([]todo.Outcome[todo.Changed], error)
	Ask(ctx context.Context, c endpoint.Caller, id uuid.UUID, leaseToken, question string) (todo.Changed, error)
	ListForWorker(ctx context.Context, c endpoint.Caller, queue string, state todo.State, cursor string, limit int) ([]todo.Detail, string, error)
	GetForWorker(ctx context.Context, c endpoint.Caller, id uuid.UUID) (todo.Detail, error)
}

// Directory finds personas, of this instance and of configured ones (package
// persona).
type Directory interface {
	Search(ctx context.Context, query, cursor string, limit int) ([]persona.Entry, string, error)
}

// Friends are the requests and grants of a human on this instance (package friend).
type Friends interface {
	GetOwn(ctx context.Context, a friend.Asker, id uuid.UUID) (friend.Request, error)
	ListOwn(ctx context.Context, a friend.Asker, f friend.AskerFilter, cursor string, limit int) ([]friend.Request, string, int, error)
	Withdraw(ctx context.Context, a friend.Asker, id uuid.UUID) (friend.Request, error)
	Grants(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]friend.Grant, string, error)
	GrantsOut(ctx context.Context, identity []byte, cursor string, limit int) ([]friend.Grant, string, error)
}

// Humans finds the owner of a home endpoint (package human).
type Humans interface {
	Get(ctx context.Context, id uuid.UUID) (human.Human, error)
}

// Cards renders the public card of a persona of this instance (package a2a).
type Cards interface {
	Card(ctx context.Context, slug string) (json.RawMessage, error)
}

// Outgoing carries friend requests out of this instance on behalf of the owner
// of a home endpoint. Sending needs the human's sign-in, so Send leaves a todo
// in the owner's inbox. While it is nil the tool answers refusal.Unavailable.
type Outgoing interface {
	Card(ctx context.Context, owner uuid.UUID, url string) (json.RawMessage, error)
	Send(ctx context.Context, c endpoint.Caller, a Ask) (Sent, error)
	Get(ctx context.Context, owner, id uuid.UUID) (Sent, error)
	List(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Sent, string, error)
	Cancel(ctx context.Context, owner, id uuid.UUID) (Sent, error)
}

// Ask is an outgoing friend request as a worker wants it made: exactly one of
// Persona (a slug of this instance) and Card (the URL of a card) is set.
type Ask struct {
	Persona, Card  string
	Scope          scope.Asked
	Reason         string
	Key            json.RawMessage // public JWK of the agent that will hold the grant
	IdempotencyKey string
}

// Sent is an outgoing friend request as its sender sees it.
type Sent struct {
	ID       uuid.UUID           `json:"id"`
	State    friend.RequestState `json:"state"`
	TodoID   *uuid.UUID          `json:"todo_id,omitempty"` // in the sender's own inbox, while it waits for the sender
	Artifact *friend.Artifact    `json:"artifact,omitempty"`
}

// Deps are what the transport calls. PublicURL, Endpoints and Todos are needed
// for anything; the rest for home endpoints.
type Deps struct {
	PublicURL string // no trailing slash
	Version   string // of the program, told to clients
	Endpoints Endpoints
	Todos     Todos
	Directory Directory
	Friends   Friends
	Humans    Humans
	Cards     Cards
	Outgoing  Outgoing // nil until it exists
	Log       *slog.Logger
}
