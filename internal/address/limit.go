package address

import (
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// remembered bounds the memory that strangers can make us spend.
const remembered = 65536

// Limit lets each address do so much a minute, all of it at once if it likes.
type Limit struct {
	perMinute int

	mu      sync.Mutex
	buckets *lru.Cache[netip.Prefix, *rate.Limiter]
}

// NewLimit returns a limit of so many a minute.
func NewLimit(perMinute int) *Limit {
	c, err := lru.New[netip.Prefix, *rate.Limiter](remembered)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Limit{perMinute: perMinute, buckets: c}
}

// Take counts one for the address. A wait above zero, in whole seconds, refuses
// it: that is how long until there is room again.
func (l *Limit) Take(a netip.Addr) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := Network(a)
	b, ok := l.buckets.Get(at)
	if !ok {
		b = rate.NewLimiter(rate.Limit(l.perMinute)/60, l.perMinute)
		l.buckets.Add(at, b)
	}
	r := b.Reserve()
	if wait = r.Delay(); wait > 0 {
		r.Cancel()
		return wait.Round(time.Second) + time.Second
	}
	return 0
}

// Network is what counts as one address: an IPv4 address, or the /64 that one
// IPv6 subscriber has to itself. The zero address is one of its own.
func Network(a netip.Addr) netip.Prefix {
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
