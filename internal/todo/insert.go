package todo

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The statements that create todos. The caller's row is locked by now, for update
// when a limit is counted, and each statement's snapshot is younger than the lock:
// what is counted cannot change before the commit. An item that may not be created,
// or exists, is left out; explainCreates says why.
//
// The virtual start of a todo is its class's virtual time or one more than its line's
// last, whichever is more: start-time fair queuing with all weights equal. Where the
// virtual time is not known, the start of the first ready todo stands for it. What
// other processes have created in a line is looked up if the line is limited, since
// that of a friend is the one that could starve others.

// insertOne creates one todo. Of two at once with the same key the second waits for
// the first to commit and does nothing.
const (
	insertOne = insertOneHead + insertOneRest

	insertOneHead = `
WITH fresh AS (
	INSERT INTO todo_key (owner, name, id, digest, line, created_at)
	SELECT $1, $4, $2, $5, $3, clock_timestamp()
	FROM queue q
	WHERE q.owner = $1 AND q.name = $6 AND ($13::timestamptz IS NULL OR $13 > clock_timestamp())`
	insertOneRest = `
	ON CONFLICT ON CONSTRAINT todo_key_once DO NOTHING
	RETURNING created_at
)` + openOne + `greatest($18::bigint, ` + firstOfClass + `)` + openOneTail

	insertOneLimited = `
WITH used AS MATERIALIZED (
	SELECT (
			SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.line = $3 AND l.limited LIMIT $22) open
		) AS open, (
			SELECT k.ordinal FROM todo_key k WHERE k.line = $3 AND k.ordinal >= 0 ORDER BY k.created_at DESC, k.id DESC LIMIT 1
		) AS last, (
			SELECT k.ordinal FROM todo_key k
			WHERE k.line = $3 AND k.ordinal >= 0 AND k.created_at > (SELECT clock_timestamp() - interval '1 hour')
			ORDER BY k.created_at, k.id LIMIT 1
		) AS first
), fresh AS (
	INSERT INTO todo_key (owner, name, id, digest, line, ordinal, created_at)
	SELECT $1, $4, $2, $5, $3, coalesce(u.last, 0) + 1, clock_timestamp()
	FROM queue q, used u
	WHERE q.owner = $1 AND q.name = $6 AND ($13::timestamptz IS NULL OR $13 > clock_timestamp())
		AND u.open < $22 AND coalesce(u.last - u.first + 1, 0) < $23
		AND ($17::timestamptz IS NULL OR $17 <= clock_timestamp() + make_interval(days => $24))
	ON CONFLICT ON CONSTRAINT todo_key_once DO NOTHING
	RETURNING created_at
)` + openOne + `greatest($18::bigint, ` + firstOfClass + `, 1 + (
		SELECT l.vstart FROM todo_live l
		WHERE l.line = $3 AND l.queue = $6 AND l.rank = $12 AND l.limited AND l.vstart >= $21
		ORDER BY l.vstart DESC LIMIT 1
	))` + openOneTail

	openOne = `, written AS (
	INSERT INTO todo (owner, id, queue, line, endpoint, grant_id, key, title, body, payload, priority, deadline, identity, calls_itself, trace, created_at)
	SELECT $1, $2, $6, $3, $7, $8, $20, $9, $10, $11, 10 - $12, $13, $14, $15, $16, created_at FROM fresh
)
INSERT INTO todo_live (owner, id, queue, line, weight, limited, rank, claimable, state, not_before, deadline, vstart)
SELECT $1, $2, $6, $3, octet_length($10) + coalesce(octet_length($11), 0), $8::uuid IS NOT NULL, $12, $17::timestamptz IS NULL OR $17 <= created_at, 'ready', $17, $13, `

	firstOfClass = `CASE WHEN NOT $19 THEN (
		SELECT l.vstart FROM todo_live l
		WHERE l.owner = $1 AND l.queue = $6 AND l.claimable AND l.rank = $12 AND l.state = 'ready'
		ORDER BY l.vstart, l.id LIMIT 1
	) END`

	openOneTail = `
FROM fresh
RETURNING vstart`
)

var insertAlone = insertOneHead + guarded(21) + insertOneRest

// itemColumns are the columns of the arrays $1 and on of the statements for many.
var itemColumns = []string{
	"owner uuid", "id uuid", "line uuid", "name uuid", "digest uuid", "queue text", "endpoint uuid", "rank smallint",
	"deadline timestamptz", "not_before timestamptz", "weight int",
}

