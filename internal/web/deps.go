package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/notify"
	"switchboard/internal/persona"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

// Deps are what the pages call. All but Log, SignIns, Notices, Wake and ClientAddress are required.
type Deps struct {
	PublicURL string
	Humans    *human.Store
	Friends   Friends
	SignIns   SignIns // nil: method sign-in is off
	Todos     Todos
	Endpoints Endpoints
	Personas  Personas
	Activity  Activity
	Issuers   []Issuer // trusted for provenance: who may ask
	Notices   Notices  // nil hides what concerns sending
	Wake      Wake     // nil: open pages are looked after by polling alone
	// ClientAddress is the address that limits count; nil: the connection's.
	ClientAddress func(*http.Request) netip.Addr
	// PollEvery is how often an open page's subject is looked at while no hints
	// arrive; 2 s when zero. Where they do, it is after eight times as long.
	PollEvery time.Duration
	Log       *slog.Logger
}

// Wake carries hints that something was committed; *postgres.Wake is one.
type Wake interface {
	Watch(topics ...string) (<-chan struct{}, func())
	Listening() bool
}

// Issuer is a trusted OpenID provider, for people.
type Issuer struct{ Issuer, Name string }

// Friends is package friend, as far as pages use it.
type Friends interface {
	Incoming(ctx context.Context, owner uuid.UUID, state friend.RequestState, cursor string, limit int) ([]friend.Request, string, error)
	GetIncoming(ctx context.Context, owner, id uuid.UUID) (friend.Request, error)
	Approve(ctx context.Context, owner, id uuid.UUID, a friend.Approval) (friend.Grant, error)
	Decline(ctx context.Context, owner, id uuid.UUID, d friend.Refusal) (friend.Request, error)
	Grants(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]friend.Grant, string, error)
	Grant(ctx context.Context, owner, id uuid.UUID) (friend.Grant, error)
	Narrow(ctx context.Context, owner, id uuid.UUID, a scope.Asked, ifVersion *int64) (friend.Grant, error)
	Pause(ctx context.Context, owner, id uuid.UUID) (friend.Grant, error)
	Resume(ctx context.Context, owner, id uuid.UUID) (friend.Grant, error)
	Revoke(ctx context.Context, owner, id uuid.UUID, finish bool) (friend.Grant, error)
	PauseAll(ctx context.Context, owner uuid.UUID) (int, error)
	ListOwn(ctx context.Context, a friend.Asker, f friend.AskerFilter, cursor string, limit int) ([]friend.Request, string, int, error)
	Withdraw(ctx context.Context, a friend.Asker, id uuid.UUID) (friend.Request, error)
	GrantsOut(ctx context.Context, identity []byte, cursor string, limit int) ([]friend.Grant, string, error)
	GrantOut(ctx context.Context, identity []byte, id uuid.UUID) (friend.Grant, error)
	Leave(ctx context.Context, identity []byte, id uuid.UUID) (friend.Grant, error)
	Blocks(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]friend.Block, string, error)
	Unblock(ctx context.Context, owner, id uuid.UUID) error
}

// Todos is package todo, as far as pages use it.
type Todos interface {
	Inbox(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]todo.InboxItem, string, error)
	Queues(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]todo.Queue, string, error)
	CreateQueue(ctx context.Context, owner uuid.UUID, name, description string) (todo.Queue, error)
	QueuesExist(ctx context.Context, owner uuid.UUID, names []string) error
	UpdateQueue(ctx context.Context, owner uuid.UUID, name string, p todo.QueuePatch) (todo.Queue, error)
	List(ctx context.Context, owner uuid.UUID, f todo.Filter, cursor string, limit int) ([]todo.Detail, string, error)
	Get(ctx context.Context, owner, id uuid.UUID) (todo.Detail, error)
	Day(ctx context.Context, owner uuid.UUID, queue string) (todo.Day, error)
	CreateOwn(ctx context.Context, owner uuid.UUID, n todo.New) (todo.Created, error)
	Retry(ctx context.Context, owner, id uuid.UUID) (todo.Changed, error)
	CancelOwn(ctx context.Context, owner, id uuid.UUID, reason string) (todo.Changed, error)
	ReleaseOwn(ctx context.Context, owner, id uuid.UUID) (todo.Changed, error)
	AnswerOwn(ctx context.Context, owner uuid.UUID, r todo.Reply) (todo.Changed, error)
	Used(ctx context.Context, c endpoint.Caller) (todo.Used, error)
}

// Endpoints is package endpoint, as far as pages use it.
type Endpoints interface {
	CreateHome(ctx context.Context, owner uuid.UUID, spec endpoint.HomeSpec) (endpoint.Endpoint, string, error)
	List(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]endpoint.Endpoint, string, error)
	Get(ctx context.Context, owner, id uuid.UUID) (endpoint.Endpoint, error)
	NarrowHome(ctx context.Context, owner, id uuid.UUID, queues, tools []string) (endpoint.Endpoint, error)
	RotateHome(ctx context.Context, owner, id uuid.UUID) (endpoint.Endpoint, string, error)
	PauseHome(ctx context.Context, owner, id uuid.UUID) (endpoint.Endpoint, error)
	ResumeHome(ctx context.Context, owner, id uuid.UUID) (endpoint.Endpoint, error)
	RevokeHome(ctx context.Context, owner, id uuid.UUID) (endpoint.Endpoint, error)
	Holders(ctx context.Context, owner, endpoint uuid.UUID) ([]endpoint.Holder, error)
	RevokeHolder(ctx context.Context, owner, endpoint, holder uuid.UUID) error
}

// Personas is package persona, as far as pages use it.
type Personas interface {
	CreateAgent(ctx context.Context, owner uuid.UUID, name, description string) (persona.Agent, error)
	Agents(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]persona.Agent, string, error)
	UpdateAgent(ctx context.Context, owner, id uuid.UUID, name, description *string, ifVersion *int64) (persona.Agent, error)
	DeleteAgent(ctx context.Context, owner, id uuid.UUID) error
	Create(ctx context.Context, owner uuid.UUID, spec persona.Spec) (persona.Persona, error)
	CreateWithAgent(ctx context.Context, owner uuid.UUID, spec persona.Spec, name string) (persona.Persona, error)
	SlugTaken(ctx context.Context, owner uuid.UUID, slug string) (bool, error)
	List(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]persona.Persona, string, error)
	Get(ctx context.Context, owner, id uuid.UUID) (persona.Persona, error)
	Update(ctx context.Context, owner, id uuid.UUID, p persona.Patch) (persona.Persona, error)
	Delete(ctx context.Context, owner, id uuid.UUID) error
}

// Notices is package notify, as far as pages use it.
type Notices interface {
	SendTest(ctx context.Context, to uuid.UUID) error
	Status(ctx context.Context, id uuid.UUID) ([]notify.Status, error)
	RotateSecret(ctx context.Context, to uuid.UUID) (string, error)
	MailOff(ctx context.Context, of string) error
}

// Activity is package activity, as far as pages use it.
type Activity interface {
	List(ctx context.Context, owner uuid.UUID, f activity.Filter, cursor string, limit int) ([]activity.Event, string, error)
}
