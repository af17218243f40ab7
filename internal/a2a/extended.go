package a2a

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/scope"
)

// held is a grant as the extended card shows it to its holder.
type held struct {
	GrantID             uuid.UUID         `json:"grant_id"`
	State               friend.GrantState `json:"state"`
	MCPEndpoint         string            `json:"mcp_endpoint"`
	ResourceMetadata    string            `json:"resource_metadata"`
	AuthorizationServer string            `json:"authorization_server"`
	GrantedScope        scope.Scope       `json:"granted_scope"`
	ExpiresAt           time.Time         `json:"expires_at"`
}

// extendedCard is the card with what the caller itself holds here: its live
// grants, each with the scope as it is now. Who holds none, because nobody has
// decided yet or because it is over, is shown an empty list.
func (c *call) extendedCard(who friend.Asker) (any, error) {
	grants, err := c.Friends.Held(c.r.Context(), who)
	if err != nil {
		return nil, err
	}
	shown := []held{}
	for _, g := range grants {
		shown = append(shown, held{
			GrantID: g.ID, State: g.State, MCPEndpoint: g.EndpointURL,
			ResourceMetadata:    c.PublicURL + "/.well-known/oauth-protected-resource/mcp/" + g.EndpointID.String(),
			AuthorizationServer: c.PublicURL, GrantedScope: g.Scope, ExpiresAt: g.ExpiresAt.UTC(),
		})
	}
	card := c.card10(c.persona)
	card.Capabilities.Extensions[0].Params["grants"] = shown
	card.Description += "\n\nThis is the extended card: grants, among the extension's params, are yours and nobody else's."
	body, err := c.signed(c.r.Context(), c.inForm(c.version, card))
	if err != nil {
		return nil, err
	}
	return json.RawMessage(body), nil
}
