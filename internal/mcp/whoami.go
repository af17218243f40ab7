package mcp

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"switchboard/internal/endpoint"
	"switchboard/internal/todo"
)

// whoamiTool is listed at every endpoint; no verb grants it.
var whoamiTool = with(tool{
	name:        endpoint.Whoami,
	description: "What this endpoint is and may do, and how much of its limits is used.",
	hints:       hints{readOnly: true, idempotent: true},
	input:       `{"type":"object","additionalProperties":false}`,
	output: `{"type":"object","properties":{"endpoint":{"type":"string"},"direction":{"type":"string"},"persona":{"type":"string"},"scope":{"type":"object"},"used":{"type":"object"},"expires_at":{"type":"string"},` + errorMember + `},` +
		`"anyOf":[{"required":["endpoint","direction","persona","scope","used","expires_at"]},{"required":["error"]}]}`,
}, func(v jsontext.Value, _ requestMeta) (struct{}, error) {
	_, err := decode[struct{}](v)
	return struct{}{}, err
}, runWhoami)

// self is what whoami answers. The scope of a home endpoint has tools for
// verbs, as it was vended, and no limits.
type self struct {
	Endpoint  string    `json:"endpoint"`
	Direction string    `json:"direction"`
	Persona   string    `json:"persona"`
	Scope     any       `json:"scope"`
	Used      todo.Used `json:"used"`
	ExpiresAt time.Time `json:"expires_at"`
}

type homeScope struct {
	Queues []string `json:"queues"`
	Verbs  []string `json:"verbs"`
}

func runWhoami(c *call, _ struct{}) (any, error) {
	used, err := c.h.Todos.Used(c.ctx, *c.caller)
	if err != nil {
		return nil, err
	}
	e := c.caller.Endpoint
	s := self{Endpoint: c.h.endpointURL(e.ID), Direction: "in", Persona: e.Persona, Used: used, ExpiresAt: e.ExpiresAt}
	if e.Kind == endpoint.Peer {
		s.Scope = c.caller.Effective()
		return s, nil
	}
	s.Direction = "home"
	verbs := e.Tools
	if verbs == nil {
		verbs = endpoint.HomeTools()
	}
	s.Scope = homeScope{Queues: e.Scope.Queues, Verbs: verbs}
	return s, nil
}
