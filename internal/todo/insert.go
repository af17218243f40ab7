package todo

import (
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
// virtual time is not known, the start of the first ready todo stands for it.

// insertOne creates one todo. Of two at once with the same key the second waits for
// the first to commit and does nothing.
const (
	insertOne = `
WITH fresh AS (
	INSERT INTO todo_key (owner, line, key, id, digest, created_at)
	SELECT $1, $3, $4, $2, $5, clock_timestamp()
	FROM queue q
	WHERE q.owner = $1 AND q.name = $6 AND ($13::timestamptz IS NULL OR $13 > clock_timestamp())
	ON CONFLICT ON CONSTRAINT todo_key_once DO NOTHING
	RETURNING created_at
)` + openOne

	insertOneLimited = `
WITH used AS MATERIALIZED (
	SELECT (
			SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.line = $3 AND l.vstart >= 0 LIMIT $21) open
		) AS open, (
			SELECT k.ordinal FROM todo_key k WHERE k.line = $3 AND k.ordinal >= 0 ORDER BY k.created_at DESC, k.id DESC LIMIT 1
		) AS last, (
			SELECT k.ordinal FROM todo_key k
			WHERE k.line = $3 AND k.ordinal >= 0 AND k.created_at > (SELECT clock_timestamp() - interval '1 hour')
			ORDER BY k.created_at, k.id LIMIT 1
		) AS first
), fresh AS (
	INSERT INTO todo_key (owner, line, key, id, digest, ordinal, created_at)
	SELECT $1, $3, $4, $2, $5, coalesce(u.last, 0) + 1, clock_timestamp()
	FROM queue q, used u
	WHERE q.owner = $1 AND q.name = $6 AND ($13::timestamptz IS NULL OR $13 > clock_timestamp())
		AND u.open < $21 AND coalesce(u.last - u.first + 1, 0) < $22
		AND ($17::timestamptz IS NULL OR $17 <= clock_timestamp() + make_interval(days => $23))
	ON CONFLICT ON CONSTRAINT todo_key_once DO NOTHING
	RETURNING created_at
)` + openOne

	openOne = `, written AS (
	INSERT INTO todo (owner, id, queue, line, endpoint, grant_id, key, title, body, payload, priority, deadline, identity, calls_itself, trace, created_at)
	SELECT $1, $2, $6, $3, $7, $8, $4, $9, $10, $11, 10 - $12, $13, $14, $15, $16, created_at FROM fresh
)
INSERT INTO todo_live (owner, id, queue, line, rank, vstart, claimable, state, not_before, deadline)
SELECT $1, $2, $6, $3, $12, greatest($18::bigint,
		CASE WHEN NOT $20 THEN (
			SELECT l.vstart FROM todo_live l
			WHERE l.owner = $1 AND l.queue = $6 AND l.claimable AND l.rank = $12 AND l.state = 'ready'
			ORDER BY l.vstart, l.id LIMIT 1
		) END, 1 + (
			SELECT l.vstart FROM todo_live l
			WHERE l.line = $3 AND l.queue = $6 AND l.rank = $12 AND l.vstart >= 0 AND l.vstart >= $19
			ORDER BY l.vstart DESC LIMIT 1
		)), $17::timestamptz IS NULL OR $17 <= created_at, 'ready', $17, $13
FROM fresh
RETURNING vstart`
)

// insertMany creates many, as insertOne would one after the other. Here a key that
// another transaction is just creating violates todo_key_once, and the calls are
// carried out again.
const insertMany = `
WITH item AS MATERIALIZED (
	SELECT i.*, clock_timestamp() AS now
	FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::text[], $7::uuid[], $8::uuid[],
			$9::smallint[], $10::timestamptz[], $11::timestamptz[], $12::bigint[], $13::bigint[], $14::int[],
			$15::bigint[], $16::bigint[], $17::bool[])
		WITH ORDINALITY AS i(owner, id, line, key, digest, queue, endpoint, grant_id,
			rank, deadline, not_before, max_open, per_hour, delay_days, least, next, known, ord)
), numbered AS (
	SELECT i.*,
		row_number() OVER (PARTITION BY line ORDER BY ord) AS nth,
		row_number() OVER (PARTITION BY line, queue, rank ORDER BY ord) AS nth_of_class
	FROM item i
	WHERE (SELECT k.id FROM todo_key k WHERE k.owner = i.owner AND k.line = i.line AND k.key = i.key LIMIT 1) IS NULL
		AND (SELECT q.name FROM queue q WHERE q.owner = i.owner AND q.name = i.queue LIMIT 1) IS NOT NULL
		AND (i.deadline > i.now OR i.deadline IS NULL)
		AND (i.not_before <= i.now + make_interval(days => i.delay_days)) IS NOT FALSE
), measured AS (
	SELECT n.*,
		CASE WHEN nth = 1 AND max_open IS NOT NULL THEN (
			SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.line = n.line AND l.vstart >= 0 LIMIT n.max_open) open
		) END AS open,
		CASE WHEN nth = 1 AND per_hour IS NOT NULL THEN (
			SELECT k.ordinal FROM todo_key k WHERE k.line = n.line AND k.ordinal >= 0 ORDER BY k.created_at DESC, k.id DESC LIMIT 1
		) END AS last,
		CASE WHEN nth = 1 AND per_hour IS NOT NULL THEN (
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
				WHERE l.line = n.line AND l.queue = n.queue AND l.rank = n.rank AND l.vstart >= 0 AND l.vstart >= n.next
				ORDER BY l.vstart DESC LIMIT 1
			)) END AS start
	FROM numbered n
), admitted AS MATERIALIZED (
	SELECT a.* FROM (
		SELECT m.*,
			max(start) OVER (PARTITION BY line, queue, rank) + nth_of_class - 1 AS vstart,
			coalesce(max(last) OVER by_line, 0) + nth AS ordinal,
			max_open IS NULL OR max(open) OVER by_line + nth <= max_open
				AND coalesce(max(last) OVER by_line - max(first) OVER by_line + 1, 0) + nth <= per_hour AS allowed
		FROM measured m
		WINDOW by_line AS (PARTITION BY line)
	) a WHERE allowed
), keyed AS (
	INSERT INTO todo_key (owner, line, key, id, digest, ordinal, created_at)
	SELECT owner, line, key, id, digest, CASE WHEN per_hour IS NOT NULL THEN ordinal END, now FROM admitted
), written AS (
	INSERT INTO todo (owner, id, queue, line, endpoint, grant_id, key, title, body, payload, priority, deadline, identity, calls_itself, trace, created_at)
	SELECT owner, id, queue, line, endpoint, grant_id, key, ($18::text[])[ord], ($19::text[])[ord], ($20::text[])[ord], 10 - rank, deadline,
		($21::text[])[ord], ($22::text[])[ord], ($23::text[])[ord], now
	FROM admitted
), opened AS (
	INSERT INTO todo_live (owner, id, queue, line, rank, vstart, claimable, state, not_before, deadline)
	SELECT owner, id, queue, line, rank, vstart, not_before IS NULL OR not_before <= now, 'ready', not_before, deadline
	FROM admitted
)
SELECT ord, vstart FROM admitted`

// queueCreates adds the statements for the round's creations, in the order of their
// lines. Of equal keys only the first takes part; the others find it afterwards.
func (r *round) queueCreates(b *pgx.Batch, k *looks) {
	items := r.creates
	if len(items) > 1 {
		items = slices.Clone(items)
		slices.SortStableFunc(items, func(a, b *creation) int { return byRow(a.auth.owner, a.line, b.auth.owner, b.line) })
		items = firstOfKeys(items)
	}
	if len(items) > r.few {
		queueMany(b, items, k)
		return
	}
	for _, c := range items {
		least, next, known := k.start(c.share())
		args := []any{
			c.auth.owner, c.id, c.line, c.key, c.hash, c.queue, orNull(c.auth.endpoint), c.grant, c.title, c.body, c.payload,
			c.rank(), c.deadline, c.identity, c.callsItself, c.trace, c.notBefore, least, next, known,
		}
		sql := insertOne
		if c.limits != nil {
			sql = insertOneLimited
			args = append(args, c.limits.MaxOpen, c.limits.PerHour, c.delayDays())
		}
		b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			var vstart int64
			_, err := pgx.ForEachRow(rows, []any{&vstart}, func() error {
				c.fresh = true
				k.created(c, vstart)
				return nil
			})
			return err
		})
	}
}

