// Package friend: requests and grants, quotas, the approval and what it vends.
// CONTRACT FILE: the owner of this room spreads it over files and deletes it.
package friend

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/scope"
)

type RequestState string

const (
	AwaitingSignIn RequestState = "awaiting_sign_in" // method sign-in, not redeemed; never shown to the target
	Pending        RequestState = "pending"
	Approved       RequestState = "approved"
	Declined       RequestState = "declined"
	Withdrawn      RequestState = "withdrawn"
	RequestExpired RequestState = "expired"
)

// Identity is who asks, as verified.
type Identity struct {
	Hash    []byte `json:"-"`
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	Email   string `json:"email,omitempty"` // only when shown as verified
	Name    string `json:"name,omitempty"`
}

type From struct {
	Name string `json:"name"`
	Card string `json:"card,omitempty"` // shown, never fetched
}

type Request struct {
	ID           uuid.UUID
	Owner        uuid.UUID // the target human
	PersonaID    uuid.UUID
	Persona      string // slug
	Identity     Identity
	Key          string // jkt
	From         From
	Reason       string
	Scope        scope.Scope   // requested, completed from the offers
	Offered      []scope.Offer // the offers as they are NOW for pending, as they were at decision otherwise
	OfferVersion int64
	Supersedes   uuid.UUID // zero when none
	State        RequestState
	Note         string // the human's
	TodoID       uuid.UUID
	GrantID      uuid.UUID // when approved
	CreatedAt    time.Time
	ExpiresAt    time.Time
	DecidedAt    *time.Time
	UpdatedAt    time.Time
	FirstSeen    time.Time // of this identity on this instance
	Earlier      int       // earlier requests of this identity to this owner
	Artifact     *Artifact // when approved
	SignIn       *SignIn   // awaiting_sign_in, to the sender only
}

type Artifact struct {
	MCPEndpoint         string      `json:"mcp_endpoint"`
	ResourceMetadata    string      `json:"resource_metadata"`
	AuthorizationServer string      `json:"authorization_server"`
	GrantedScope        scope.Scope `json:"granted_scope"`
	GrantID             uuid.UUID   `json:"grant_id"`
	ExpiresAt           time.Time   `json:"expires_at"`
}

type SignIn struct {
	URL       string
	ExpiresAt time.Time
}

type GrantState string

const (
	GrantActive  GrantState = "active"
	GrantPaused  GrantState = "paused"
	GrantRevoked GrantState = "revoked"
	GrantExpired GrantState = "expired"
	GrantEnded   GrantState = "ended" // left, or superseded
)

type Grant struct {
	ID          uuid.UUID
	Owner       uuid.UUID
	PersonaID   uuid.UUID
	Persona     string
	Identity    Identity
	From        From
	RequestID   uuid.UUID
	EndpointID  uuid.UUID
	EndpointURL string
	Line        uuid.UUID
	Requested   scope.Scope
	Approved    scope.Scope // as approved
	Scope       scope.Scope // now
	State       GrantState
	ApprovedAt  time.Time
	ExpiresAt   time.Time
	EndedAt     *time.Time
	Version     int64
}

type Store struct{}

// ---- the stranger's side (A2A, REST twin, MCP tool: one service, three projections) ----

type Submission struct {
	Persona   string          // slug
	MessageID string          // A2A messageId, or the twin's Idempotency-Key
	Part      json.RawMessage // the data part's object as received
	Address   netip.Addr
}

// Submit runs the table of specs/protocol.md section 3 in its order. repeated is true when row 8 answered.
// Unknown or off persona: refusal.NotFound.
func (s *Store) Submit(ctx context.Context, sub Submission) (r Request, repeated bool, err error) {
	panic("contract")
}

// Asker is whom a token (key or identity) or session (identity) speaks for, at one persona ("" = all, session only).
type Asker struct {
	Persona  string
	Key      string
	Identity []byte
}

