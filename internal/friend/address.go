package friend

import (
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"switchboard/internal/refusal"
)

const (
	addressPerMinute = 120
	// addressesKnown bounds the memory that strangers can make us spend.
	addressesKnown = 65536
)

// addressLimit lets an address send 120 requests a minute to this replica. It
// stands before anything that costs a signature or a query, so it lives in
// memory; quotas that must hold across replicas are in the database.
type addressLimit struct {
	mu      sync.Mutex
	buckets *lru.Cache[netip.Prefix, *rate.Limiter]
}

func newAddressLimit() *addressLimit {
	c, err := lru.New[netip.Prefix, *rate.Limiter](addressesKnown)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &addressLimit{buckets: c}
}

// take counts one request of the address; refusal.RateLimited when that is one
// too many.
func (a *addressLimit) take(address netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := network(address)
	l, ok := a.buckets.Get(at)
	if !ok {
		l = rate.NewLimiter(rate.Limit(addressPerMinute)/60, addressPerMinute)
		a.buckets.Add(at, l)
	}
	r := l.Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		return refusal.New(refusal.RateLimited, "too many friend requests from this address").After(wait.Round(time.Second) + time.Second)
	}
	return nil
}

// network is what counts as one address: an IPv4 address, or the /64 that one
// IPv6 subscriber has to itself. The zero address is one of its own.
func network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// exempt reports whether limits per address do not count for this one.
func (s *Store) exempt(a netip.Addr) bool { return s.o.Dev && a.Unmap().IsLoopback() }
