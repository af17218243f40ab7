package endpoint

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"switchboard/internal/refusal"
)

// errBearer is the one answer to a bearer that does not open the endpoint,
// whatever the reason.
var errBearer = refusal.New(refusal.Unauthenticated, "invalid token")

// remember is how long a caller is used without a look at the database. It
// bounds how late "last used" is and how long this process keeps what is gone;
// it is not what makes revocation work.
const remember = time.Minute

// Authenticate resolves a bearer presented at MCP endpoint id. The caller may
// come from memory, see [Caller]. Any failure at all is refusal.Unauthenticated
// with one constant message; only a fault of ours is another error.
func (s *Store) Authenticate(ctx context.Context, id uuid.UUID, bearer string) (Caller, error) {
	c, err := s.Shared(ctx, id, bearer)
	if err != nil {
		return Caller{}, err
	}
	return *c, nil
}

// Shared is Authenticate without a copy: the caller must not be changed. Callers are
// large, and every request makes one.
func (s *Store) Shared(ctx context.Context, id uuid.UUID, bearer string) (*Caller, error) {
	if !plausible(bearer, accessPrefix, staticPrefix) {
		return nil, errBearer
	}
	token := sumOf(bearer)
	if c := s.cache.get(token); c != nil {
		if c.Endpoint.ID != id {
			return nil, errBearer
		}
		return c, nil
	}
	c, err := s.resolve(ctx, id, secretID(bearer))
	return &c, err
}

// Refresh resolves the caller anew from the database.
func (s *Store) Refresh(ctx context.Context, c Caller) (Caller, error) {
	return s.resolve(ctx, c.Endpoint.ID, c.TokenID)
}

// Live returns the caller as the database has it now. It costs one look at one
// row while nothing has changed. What answers from the caller alone (tools/list,
// whoami, ping) calls it first, so that narrowing, pausing and revoking show at
// once on every replica.
func (s *Store) Live(ctx context.Context, c Caller) (Caller, error) {
	var same bool
	err := s.pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM endpoint_authority WHERE owner = $1 AND id = $2 AND version = $3) AND clock_timestamp() < $4`,
		c.Endpoint.Owner, c.Endpoint.ID, c.Endpoint.Version, c.Until).Scan(&same)
	if err != nil {
		return Caller{}, fmt.Errorf("look at endpoint %s: %w", c.Endpoint.ID, err)
	}
	if same {
		return c, nil
	}
	return s.Refresh(ctx, c)
}

func (s *Store) resolve(ctx context.Context, id uuid.UUID, token []byte) (Caller, error) {
	c := Caller{TokenID: token}
	var idle bool
	e, err := scanned(s.pool.QueryRow(ctx, `
		SELECT `+columns+`, t.scope, t.proof_key, least(t.expires_at, e.expires_at),
			t.used_at IS NULL OR t.used_at < clock_timestamp() - interval '1 minute'
		FROM endpoint_token t
		JOIN endpoint e ON e.owner = t.owner AND e.id = t.endpoint_id
		WHERE t.id = $1 AND t.endpoint_id = $2
			AND e.state = 'active' AND e.expires_at > clock_timestamp() AND t.expires_at > clock_timestamp()`,
		token, id), &c.TokenScope, &c.ProofKey, &c.Until, &idle)
	if none(err) {
		s.cache.forget(token)
		return Caller{}, errBearer
	}
	if err != nil {
		return Caller{}, fmt.Errorf("resolve a bearer of endpoint %s: %w", id, err)
	}
	c.Endpoint = e
	if idle {
		if err := s.used(ctx, token); err != nil {
			return Caller{}, err
		}
	}
	s.cache.put(c)
	return c, nil
}

// used notes that a token is in use, at most once a minute. A token whose row
// another replica is just noting is left to it.
func (s *Store) used(ctx context.Context, token []byte) error {
	_, err := s.pool.Exec(ctx, `
		WITH t AS (SELECT id FROM endpoint_token WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED)
		UPDATE endpoint_token SET used_at = clock_timestamp() FROM t WHERE endpoint_token.id = t.id`, token)
	if err != nil {
		return fmt.Errorf("note the use of a token: %w", err)
	}
	return nil
}

// callers are the callers that this replica resolved lately, by token. They are
// right or found out, see [Caller].
type callers struct {
	mu   sync.Mutex
	list *lru.LRU[[32]byte, *known]
}

type known struct {
	caller Caller
	at     time.Time
}

func newCallers(size int) *callers {
	if size <= 0 {
		size = 8192
	}
	list, err := lru.NewLRU[[32]byte, *known](size, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &callers{list: list}
}

// get returns what must not be changed, nil when there is nothing.
func (c *callers) get(token [32]byte) *Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.list.Get(token)
	if !ok {
		return nil
	}
	if time.Since(k.at) > remember {
		c.list.Remove(token)
		return nil
	}
	return &k.caller
}

func (c *callers) put(caller Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list.Add([32]byte(caller.TokenID), &known{caller, time.Now()})
}

func (c *callers) forget(token []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list.Remove([32]byte(token))
}

// drop forgets all callers of an endpoint.
func (c *callers) drop(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, token := range c.list.Keys() {
		if k, ok := c.list.Peek(token); ok && k.caller.Endpoint.ID == id {
			c.list.Remove(token)
		}
	}
}
