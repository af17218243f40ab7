package friend

import "context"

// Held lists what the asker's key or identity holds at its persona now: active
// and paused grants, newest first, at most 100. An asker without a persona holds
// nothing.
func (s *Store) Held(ctx context.Context, a Asker) ([]Grant, error) {
	var whose string
	var who any
	switch {
	case a.Key != "":
		whose, who = `g.key_thumbprint = $3`, a.Key
	case len(a.Identity) > 0:
		whose, who = `g.identity = $3`, a.Identity
	}
	if whose == "" || a.Persona == "" {
		return nil, nil
	}
	p, err := s.o.Personas.BySlug(ctx, a.Persona)
	if err != nil {
		return nil, err
	}
	return s.grants(ctx, s.pool, `
		WHERE g.owner = $1 AND g.persona_id = $2 AND `+whose+`
		AND g.state IN ('active', 'paused') AND g.expires_at > clock_timestamp()
		ORDER BY g.id DESC LIMIT 100`, p.Owner, p.ID, who)
}
