package friend

import (
	"time"

	"github.com/google/uuid"

	"switchboard/internal/scope"
)

// GrantState is where a grant stands.
type GrantState string

// The states of a grant. Active and paused ones are live.
const (
	GrantActive  GrantState = "active"
	GrantPaused  GrantState = "paused"
	GrantRevoked GrantState = "revoked"
	GrantExpired GrantState = "expired"
	GrantEnded   GrantState = "ended" // left, or superseded
)

// Live reports whether a grant in this state may come to work again.
func (s GrantState) Live() bool { return s == GrantActive || s == GrantPaused }

// Grant is an approved direction from a requester's identity to a persona.
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

	Key     string // jkt of the agent's key
	AgentID uuid.UUID

	due bool // time is over, and Run has not come by
}

const day = 24 * time.Hour
