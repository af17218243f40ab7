package endpoint

import (
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/scope"
)

const (
	mcpPath = "/mcp/"
	a2aPath = "/a2a/"
)

// resource is what a token is for: an endpoint, or a persona's A2A URL.
type resource struct {
	endpoint uuid.UUID // zero for A2A
	persona  string    // "" for MCP
}

// ParseResource takes the exact URL of a resource apart; ok is false when it is
// none of this instance. It looks nothing up.
func (s *Store) ParseResource(url string) (id uuid.UUID, persona string, ok bool) {
	r, ok := s.resource(url)
	return r.endpoint, r.persona, ok
}

func (s *Store) resource(url string) (resource, bool) {
	path, ok := strings.CutPrefix(url, s.o.PublicURL)
	if !ok {
		return resource{}, false
	}
	if text, ok := strings.CutPrefix(path, mcpPath); ok {
		id, err := uuid.Parse(text)
		return resource{endpoint: id}, err == nil && id.String() == text && id != uuid.Nil
	}
	if slug, ok := strings.CutPrefix(path, a2aPath); ok {
		return resource{persona: slug}, scope.QueueName(slug)
	}
	return resource{}, false
}
