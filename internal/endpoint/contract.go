// Package endpoint: vended endpoints, credentials, tokens, narrowing, revocation.
// CONTRACT FILE: the owner of this room spreads it over files and deletes it.
package endpoint

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/scope"
)

type Kind string

const (
	Home Kind = "home"
	Peer Kind = "peer"
)

type State string

const (
	Active  State = "active"
	Paused  State = "paused"
	Revoked State = "revoked"
	Expired State = "expired" // derived: active or paused with expires_at passed
	Ended   State = "ended"   // left by the friend, or superseded
)

// Endpoint is one row. Version is bumped by EVERY change (narrow, pause, resume, rotate, revoke,
// token revocation, expiry change): a Caller resolved at version N stays right exactly while the
// locked row still says N and the database clock is before Until.
type Endpoint struct {
	ID, Owner          uuid.UUID
	Kind               Kind
	AgentID, PersonaID uuid.UUID
	Persona            string      // slug
	GrantID            uuid.UUID   // peer only
	Line               uuid.UUID   // peer: the grant's line; home: the agent's id
	Scope              scope.Scope // peer: the granted scope. home: Queues only, Verbs empty
	Tools              []string    // home: which home tools (protocol.md §5), nil = all
	Identity           []byte      // peer: identity hash of the requester
	CallsItself        string      // peer: from.name of the requester
	KeyThumbprint      string      // peer: jkt of the agent's key
	State              State
	Version            int64
	CreatedAt          time.Time
	ExpiresAt          time.Time
}

// Caller is what a good token proves. It may come from a cache: every domain call that it makes
// compares (Endpoint.ID, Endpoint.Version) on the locked (writes) or joined (reads) row of the view
// endpoint_authority(id, owner, version) and Until against clock_timestamp() in the same transaction,
// and answers ErrStale when they differ; the transport then calls Refresh and tries once more.
type Caller struct {
	Endpoint   Endpoint
	TokenID    []byte    // SHA-256 of the bearer
	TokenScope []string  // verb:queue the token is limited to; nil = the endpoint's whole scope
	Until      time.Time // earlier of token's and endpoint's end
	ProofKey   string    // DPoP jkt the token is bound to, "" when it is a plain bearer
}

// Effective is endpoint scope ∩ token scope.
func (c Caller) Effective() scope.Scope { panic("contract") }

// May reports whether the caller may use the verb on the queue.
func (c Caller) May(v scope.Verb, queue string) bool { panic("contract") }

// ErrStale: the endpoint changed since the caller was resolved (see Caller). Never shown outside.
var ErrStale error

type Store struct{}

// Authenticate resolves a bearer presented at MCP endpoint id (cached). Any failure at all is
// refusal.Unauthenticated with one constant message.
func (s *Store) Authenticate(ctx context.Context, id uuid.UUID, bearer string) (Caller, error) {
	panic("contract")
}

// Refresh resolves the caller anew from the database.
func (s *Store) Refresh(ctx context.Context, c Caller) (Caller, error) { panic("contract") }

// ---- home endpoints, REST ----

type HomeSpec struct {
	AgentID, PersonaID uuid.UUID
	Queues             []string
	Tools              []string // "verbs" on the wire
	ExpiresInDays      int64    // 0 = 90
}

func (s *Store) CreateHome(ctx context.Context, owner uuid.UUID, spec HomeSpec) (e Endpoint, credential string, err error) {
	panic("contract")
}
func (s *Store) List(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Endpoint, string, error) {
	panic("contract")
}
func (s *Store) Get(ctx context.Context, owner, id uuid.UUID) (Endpoint, error) { panic("contract") }
func (s *Store) NarrowHome(ctx context.Context, owner, id uuid.UUID, queues, tools []string) (Endpoint, error) {
	panic("contract")
}
func (s *Store) RotateHome(ctx context.Context, owner, id uuid.UUID) (e Endpoint, credential string, err error) {
	panic("contract")
}
func (s *Store) PauseHome(ctx context.Context, owner, id uuid.UUID) (Endpoint, error) {
	panic("contract")
}
func (s *Store) ResumeHome(ctx context.Context, owner, id uuid.UUID) (Endpoint, error) {
	panic("contract")
}
func (s *Store) RevokeHome(ctx context.Context, owner, id uuid.UUID) (Endpoint, error) {
	panic("contract")
}

