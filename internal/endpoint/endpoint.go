package endpoint

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/scope"
)

// Kind says whom an endpoint serves.
type Kind string

// The kinds.
const (
	Home Kind = "home" // a human's own worker
	Peer Kind = "peer" // a friend; belongs to a grant
)

// State is where an endpoint is in its life.
type State string

// The states. Only Active answers calls; Revoked, Expired and Ended are final.
const (
	Active  State = "active"
	Paused  State = "paused"
	Revoked State = "revoked"
	Expired State = "expired" // derived: active or paused with expires_at passed
	Ended   State = "ended"   // left by the friend, or superseded
)

// Endpoint is one row. Version is bumped by every change (narrow, pause, resume,
// rotate, revoke, token revocation, expiry change): a Caller resolved at version
// N stays right exactly while the locked row still says N and the database clock
// is before Until.
type Endpoint struct {
	ID, Owner          uuid.UUID
	Kind               Kind
	AgentID, PersonaID uuid.UUID
	Persona            string      // slug, as it was at vending
	GrantID            uuid.UUID   // peer only
	Line               uuid.UUID   // peer: the grant's line; home: the agent's id
	Scope              scope.Scope // peer: the granted scope. home: Queues only, Verbs empty
	Tools              []string    // home: which home tools (specs/protocol.md section 5), nil = all
	Identity           []byte      // peer: identity hash of the requester
	IdentityText       string      // peer: the requester as people read it, as package friend gives it at vending
	CallsItself        string      // peer: from.name of the requester
	KeyThumbprint      string      // peer: thumbprint of the agent's key
	State              State
	Version            int64
	CreatedAt          time.Time
	ExpiresAt          time.Time
}

var homeTools = []string{
	"list_todos", "get_todo", "claim", "claim_next", "heartbeat", "complete", "fail", "release", "ask", "create",
	"discover", "friend_request", "friends", Whoami,
}

// Whoami is the tool that every endpoint lists, whatever its scope.
const Whoami = "whoami"

// HomeTools lists the tools that a home endpoint may have, in their fixed order
// (specs/protocol.md section 5).
func HomeTools() []string { return slices.Clone(homeTools) }

// HasTool reports whether the endpoint has the tool: for a peer its verbs, for
// a home its tools, and whoami always.
func (e Endpoint) HasTool(name string) bool {
	switch {
	case name == Whoami:
		return true
	case e.Kind == Peer:
		return slices.Contains(e.Scope.Verbs, scope.Verb(name))
	case e.Tools == nil:
		return slices.Contains(homeTools, name)
	}
	return slices.Contains(e.Tools, name)
}