// insertMany creates many in lines that are not limited and whose virtual starts are
// known. Here a key that another transaction is just creating violates
// todo_key_once, and the calls are carried out again.
var insertMany = `
WITH item AS MATERIALIZED (
	SELECT i.*, ($17::bigint[])[i.ord] AS vstart, clock_timestamp() AS now
	FROM (` + each(1, itemColumns...) + `) i
	WHERE (SELECT k.id FROM todo_key k WHERE k.owner = i.owner AND k.name = i.name LIMIT 1) IS NULL
		AND (SELECT q.name FROM queue q WHERE q.owner = i.owner AND q.name = i.queue LIMIT 1) IS NOT NULL
		AND (i.deadline IS NULL OR i.deadline > clock_timestamp())
), keyed AS (
	INSERT INTO todo_key (owner, name, id, digest, line, created_at)
	SELECT owner, name, id, digest, line, now FROM item ORDER BY owner, name
), written AS (
	INSERT INTO todo (owner, id, queue, line, endpoint, key, title, body, payload, priority, deadline, trace, created_at)
	SELECT owner, id, queue, line, endpoint, ($12::text[])[ord], ($13::text[])[ord], ($14::text[])[ord], ($15::text[])[ord], 10 - rank, deadline,
		($16::text[])[ord], now
	FROM item
), opened AS (
	INSERT INTO todo_live (owner, id, queue, line, weight, rank, vstart, claimable, state, not_before, deadline)
	SELECT owner, id, queue, line, weight, rank, vstart, not_before IS NULL OR not_before <= now, 'ready', not_before, deadline
	FROM item
)
SELECT ord, vstart FROM item`

// insertManyLimited creates many of friends, as insertOneLimited would one after the
// other.
var insertManyLimited = `
WITH item AS MATERIALIZED (
	SELECT i.*, l.least, l.grant_id, l.max_open, l.per_hour, l.delay_days, l.next, l.known, clock_timestamp() AS now
	FROM (` + each(1, itemColumns...) + `) i JOIN (
		` + each(17, "least bigint", "grant_id uuid", "max_open bigint", "per_hour bigint", "delay_days int", "next bigint", "known bool") + `
	) l ON l.ord = i.ord
), numbered AS (
	SELECT i.*,
		row_number() OVER (PARTITION BY line ORDER BY ord) AS nth,
		row_number() OVER (PARTITION BY line, queue, rank ORDER BY ord) AS nth_of_class
	FROM item i
	WHERE (SELECT k.id FROM todo_key k WHERE k.owner = i.owner AND k.name = i.name LIMIT 1) IS NULL
		AND (SELECT q.name FROM queue q WHERE q.owner = i.owner AND q.name = i.queue LIMIT 1) IS NOT NULL
		AND (i.deadline IS NULL OR i.deadline > i.now)
		AND (i.not_before <= i.now + make_interval(days => i.delay_days)) IS NOT FALSE
), measured AS (
	SELECT n.*,
		CASE WHEN nth = 1 THEN (
			SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.line = n.line AND l.limited LIMIT n.max_open) open
		) END AS open,
		CASE WHEN nth = 1 THEN (
			SELECT k.ordinal FROM todo_key k WHERE k.line = n.line AND k.ordinal >= 0 ORDER BY k.created_at DESC, k.id DESC LIMIT 1
		) END AS last,
		CASE WHEN nth = 1 THEN (
			SELECT k.ordinal FROM todo_key k
			WHERE k.line = n.line AND k.ordinal >= 0 AND k.created_at > n.now - interval '1 hour'
			ORDER BY k.created_at, k.id LIMIT 1
		) END AS first,
		CASE WHEN nth_of_class = 1 THEN greatest(n.least,
			CASE WHEN NOT n.known THEN (
				SELECT l.vstart FROM todo_live l
				WHERE l.owner = n.owner AND l.queue = n.queue AND l.claimable AND l.rank = n.rank AND l.state = 'ready'
				ORDER BY l.vstart, l.id LIMIT 1
			) END, 1 + (
				SELECT l.vstart FROM todo_live l
				WHERE l.line = n.line AND l.queue = n.queue AND l.rank = n.rank AND l.limited AND l.vstart >= n.next
				ORDER BY l.vstart DESC LIMIT 1
			)) END AS start
	FROM numbered n
), admitted AS MATERIALIZED (
	SELECT a.* FROM (
		SELECT m.*,
			max(start) OVER (PARTITION BY line, queue, rank) + nth_of_class - 1 AS vstart,
			coalesce(max(last) OVER by_line, 0) + nth AS ordinal,
			max(open) OVER by_line + nth <= max_open
				AND coalesce(max(last) OVER by_line - max(first) OVER by_line + 1, 0) + nth <= per_hour AS allowed
		FROM measured m
		WINDOW by_line AS (PARTITION BY line)
	) a WHERE allowed
), keyed AS (
	INSERT INTO todo_key (owner, name, id, digest, line, ordinal, created_at)
	SELECT owner, name, id, digest, line, ordinal, now FROM admitted
), written AS (
	INSERT INTO todo (owner, id, queue, line, endpoint, grant_id, key, title, body, payload, priority, deadline, trace, identity, calls_itself, created_at)
	SELECT owner, id, queue, line, endpoint, grant_id, ($12::text[])[ord], ($13::text[])[ord], ($14::text[])[ord], ($15::text[])[ord], 10 - rank, deadline,
		($16::text[])[ord], ($24::text[])[ord], ($25::text[])[ord], now
	FROM admitted
), opened AS (
	INSERT INTO todo_live (owner, id, queue, line, weight, limited, rank, vstart, claimable, state, not_before, deadline)
	SELECT owner, id, queue, line, weight, true, rank, vstart, not_before IS NULL OR not_before <= now, 'ready', not_before, deadline
	FROM admitted
)
SELECT ord, vstart FROM admitted`