func orNull(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// delayDays is how far ahead not_before may lie. More than a century is no bound.
func (c *creation) delayDays() int32 { return int32(min(c.limits.MaxDelayDays, 36500)) }

func queueMany(b *pgx.Batch, items []*creation, k *looks) {
	n := len(items)
	var (
		owners, ids, lines    = make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
		keys, queues          = make([]string, n), make([]string, n)
		hashes                = make([][]byte, n)
		endpoints, grants     = make([]*[16]byte, n), make([]*[16]byte, n)
		ranks                 = make([]int16, n)
		deadlines, notBefore  = make([]*time.Time, n), make([]*time.Time, n)
		open, hourly          = make([]*int64, n), make([]*int64, n)
		delay                 = make([]*int32, n)
		leasts, nexts         = make([]int64, n), make([]int64, n)
		knowns                = make([]bool, n)
		titles, bodies        = make([]string, n), make([]string, n)
		payloads              = make([]*string, n)
		identities, callsSelf = make([]string, n), make([]string, n)
		traces                = make([]string, n)
	)
	for i, c := range items {
		owners[i], ids[i], lines[i], keys[i], hashes[i], queues[i] = c.auth.owner, c.id, c.line, c.key, c.hash, c.queue
		if c.auth.endpoint != uuid.Nil {
			endpoints[i] = (*[16]byte)(&c.auth.endpoint)
		}
		grants[i], ranks[i], deadlines[i], notBefore[i] = (*[16]byte)(c.grant), c.rank(), c.deadline, c.notBefore
		if c.limits != nil {
			days := c.delayDays()
			open[i], hourly[i], delay[i] = &c.limits.MaxOpen, &c.limits.PerHour, &days
		}
		leasts[i], nexts[i], knowns[i] = k.start(c.share())
		titles[i], bodies[i], payloads[i] = c.title, c.body, c.payload
		identities[i], callsSelf[i], traces[i] = c.identity, c.callsItself, c.trace
	}
	b.Queue(insertMany, owners, ids, lines, keys, hashes, queues, endpoints, grants, ranks, deadlines, notBefore, open, hourly, delay,
		leasts, nexts, knowns, titles, bodies, payloads, identities, callsSelf, traces).Query(func(rows pgx.Rows) error {
		var ord int
		var vstart int64
		_, err := pgx.ForEachRow(rows, []any{&ord, &vstart}, func() error {
			if ord < 1 || ord > n {
				return errUnexpected
			}
			items[ord-1].fresh = true
			k.created(items[ord-1], vstart)
			return nil
		})
		return err
	})
}

// firstOfKeys keeps the first item of each key.
func firstOfKeys(items []*creation) []*creation {
	type name struct {
		owner, line uuid.UUID
		key         string
	}
	seen := make(map[name]struct{}, len(items))
	out := items[:0]
	for _, c := range items {
		k := name{c.auth.owner, c.line, c.key}
		if _, ok := seen[k]; ok {
			continue
		}
		seen[k] = struct{}{}
		out = append(out, c)
	}
	return out
}
