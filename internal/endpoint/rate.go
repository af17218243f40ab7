package endpoint

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// tokensPerMinute is how many tokens a key may ask for, on each replica. A key
// is anybody's who sent a request, and each token is a row for 15 minutes.
const tokensPerMinute = 600

// keyLimit counts what keys ask for.
type keyLimit struct {
	mu   sync.Mutex
	keys *lru.Cache[string, *rate.Limiter]
}

func newKeyLimit() *keyLimit {
	keys, err := lru.New[string, *rate.Limiter](65536)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &keyLimit{keys: keys}
}

func (l *keyLimit) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, ok := l.keys.Get(key)
	if !ok {
		limiter = rate.NewLimiter(rate.Limit(tokensPerMinute)/60, tokensPerMinute)
		l.keys.Add(key, limiter)
	}
	return limiter.Allow()
}