// queueCreates adds the statements for the round's creations. Of equal keys only the
// first takes part; the others find it afterwards.
func (r *round) queueCreates(b *script, k *looks) {
	var single, many, limited []*creation
	items := firstOfKeys(r.creates)
	for _, c := range items {
		switch _, _, known := k.start(c.share()); {
		case len(items) <= r.few:
			single = append(single, c)
		case c.limits != nil:
			limited = append(limited, c)
		case known:
			many = append(many, c)
		default:
			single = append(single, c)
		}
	}
	r.queueSingle(b, single, k)
	for items := range slices.Chunk(many, manyAtOnce) {
		queueMany(b, items, k)
	}
	for items := range slices.Chunk(limited, manyAtOnce) {
		queueManyLimited(b, items, k)
	}
	queueTimers(b, items)
}

// queueSingle adds a statement for each item. The virtual starts are dealt out in the
// order of the call; those in lines that no lock serialises are then created in the
// order of their keys, as every batch does, or two of them would wait for each other.
func (r *round) queueSingle(b *script, items []*creation, k *looks) {
	type start struct {
		c           *creation
		least, next int64
		known       bool
	}
	starts := make([]start, len(items))
	for i, c := range items {
		least, next, known := k.start(c.share())
		starts[i] = start{c, least, next, known}
		if c.limits == nil {
			k.reserve(c.share(), least+1)
		}
	}
	if len(starts) > 1 {
		slices.SortStableFunc(starts, func(a, b start) int {
			if a.c.limits != nil || b.c.limits != nil {
				return cmp.Compare(limited(a.c), limited(b.c))
			}
			return byRow(a.c.auth.owner, a.c.name, b.c.auth.owner, b.c.name)
		})
	}
	for _, s := range starts {
		s.c.queueOne(b, k, s.least, s.next, s.known, r.single)
	}
}

func limited(c *creation) int {
	if c.limits != nil {
		return 1
	}
	return 0
}

func (c *creation) queueOne(b *script, k *looks, least, next int64, known, alone bool) {
	args := []any{
		raw(c.auth.owner), raw(c.id), raw(c.line), raw(c.name), raw(c.hash), c.queue, orNull(c.auth.endpoint), (*raw)(c.grant), c.title, c.body, c.payload,
		c.rank(), c.deadline, c.identity, c.callsItself, c.trace, c.notBefore, least, known, c.key,
	}
	sql := insertOne
	switch {
	case alone:
		sql = insertAlone
		args = append(args, c.auth.guards()...)
	case c.limits != nil:
		sql = insertOneLimited
		args = append(args, next, c.limits.MaxOpen, c.limits.PerHour, c.delayDays())
	}
	b.add(sql, args...).rows(func(rows pgx.Rows) error {
		var vstart int64
		_, err := pgx.ForEachRow(rows, []any{&vstart}, func() error {
			c.fresh = true
			k.created(c, vstart)
			return nil
		})
		return err
	})
}

