package friend

import (
	"time"

	"github.com/google/uuid"

	"switchboard/internal/scope"
)

// RequestState is where a friend request stands.
type RequestState string

// The states of a friend request. All but the first two are terminal.
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

// Text names the identity in one line: the verified e-mail address, else
// subject and issuer. What the issuer calls the person is no part of it.
func (i Identity) Text() string {
	if i.Email != "" {
		return i.Email
	}
	return i.Subject + " at " + i.Issuer
}

// From is what the requester says of itself.
type From struct {
	Name string `json:"name"`
	Card string `json:"card,omitempty"` // shown, never fetched
}

// Request is a friend request: a pending, directional ask that grants nothing.
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

	issuerEntry string
	mayAskAgain bool
}

// Artifact is what an approval answers the requester. It holds no secret and
// never changes.
type Artifact struct {
	MCPEndpoint         string      `json:"mcp_endpoint"`
	ResourceMetadata    string      `json:"resource_metadata"`
	AuthorizationServer string      `json:"authorization_server"`
	GrantedScope        scope.Scope `json:"granted_scope"`
	GrantID             uuid.UUID   `json:"grant_id"`
	ExpiresAt           time.Time   `json:"expires_at"`
}

// SignIn is where the requester's human signs in (method sign-in).
type SignIn struct {
	URL       string
	ExpiresAt time.Time
}

// How long things last (specs/protocol.md section 7).
const (
	pendingFor = 14 * 24 * time.Hour
	signInFor  = 10 * time.Minute
	coolDown   = 7 * 24 * time.Hour
)
