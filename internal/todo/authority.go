package todo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
	"switchboard/internal/postgres"
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

func (a authority) has(queue string) bool {
	for q := range strings.SplitSeq(a.queues, ",") {
		if q == queue {
			return true
		}
	}
	return false
}

// errStale is the SQLSTATE of todo_stale().
const errStale = "SB001"

// Locking statements. Whoever changes an endpoint waits for us, and then our
// transaction has committed; or we wait for it, and then see its new version. When
// a caller turns out stale the whole transaction ends there, before anything is
// done: in a batch the calls are then carried out one by one, and only the stale
// one is told.
//
// The comparison is made with what the locking sub-select returns, which after a
// wait is the row as it is then, and the clock is read after the wait.
const (
	lockOne = `
		SELECT CASE WHEN $3 = (
			SELECT a.version FROM endpoint_authority a WHERE a.owner = $1 AND a.id = $2 LIMIT 1 FOR SHARE
		) AND $4 > clock_timestamp() THEN true ELSE todo_stale() END`
	lockOneCounted = `
		SELECT CASE WHEN $3 = (
			SELECT a.version FROM endpoint_authority a WHERE a.owner = $1 AND a.id = $2 LIMIT 1 FOR NO KEY UPDATE
		) AND $4 > clock_timestamp() THEN true ELSE todo_stale() END`
	lockMany        = lockManyHead + `FOR SHARE` + lockManyTail
	lockManyCounted = lockManyHead + `FOR NO KEY UPDATE` + lockManyTail
	lockManyHead    = `
		SELECT CASE WHEN count(*) = cardinality($1::uuid[]) THEN true ELSE todo_stale() END
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[]) AS i(owner, id, version, until), LATERAL (
			SELECT a.version FROM endpoint_authority a WHERE a.owner = i.owner AND a.id = i.id LIMIT 1 `
	lockManyTail = `
		) x WHERE x.version = i.version AND i.until > clock_timestamp()`
)

// guarded adds to a statement's conditions that its caller's authority holds, and
// takes the lock on the way: $n to $n+2 are endpoint, version and end, $1 the owner.
// It is judged as soon as there is a row that fulfils the others, before that row is
// locked, and not at all when there is none: whoever had nothing done is looked at
// again under a lock of its own (see carryOut). A statement that counts nothing needs
// no younger snapshot than its own: the rows that it changes are compared again after
// they are locked. As a sub-select of its own it would cost half as much again.
func guarded(n int) string {
	return fmt.Sprintf(` AND CASE WHEN $%[2]d::bigint = (
			SELECT a.version FROM endpoint_authority a WHERE a.owner = $1 AND a.id = $%[1]d::uuid LIMIT 1 FOR SHARE
		) AND $%[3]d::timestamptz > clock_timestamp() THEN true ELSE todo_stale() END`, n, n+1, n+2)
}

// guards are the arguments of a guarded statement.
func (a *authority) guards() []any { return []any{raw(a.endpoint), a.version, a.until} }

// alone reports whether the round is a single item whose statement can hold its
// caller's lock itself.
func (r *round) alone() bool {
	if len(r.works) != 1 || r.items() != 1 || r.works[0].auth.endpoint == uuid.Nil {
		return false
	}
	switch {
	case len(r.creates) == 1:
		return r.creates[0].limits == nil && r.creates[0].notBefore == nil && r.creates[0].deadline == nil
	case len(r.beats) == 1:
		return len(r.beats[0].artifacts.names) == 0
	case len(r.completions) == 1:
		return len(r.completions[0].artifacts.names) == 0
	case len(r.demands) == 1:
		d := r.demands[0]
		return d.id == uuid.Nil && !d.full && len(d.queues) == 1 && d.max == 1
	}
	return false
}

// lock queues the locks of all callers' rows: peers before homes, each in the
// order of their keys, and then those of humans.
func (r *round) lock(b *script) {
	if r.single {
		return
	}
	var peers, homes, humans []*authority
	counted := false
	for _, w := range r.works {
		switch {
		case w.auth.endpoint == uuid.Nil:
			humans = append(humans, &w.auth)
		case w.auth.home:
			homes = append(homes, &w.auth)
		default:
			peers = append(peers, &w.auth)
			counted = counted || len(w.creates) > 0
		}
	}
	if counted {
		queueLocks(b, peers, lockOneCounted, lockManyCounted)
	} else {
		queueLocks(b, peers, lockOne, lockMany)
	}
	queueLocks(b, homes, lockOne, lockMany)
	slices.SortFunc(humans, func(a, b *authority) int { return byRow(a.owner, uuid.Nil, b.owner, uuid.Nil) })
	for _, a := range slices.CompactFunc(humans, func(a, b *authority) bool { return a.owner == b.owner }) {
		b.add(present, raw(a.owner))
	}
}

func queueLocks(b *script, auths []*authority, one, many string) {
	if len(auths) > 1 {
		slices.SortFunc(auths, func(a, b *authority) int {
			if c := byRow(a.owner, a.endpoint, b.owner, b.endpoint); c != 0 {
				return c
			}
			return a.until.Compare(b.until)
		})
		// The earliest end of those of a row; whoever is later is no worse off.
		auths = slices.CompactFunc(auths, func(a, b *authority) bool { return a.endpoint == b.endpoint && a.version == b.version })
	}
	switch len(auths) {
	case 0:
	case 1:
		b.add(one, raw(auths[0].owner), raw(auths[0].endpoint), auths[0].version, auths[0].until)
	default:
		owners, ids := make([][16]byte, len(auths)), make([][16]byte, len(auths))
		versions, untils := make([]int64, len(auths)), make([]time.Time, len(auths))
		for i, a := range auths {
			owners[i], ids[i], versions[i], untils[i] = a.owner, a.endpoint, a.version, a.until
		}
		b.add(many, owners, ids, versions, untils)
	}
}

// present locks the row of the human's inbox, which stands for the account. What
// humans do themselves holds no endpoint; this is what an erasure waits for, or it
// would leave over what is just being made.
const present = `SELECT FROM queue q WHERE q.owner = $1 AND q.name = 'inbox' FOR KEY SHARE`

// uphold locks the caller's row and compares it; endpoint.ErrStale. The transaction
// is of no further use after an error.
func (a authority) uphold(ctx context.Context, tx pgx.Tx) error {
	if a.endpoint == uuid.Nil {
		if _, err := tx.Exec(ctx, present, a.owner); err != nil {
			return fmt.Errorf("hold the account: %w", err)
		}
		return nil
	}
	_, err := tx.Exec(ctx, lockOne, a.owner, a.endpoint, a.version, a.until)
	return a.told(err)
}

// told turns the server's word for a stale caller into ours.
func (a authority) told(err error) error {
	if postgres.SQLState(err) == errStale {
		return endpoint.ErrStale
	}
	if err != nil {
		return fmt.Errorf("lock endpoint %s: %w", a.endpoint, err)
	}
	return nil
}

func isStale(err error) bool {
	return postgres.SQLState(err) == errStale || errors.Is(err, endpoint.ErrStale)
}

// upheld is the condition, in SQL, that the authority in columns owner, endpoint,
// version and until of row i holds. It locks nothing and is for reading.
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