func orNull(id uuid.UUID) *raw {
	if id == uuid.Nil {
		return nil
	}
	return (*raw)(&id)
}

// delayDays is how far ahead not_before may lie. More than a century is no bound.
func (c *creation) delayDays() int32 { return int32(min(c.limits.MaxDelayDays, 36500)) }

// columns are the arrays that both statements for many begin with, the virtual starts
// last.
func columns(items []*creation, starts []int64) []any {
	n := len(items)
	var (
		owners, ids, lines   = make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
		names, hashes        = make([][16]byte, n), make([][16]byte, n)
		keys, queues         = make([]string, n), make([]string, n)
		endpoints            = make([]*[16]byte, n)
		ranks, weights       = make([]int16, n), make([]int32, n)
		deadlines, notBefore = make([]*time.Time, n), make([]*time.Time, n)
		titles, bodies       = make([]string, n), make([]string, n)
		payloads             = make([]*string, n)
		traces               = make([]string, n)
	)
	for i, c := range items {
		owners[i], ids[i], lines[i], names[i], hashes[i], queues[i] = c.auth.owner, c.id, c.line, c.name, c.hash, c.queue
		if c.auth.endpoint != uuid.Nil {
			endpoints[i] = (*[16]byte)(&c.auth.endpoint)
		}
		ranks[i], deadlines[i], notBefore[i] = c.rank(), c.deadline, c.notBefore
		weights[i] = int32(len(c.body) + textSize(c.payload))
		keys[i], titles[i], bodies[i], payloads[i], traces[i] = c.key, c.title, c.body, c.payload, c.trace
	}
	return []any{
		owners, ids, lines, names, hashes, queues, endpoints, ranks, deadlines, notBefore, weights,
		keys, titles, bodies, payloads, traces, starts,
	}
}

func queueMany(b *script, items []*creation, k *looks) {
	starts := make([]int64, len(items))
	for i, c := range items {
		starts[i], _, _ = k.start(c.share())
		k.reserve(c.share(), starts[i]+1)
	}
	b.add(insertMany, columns(items, starts)...).rows(fresh(items, k))
}

func queueManyLimited(b *script, items []*creation, k *looks) {
	n := len(items)
	var (
		leasts, nexts     = make([]int64, n), make([]int64, n)
		knowns            = make([]bool, n)
		grants            = make([]*[16]byte, n)
		open, hourly      = make([]int64, n), make([]int64, n)
		delay             = make([]int32, n)
		identities, calls = make([]string, n), make([]string, n)
	)
	for i, c := range items {
		leasts[i], nexts[i], knowns[i] = k.start(c.share())
		grants[i], open[i], hourly[i], delay[i] = (*[16]byte)(c.grant), c.limits.MaxOpen, c.limits.PerHour, c.delayDays()
		identities[i], calls[i] = c.identity, c.callsItself
	}
	args := append(columns(items, leasts), grants, open, hourly, delay, nexts, knowns, identities, calls)
	b.add(insertManyLimited, args...).rows(fresh(items, k))
}

// fresh notes which of the items a statement has created.
func fresh(items []*creation, k *looks) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var ord int
		var vstart int64
		_, err := pgx.ForEachRow(rows, []any{&ord, &vstart}, func() error {
			if ord < 1 || ord > len(items) {
				return errUnexpected
			}
			items[ord-1].fresh = true
			k.created(items[ord-1], vstart)
			return nil
		})
		return err
	}
}

// keyRow is the primary key of todo_key.
type keyRow struct{ owner, name uuid.UUID }

// firstOfKeys keeps the first item of each key.
func firstOfKeys(items []*creation) []*creation {
	if len(items) < 2 {
		return items
	}
	seen := make(map[keyRow]struct{}, len(items))
	out := make([]*creation, 0, len(items))
	for _, c := range items {
		k := keyRow{c.auth.owner, c.name}
		if _, ok := seen[k]; !ok {
			seen[k] = struct{}{}
			out = append(out, c)
		}
	}
	return out
}
