package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"switchboard/internal/provenance"
	"switchboard/internal/quote"
)

// client is what a client id metadata document says
// (draft-ietf-oauth-client-id-metadata-document).
type client struct {
	id        string // its URL, and the only part that is proven
	name      string // what it calls itself, made visible
	redirects []string
}

const (
	maxDocument  = 64 << 10
	maxRedirects = 50
	maxName      = 100

	keepDefault = 10 * time.Minute
	keepLongest = 24 * time.Hour
	fetchesMost = 8 // at once
	fetchesEach = 2 // of one person's, so that nobody's slow documents hold all of them
)

// clients fetches documents and keeps them for as long as they say.
type clients struct {
	http *http.Client
	dev  bool
	slot chan struct{}

	mu     sync.Mutex
	kept   *lru.LRU[string, keptClient]
	asking map[uuid.UUID]int // fetches of a person's, waiting ones too
}

type keptClient struct {
	client client
	until  time.Time
}

func newClients(c *http.Client, dev bool) *clients {
	kept, err := lru.NewLRU[string, keptClient](1024, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &clients{http: c, dev: dev, kept: kept, slot: make(chan struct{}, fetchesMost), asking: map[uuid.UUID]int{}}
}

// get returns the client of an id, for a person. The error is for that person,
// who is in front of the page and chose the client.
func (c *clients) get(ctx context.Context, person uuid.UUID, id string) (client, error) {
	if err := checkClientID(id, c.dev); err != nil {
		return client{}, err
	}
	c.mu.Lock()
	k, ok := c.kept.Get(id)
	c.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.client, nil
	}
	if !c.enter(person) {
		return client{}, errors.New("several programs of yours are being looked up already, wait for them")
	}
	defer c.leave(person)
	select {
	case c.slot <- struct{}{}:
		defer func() { <-c.slot }()
	case <-ctx.Done():
		return client{}, ctx.Err()
	}
	found, keep, err := c.fetch(ctx, id)
	if err != nil {
		return client{}, err
	}
	if keep > 0 {
		c.mu.Lock()
		c.kept.Add(id, keptClient{found, time.Now().Add(keep)})
		c.mu.Unlock()
	}
	return found, nil
}

func (c *clients) enter(person uuid.UUID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking[person] >= fetchesEach {
		return false
	}
	c.asking[person]++
	return true
}

func (c *clients) leave(person uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking[person]--; c.asking[person] == 0 {
		delete(c.asking, person)
	}
}

// checkClientID refuses what cannot be the URL of a document.
func checkClientID(id string, dev bool) error {
	if len(id) > maxURL || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
		return errors.New("client_id is too long or has characters that a URL has not")
	}
	u, err := url.Parse(id)
	switch {
	case err != nil || u.Hostname() == "":
		return errors.New("client_id must be the URL of a client id metadata document")
	case u.Scheme != "https" && (!dev || u.Scheme != "http" || !loopback(u)):
		return errors.New("client_id must be an https URL")
	case u.User != nil || strings.Contains(id, "#"):
		return errors.New("client_id must have neither user nor fragment")
	case u.Path == "" || u.Path == "/":
		return errors.New("client_id must have a path")
	case path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/"):
		return errors.New("client_id must have no dot segments")
	}
	return nil
}

func (c *clients) fetch(ctx context.Context, id string) (client, time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return client{}, 0, fmt.Errorf("client_id: %w", err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		return client{}, 0, fmt.Errorf("the client's document cannot be fetched: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return client{}, 0, fmt.Errorf("the client's document answers %d", resp.StatusCode)
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && (!strings.HasPrefix(kind, "application/") || !strings.HasSuffix(kind, "+json")) {
		return client{}, 0, errors.New("the client's document is not application/json")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return client{}, 0, fmt.Errorf("the client's document cannot be read: %w", err)
	}
	found, err := parseClient(body, id)
	return found, keepFor(resp.Header.Get("Cache-Control")), err
}

// document are the members that count here; others are let be.
type document struct {
	ClientID      string         `json:"client_id"`
	ClientName    string         `json:"client_name"`
	RedirectURIs  []string       `json:"redirect_uris"`
	GrantTypes    []string       `json:"grant_types"`
	ResponseTypes []string       `json:"response_types"`
	AuthMethod    string         `json:"token_endpoint_auth_method"`
	Secret        jsontext.Value `json:"client_secret"`
}

// parseClient reads a document that was fetched from id.
func parseClient(body []byte, id string) (client, error) {
	if _, err := provenance.ParseStrict(body, maxDocument); err != nil {
		return client{}, fmt.Errorf("the client's document: %w", err)
	}
	var d document
	if err := jsonv2.Unmarshal(body, &d); err != nil {
		return client{}, errors.New("the client's document is not of the right form")
	}
	switch {
	case d.ClientID != id:
		return client{}, errors.New("the client's document is of another client")
	case d.Secret != nil:
		return client{}, errors.New("the client's document holds a secret, which is none then")
	case d.AuthMethod != "" && d.AuthMethod != "none":
		return client{}, errors.New("the client wants to authenticate in a way that is not supported here; public clients are")
	case d.GrantTypes != nil && !slices.Contains(d.GrantTypes, "authorization_code"):
		return client{}, errors.New("the client does not use the authorization code grant")
	case d.ResponseTypes != nil && !slices.Contains(d.ResponseTypes, "code"):
		return client{}, errors.New("the client does not use response type code")
	case len(d.RedirectURIs) == 0 || len(d.RedirectURIs) > maxRedirects:
		return client{}, errors.New("the client's document lists no redirects, or too many")
	}
	return client{id: id, name: quote.Visible(d.ClientName, maxName), redirects: d.RedirectURIs}, nil
}

// keepFor reads how long a document may be kept (RFC 9111), within bounds.
func keepFor(cacheControl string) time.Duration {
	keep := keepDefault
	for _, part := range strings.Split(cacheControl, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(strings.ToLower(part)), "=")
		switch name {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			if seconds, err := strconv.ParseInt(strings.Trim(value, `"`), 10, 32); err == nil && seconds >= 0 {
				keep = min(time.Duration(seconds)*time.Second, keepLongest)
			}
		}
	}
	return keep
}
