package provenance

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"switchboard/internal/refusal"
)

// How often an issuer is asked. Strangers cause all of these fetches, so each
// has a floor.
const (
	refetchEvery = time.Minute      // for unknown kids and bad signatures
	retryEvery   = 10 * time.Second // after a failed fetch
	minCache     = time.Minute
	maxCache     = 24 * time.Hour
	defaultCache = time.Hour
	maxStale     = time.Hour // how long keys are used past their time when the issuer does not answer
)

// minRSA is the shortest RSA modulus that is believed, in bits (RFC 7518 §3.3).
const minRSA = 2048

// Keys holds the issuers' discovery documents and key sets, each fetched from
// the configured URL and from nowhere else.
//
// It is not go-oidc's RemoteKeySet, which keeps keys for ever and fetches anew
// for each bad signature: here a set lives for the issuer's max-age with
// jitter, so that withdrawn keys are noticed; one fetch an issuer is in flight;
// and bad signatures cause at most one a minute.
type Keys struct {
	client *http.Client
	now    func() time.Time // the process clock: a cache decides nothing

	mu   sync.Mutex
	sets map[string]*keySet // by Issuer.Issuer
}

// NewKeys makes an empty Keys that fetches with client (see GuardedClient).
func NewKeys(client *http.Client) *Keys {
	return &Keys{client: client, now: time.Now, sets: map[string]*keySet{}}
}

// issuerKey is one usable key of a set.
type issuerKey struct {
	id     string
	alg    string // "" when the set does not say
	issuer string // Entra: the issuer this key signs for, possibly a template
	key    jose.JSONWebKey
}

// keySet is one issuer's cache. generation counts successful fetches, so that a
// caller who looked at an older set is given the newer one without a fetch.
type keySet struct {
	mu         sync.Mutex
	keys       []issuerKey
	discovery  Discovery
	found      time.Time // until when discovery stands
	generation int
	until      time.Time // until when keys stand
	forced     time.Time // last fetch caused by a bad signature or unknown kid
	failed     time.Time // last failed fetch
	failure    error
	flight     *flight
}

// flight is a fetch under way; done is closed when its result stands.
type flight struct{ done chan struct{} }

func (k *Keys) set(i *Issuer) *keySet {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sets[i.Issuer]
	if s == nil {
		s = &keySet{}
		k.sets[i.Issuer] = s
	}
	return s
}

// VerifyToken verifies a compact JWS by this issuer's keys with the entry's
// pinned algorithms and returns its payload: row 4 of the table, which sign-in
// uses too. Errors: refusal.IDTokenSignature, refusal.Unavailable.
func (k *Keys) VerifyToken(ctx context.Context, i *Issuer, token string) ([]byte, error) {
	c, err := parseCompact(token)
	if err != nil {
		return nil, badToken("it does not parse").Because(err)
	}
	if err := k.verify(ctx, i, c); err != nil {
		return nil, err
	}
	return c.payload, nil
}

func (k *Keys) verify(ctx context.Context, i *Issuer, c compact) error {
	if !slices.Contains(i.Algs, c.alg) || !asymmetric(c.alg) {
		return badToken("its algorithm is not one that this issuer is known to use")
	}
	s := k.set(i)
	keys, generation, err := k.current(ctx, i, s)
	if err != nil {
		return refusal.New(refusal.Unavailable, "the issuer's keys cannot be fetched now").After(retryEvery).Because(err)
	}
	why := anyVerifies(keys, i, c)
	if why == nil {
		return nil
	}
	// The keys may have been rotated, or one kid given to another key.
	if keys, ok := k.again(ctx, i, s, generation); ok {
		if why = anyVerifies(keys, i, c); why == nil {
			return nil
		}
	}
	return badToken("no key of the issuer verifies it").Because(why)
}

// current returns the set, fetched when there is none or its time is over.
// When the issuer does not answer, a set that is not too stale still stands.
func (k *Keys) current(ctx context.Context, i *Issuer, s *keySet) ([]issuerKey, int, error) {
	s.mu.Lock()
	now := k.now()
	if s.generation > 0 && now.Before(s.until) {
		defer s.mu.Unlock()
		return s.keys, s.generation, nil
	}
	if s.flight == nil && s.failure != nil && now.Sub(s.failed) < retryEvery {
		defer s.mu.Unlock()
		return s.usable(now)
	}
	f := k.fly(ctx, i, s)
	s.mu.Unlock()

	if err := f.wait(ctx); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable(k.now())
}

// usable returns the keys unless they are missing or too stale.
func (s *keySet) usable(now time.Time) ([]issuerKey, int, error) {
	if s.generation == 0 || now.After(s.until.Add(maxStale)) {
		if s.failure != nil {
			return nil, 0, s.failure
		}
		return nil, 0, errors.New("no keys")
	}
	return s.keys, s.generation, nil
}