// ---- peer endpoints, within package friend's transactions ----

type PeerSpec struct {
	ID, Owner, AgentID, PersonaID uuid.UUID // ID chosen by the caller (UUIDv7)
	Persona                       string
	GrantID, Line                 uuid.UUID
	Scope                         scope.Scope
	Identity                      []byte
	CallsItself, KeyThumbprint    string
	ExpiresAt                     time.Time
}

func (s *Store) VendPeer(ctx context.Context, tx pgx.Tx, spec PeerSpec) error { panic("contract") }

// ChangePeer locks the row FOR UPDATE, applies the change, bumps version; false when the row is not
// in a state in which the change is allowed (nothing changed).
type Change struct {
	Scope     *scope.Scope
	ExpiresAt *time.Time
	State     *State
}

func (s *Store) ChangePeer(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID, c Change) error {
	panic("contract")
}

// Changed is called by package friend after its commit, to drop caches and wake waiting calls.
func (s *Store) Changed(id uuid.UUID) { panic("contract") }

// ---- keys and tokens ----

// RegisterKey remembers an agent's public key, in the transaction that stores its first friend request at persona.
func (s *Store) RegisterKey(ctx context.Context, tx pgx.Tx, jkt string, jwk json.RawMessage, persona string, identity []byte) error {
	panic("contract")
}

// KeyGrant is a client_credentials request of protocol.md §4.1, already form-decoded.
type KeyGrant struct {
	Assertion string   // client_assertion
	ClientID  string   // optional
	Resource  string   // exact URL
	Scope     []string // optional
	ProofKey  string   // DPoP jkt when a valid proof came along (must equal the assertion's key)
}

type Token struct {
	Access, Refresh string
	ExpiresIn       time.Duration
	Scope           []string
	DPoP            bool
}

// OAuthError is an RFC 6749 §5.2 error: invalid_client (401), invalid_target, invalid_scope, invalid_grant, invalid_request, unsupported_grant_type (400).
type OAuthError struct {
	Code, Description string
}

func (e *OAuthError) Error() string { return e.Code + ": " + e.Description }

func (s *Store) IssueForKey(ctx context.Context, g KeyGrant) (Token, error) { panic("contract") }

// RevokeToken is RFC 7009; unknown tokens are no error.
func (s *Store) RevokeToken(ctx context.Context, token string) error { panic("contract") }

// Requester is who an A2A bearer speaks for at one persona: a key, or an identity (code flow).
type Requester struct {
	Persona  string
	Key      string // jkt; "" for a code-flow token
	Identity []byte // set for a code-flow token
	ProofKey string
}

// AuthenticateRequester resolves a bearer for the A2A resource of persona slug; refusal.Unauthenticated otherwise.
func (s *Store) AuthenticateRequester(ctx context.Context, slug, bearer string) (Requester, error) {
	panic("contract")
}

// Holder is a live token as shown to owner or requester (which clients hold tokens).
type Holder struct {
	ID        uuid.UUID
	Client    string // client_id or key thumbprint
	Kind      string // key, code, static
	CreatedAt time.Time
	ExpiresAt time.Time
	LastUsed  *time.Time
}

func (s *Store) Holders(ctx context.Context, owner, endpoint uuid.UUID) ([]Holder, error) {
	panic("contract")
}
func (s *Store) RevokeHolder(ctx context.Context, owner, endpoint, holder uuid.UUID) error {
	panic("contract")
}
