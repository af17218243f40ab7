package todo

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
)

// authority is the part of a caller that is compared in the database, where the
// write happens. The zero endpoint stands for the human, who needs none.
type authority struct {
	owner    uuid.UUID
	endpoint uuid.UUID
	version  int64
	until    time.Time
	home     bool
	queues   string // of a home endpoint, joined by commas
	stale    bool   // found not to hold
}

func authorityOf(c endpoint.Caller) authority {
	a := authority{
		owner:    c.Endpoint.Owner,
		endpoint: c.Endpoint.ID,
		version:  c.Endpoint.Version,
		until:    c.Until,
		home:     c.Endpoint.Kind == endpoint.Home,
	}
	if a.home {
		a.queues = strings.Join(c.Endpoint.Scope.Queues, ",")
	}
	return a
}

// upheld is the condition, in SQL, that the authority in columns owner, endpoint,
// version and until of row i still holds. The row was locked by an earlier
// statement of the transaction.
const upheld = `i.until > clock_timestamp() AND i.version =
	(SELECT a.version FROM endpoint_authority a WHERE a.owner = i.owner AND a.id = i.endpoint LIMIT 1)`

// authorities are the columns of many authorities, as arrays.
type authorities struct {
	owner, endpoint [][16]byte
	version         []int64
	until           []time.Time
}

func (as *authorities) add(a *authority) {
	as.owner = append(as.owner, a.owner)
	as.endpoint = append(as.endpoint, a.endpoint)
	as.version = append(as.version, a.version)
	as.until = append(as.until, a.until)
}

// Locking statements; the rows come in the order of their keys. Whoever changes an
// endpoint waits for us, and then our transaction has committed; or we wait for
// it, and then see the new version.
const (
	lockShared = `
		SELECT FROM unnest($1::uuid[], $2::uuid[]) AS i(owner, id),
			LATERAL (SELECT FROM endpoint_authority a WHERE a.owner = i.owner AND a.id = i.id LIMIT 1 FOR SHARE) x`
	lockCounted = `
		SELECT FROM unnest($1::uuid[], $2::uuid[]) AS i(owner, id),
			LATERAL (SELECT FROM endpoint_authority a WHERE a.owner = i.owner AND a.id = i.id LIMIT 1 FOR NO KEY UPDATE) x`
)

// lockFor queues the lock of one caller's row.
func (a authority) lockFor(b *pgx.Batch) {
	b.Queue(lockShared, [][16]byte{a.owner}, [][16]byte{a.endpoint})
}