// again returns a newer set than the given generation, fetching at most once a
// minute; false when there is none.
func (k *Keys) again(ctx context.Context, i *Issuer, s *keySet, generation int) ([]issuerKey, bool) {
	s.mu.Lock()
	if s.generation != generation {
		defer s.mu.Unlock()
		return s.keys, true
	}
	f := s.flight
	if f == nil {
		now := k.now()
		if !s.forced.IsZero() && now.Sub(s.forced) < refetchEvery {
			s.mu.Unlock()
			return nil, false
		}
		s.forced = now
		f = k.fly(ctx, i, s)
	}
	s.mu.Unlock()

	if f.wait(ctx) != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys, s.generation != generation
}

func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fly starts a fetch, or joins the one under way. The lock is held. The fetch
// outlives the caller who started it, because others wait for it too; it ends
// with the client's timeout.
func (k *Keys) fly(ctx context.Context, i *Issuer, s *keySet) *flight {
	if s.flight != nil {
		return s.flight
	}
	f := &flight{done: make(chan struct{})}
	s.flight = f
	discovery, fresh := s.discovery, k.now().Before(s.found)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*FetchTimeout)
		defer cancel()
		var err error
		var found time.Duration
		if !fresh {
			discovery, found, err = k.discover(ctx, i)
		}
		var keys []issuerKey
		var ttl time.Duration
		if err == nil {
			keys, ttl, err = k.fetchKeys(ctx, discovery.JWKSURI)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(f.done)
		s.flight = nil
		now := k.now()
		if err != nil {
			s.failed, s.failure = now, err
			s.found = time.Time{} // jwks_uri may have moved
			return
		}
		if !fresh {
			s.discovery, s.found = discovery, now.Add(found)
		}
		s.keys, s.until, s.failure = keys, now.Add(ttl), nil
		s.generation++
	}()
	return f
}

// anyVerifies tries the keys that may have made this signature.
func anyVerifies(keys []issuerKey, i *Issuer, c compact) error {
	why := errors.New("no key with this kid and algorithm")
	for _, key := range keys {
		if (c.kid != "" && key.id != c.kid) || !key.fits(c.alg) {
			continue
		}
		if why = key.verify(i, c); why == nil {
			return nil
		}
	}
	return why
}

// fits reports whether the key may be used with the algorithm: the type must
// match, so that a key is never taken for one of another kind.
func (k issuerKey) fits(alg string) bool {
	same := k.alg == "" || k.alg == alg || edwards(k.alg) && edwards(alg)
	if !same {
		return false
	}
	switch key := k.key.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")
	case *ecdsa.PublicKey:
		return alg == curveAlg[key.Curve]
	case ed25519.PublicKey:
		return edwards(alg)
	}
	return false
}

var curveAlg = map[elliptic.Curve]string{elliptic.P256(): "ES256", elliptic.P384(): "ES384", elliptic.P521(): "ES512"}

func edwards(alg string) bool { return alg == "EdDSA" || alg == "Ed25519" }

func (k issuerKey) verify(i *Issuer, c compact) error {
	if edwards(c.alg) { // go-jose does not know RFC 9864's name
		if err := c.verify(k.key.Key); err != nil {
			return err
		}
	} else {
		sig, err := jose.ParseSignedCompact(c.text, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(c.alg)})
		if err != nil {
			return fmt.Errorf("parse JWS: %w", err)
		}
		if _, err := sig.Verify(k.key.Key); err != nil {
			return fmt.Errorf("verify JWS: %w", err)
		}
	}
	// A key of a many-tenant set may be bound to one tenant's issuer.
	if k.issuer != "" && i.templated() {
		cl, err := decodeClaims(c.payload)
		if err != nil {
			return err
		}
		if strings.ReplaceAll(k.issuer, tenantTemplate, cl.text("tid")) != cl.text("iss") {
			return errors.New("the key is another tenant's")
		}
	}
	return nil
}

// asymmetric lists every algorithm that an entry may pin. HMAC and none are not
// among them: with HMAC a public key would be a shared secret.
func asymmetric(alg string) bool {
	return slices.Contains([]string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}, alg)
}

// decodeKeys reads a key set. A key that is unusable here is left out and does
// not spoil the others (RFC 7517 §5): unknown types, private and symmetric
// keys, keys for encryption, short RSA.
func decodeKeys(body []byte) ([]issuerKey, error) {
	if err := parse(body, false); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	var doc struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := jsonv2.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	var keys []issuerKey
	for _, raw := range doc.Keys {
		var meta struct {
			Issuer string   `json:"issuer"`
			KeyOps []string `json:"key_ops"`
		}
		var jwk jose.JSONWebKey
		if jsonv2.Unmarshal(raw, &meta) != nil || jwk.UnmarshalJSON(raw) != nil || !jwk.IsPublic() || !jwk.Valid() {
			continue
		}
		if (jwk.Use != "" && jwk.Use != "sig") || (len(meta.KeyOps) > 0 && !slices.Contains(meta.KeyOps, "verify")) {
			continue
		}
		if r, ok := jwk.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSA {
			continue
		}
		keys = append(keys, issuerKey{id: jwk.KeyID, alg: jwk.Algorithm, issuer: meta.Issuer, key: jwk})
	}
	if len(keys) == 0 {
		return nil, errors.New("key set: no usable key")
	}
	return keys, nil
}
