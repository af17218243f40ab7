package friend

import (
	"net/netip"

	"switchboard/internal/refusal"
)

// addressPerMinute is how many friend requests an address may send this
// replica, before any signature is checked.
const addressPerMinute = 120

// count counts one request of the address; refusal.RateLimited when that is one
// too many.
func (s *Store) count(a netip.Addr) error {
	if s.exempt(a) {
		return nil
	}
	if wait := s.addresses.Take(a); wait > 0 {
		return refusal.New(refusal.RateLimited, "too many friend requests from this address").After(wait)
	}
	return nil
}

// exempt reports whether limits per address do not count for this one.
func (s *Store) exempt(a netip.Addr) bool { return s.o.Dev && a.Unmap().IsLoopback() }
