package provenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"switchboard/internal/refusal"
)

// Discovery is the part of an issuer's configuration document that is used
// here (OpenID Connect Discovery 1.0 §3).
type Discovery struct {
	Issuer                string `json:"issuer"`
	AuthorizationEndpoint string `json:"authorization_endpoint"`
	TokenEndpoint         string `json:"token_endpoint"`
	JWKSURI               string `json:"jwks_uri"`
	EndSessionEndpoint    string `json:"end_session_endpoint"`
}

// Discover returns the issuer's configuration, cached with its keys. When the
// issuer cannot be reached it is refusal.Unavailable.
func (k *Keys) Discover(ctx context.Context, i *Issuer) (Discovery, error) {
	s := k.set(i)
	if _, _, err := k.current(ctx, i, s); err != nil {
		return Discovery{}, refusal.New(refusal.Unavailable, "the issuer cannot be reached now").After(retryEvery).Because(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discovery, nil
}

// discoveryURL is where the entry's configuration document lies: configured, or
// derived as Discovery 1.0 §4 has it. A template's document is that of all
// organisations' tenants.
func (i *Issuer) discoveryURL() string {
	if i.Discovery != "" {
		return i.Discovery
	}
	base := strings.ReplaceAll(i.Issuer, tenantTemplate, "organizations")
	return strings.TrimSuffix(base, "/") + "/.well-known/openid-configuration"
}

func (k *Keys) discover(ctx context.Context, i *Issuer) (Discovery, time.Duration, error) {
	body, ttl, err := k.fetch(ctx, i.discoveryURL())
	if err != nil {
		return Discovery{}, 0, fmt.Errorf("discovery: %w", err)
	}
	if err := parse(body, false); err != nil {
		return Discovery{}, 0, fmt.Errorf("discovery: %w", err)
	}
	var d Discovery
	if err := jsonv2.Unmarshal(body, &d); err != nil {
		return Discovery{}, 0, fmt.Errorf("discovery: %w", err)
	}
	// The document must be about this entry, exactly (Discovery 1.0 §4.3); a
	// slash more or less is another issuer.
	if d.Issuer != i.Issuer && !i.names(d.Issuer, "") {
		return Discovery{}, 0, fmt.Errorf("discovery: the document is of issuer %q, not %q", d.Issuer, i.Issuer)
	}
	if d.JWKSURI == "" {
		return Discovery{}, 0, errors.New("discovery: no jwks_uri")
	}
	return d, ttl, nil
}

func (k *Keys) fetchKeys(ctx context.Context, url string) ([]issuerKey, time.Duration, error) {
	body, ttl, err := k.fetch(ctx, url)
	if err != nil {
		return nil, 0, fmt.Errorf("key set: %w", err)
	}
	keys, err := decodeKeys(body)
	return keys, ttl, err
}

// fetch gets a document and how long it may be kept.
func (k *Keys) fetch(ctx context.Context, url string) ([]byte, time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxFetch+1))
	if err != nil {
		return nil, 0, err
	}
	if len(body) > MaxFetch {
		return nil, 0, ErrTooLarge
	}
	return body, jitter(maxAge(resp.Header)), nil
}

// maxAge reads Cache-Control and Age (RFC 9111 §4.2), kept within minCache and
// maxCache: an issuer that says no-store must not be asked for every request.
func maxAge(h http.Header) time.Duration {
	ttl := defaultCache
	for _, d := range strings.Split(h.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(d)), "=")
		switch name {
		case "no-store", "no-cache":
			return minCache
		case "max-age":
			if n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				ttl = time.Duration(n) * time.Second
			}
		}
	}
	if age, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil {
		ttl -= time.Duration(age) * time.Second
	}
	return min(max(ttl, minCache), maxCache)
}

// jitter takes up to a tenth off, so that replicas do not ask all at once.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/10+1)) //nolint:gosec // spreading load, not a secret
}
