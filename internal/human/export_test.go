package human

import "context"

// Sweep runs one round of what Run does every hour.
func (s *Store) Sweep(ctx context.Context) error { return s.sweep(ctx) }
