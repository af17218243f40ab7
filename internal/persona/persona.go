package persona

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/scope"
)

// Agent is a registered runtime that a human owns. It may do nothing by itself.
type Agent struct {
	ID, Owner   uuid.UUID
	Name        string
	Description string
	CreatedAt   time.Time
	Version     int64
}

// Visibility says who finds a persona.
type Visibility string

// The visibilities of specs/protocol.md section 1.
const (
	Listed   Visibility = "listed"   // in the catalog
	Unlisted Visibility = "unlisted" // works by URL
	Off      Visibility = "off"      // answers like an unknown slug
)

// WhoMayAsk says whose friend requests a persona takes. The zero value is
// anyone of the issuers that the instance trusts. On the wire and in the
// database it is "anyone", "nobody", or a list of issuers.
type WhoMayAsk struct { //nolint:recvcheck // JSON is written by value and read by pointer
	Nobody  bool
	Issuers []string // nil with !Nobody: anyone of the trusted issuers
}

// MarshalJSON writes "anyone", "nobody" or the list.
func (w WhoMayAsk) MarshalJSON() ([]byte, error) {
	switch {
	case w.Nobody:
		return []byte(`"nobody"`), nil
	case w.Issuers == nil:
		return []byte(`"anyone"`), nil
	}
	return json.Marshal(w.Issuers)
}

// UnmarshalJSON reads what MarshalJSON writes. An empty list stays an empty
// list, which Create and Update refuse: it must not come out as anyone.
func (w *WhoMayAsk) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		switch word {
		case "anyone":
			*w = WhoMayAsk{}
			return nil
		case "nobody":
			*w = WhoMayAsk{Nobody: true}
			return nil
		}
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil || list == nil {
		return fmt.Errorf("who_may_ask is %q, %q or a list of issuers", "anyone", "nobody")
	}
	*w = WhoMayAsk{Issuers: list}
	return nil
}

// Persona is one scoped face of an agent, published as one card.
type Persona struct {
	ID, Owner    uuid.UUID
	AgentID      uuid.UUID
	Slug         string
	Name         string
	Description  string
	Prompt       string
	Queues       []string
	Offers       []scope.Offer
	OfferVersion int64 // bumped when offers change
	Visibility   Visibility
	WhoMayAsk    WhoMayAsk
	CreatedAt    time.Time
	UpdatedAt    time.Time
	Version      int64
}

// Spec is what a new persona is made of.
type Spec struct {
	AgentID                         uuid.UUID
	Slug, Name, Description, Prompt string
	Queues                          []string
	Offers                          []scope.Offer
	Visibility                      Visibility // "" is listed
	WhoMayAsk                       WhoMayAsk
}

// Patch changes a persona; nil leaves a member as it is. The slug is immutable.
type Patch struct {
	Name, Description, Prompt *string
	Queues                    *[]string
	Offers                    *[]scope.Offer
	Visibility                *Visibility
	WhoMayAsk                 *WhoMayAsk
	IfVersion                 *int64 // refusal.PreconditionFailed unless it is the version now
}