type AskerFilter struct {
	State RequestState // "" = all
	Since *time.Time   // updated after
}

// GetOwn, ListOwn, Withdraw see the asker's requests only; anything else is refusal.NotFound.
func (s *Store) GetOwn(ctx context.Context, a Asker, id uuid.UUID) (Request, error) {
	panic("contract")
}

// ListOwn is newest-updated first; total counts all that match.
func (s *Store) ListOwn(ctx context.Context, a Asker, f AskerFilter, cursor string, limit int) (rs []Request, next string, total int, err error) {
	panic("contract")
}

// Withdraw of a decided request is refusal.Conflict.
func (s *Store) Withdraw(ctx context.Context, a Asker, id uuid.UUID) (Request, error) {
	panic("contract")
}

// Follow returns a channel that is rung whenever the request may have changed (A2A streaming, page).
func (s *Store) Follow(id uuid.UUID) (<-chan struct{}, func()) { panic("contract") }

// ---- the target human's side ----

func (s *Store) Incoming(ctx context.Context, owner uuid.UUID, state RequestState, cursor string, limit int) ([]Request, string, error) {
	panic("contract")
}
func (s *Store) GetIncoming(ctx context.Context, owner, id uuid.UUID) (Request, error) {
	panic("contract")
}

type Approval struct {
	Scope         *scope.Asked // nil = as requested
	ExpiresInDays *int64       // overrides Scope.Limits.ExpiresInDays
	Note          string
	OfferVersion  *int64 // when set and no longer current: refusal.Conflict
}

func (s *Store) Approve(ctx context.Context, owner, id uuid.UUID, a Approval) (Grant, error) {
	panic("contract")
}

type Refusal struct {
	Note        string
	MayAskAgain *bool // nil or false: after 7 days; true: at once
	Block       bool
}

func (s *Store) Decline(ctx context.Context, owner, id uuid.UUID, d Refusal) (Request, error) {
	panic("contract")
}

// ---- grants: direction in (owner) ----

func (s *Store) Grants(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Grant, string, error) {
	panic("contract")
}
func (s *Store) Grant(ctx context.Context, owner, id uuid.UUID) (Grant, error) { panic("contract") }
func (s *Store) Narrow(ctx context.Context, owner, id uuid.UUID, a scope.Asked, ifVersion *int64) (Grant, error) {
	panic("contract")
}
func (s *Store) Pause(ctx context.Context, owner, id uuid.UUID) (Grant, error)  { panic("contract") }
func (s *Store) Resume(ctx context.Context, owner, id uuid.UUID) (Grant, error) { panic("contract") }

// Revoke: finish=false cancels open todos. Revoking what has ended is refusal.Conflict.
func (s *Store) Revoke(ctx context.Context, owner, id uuid.UUID, finish bool) (Grant, error) {
	panic("contract")
}
func (s *Store) PauseAll(ctx context.Context, owner uuid.UUID) (int, error) { panic("contract") }

// ---- grants: direction out (requester identity on this instance) ----

func (s *Store) GrantsOut(ctx context.Context, identity []byte, cursor string, limit int) ([]Grant, string, error) {
	panic("contract")
}
func (s *Store) GrantOut(ctx context.Context, identity []byte, id uuid.UUID) (Grant, error) {
	panic("contract")
}
func (s *Store) Leave(ctx context.Context, identity []byte, id uuid.UUID) (Grant, error) {
	panic("contract")
}

// ---- blocks ----

type Block struct {
	ID        uuid.UUID
	Identity  Identity
	Reason    string
	CreatedAt time.Time
}

func (s *Store) Blocks(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Block, string, error) {
	panic("contract")
}
func (s *Store) Unblock(ctx context.Context, owner, id uuid.UUID) error { panic("contract") }

// Run expires requests and grants, sends reminders through the outbox; ends with ctx.
func (s *Store) Run(ctx context.Context) error { panic("contract") }
