package todo

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The statements that claim. Those of a batch run one after the other, so that each
// sees what the one before it has taken: two SKIP LOCKED look-ups within a statement
// would return the same rows. Calls for the same endpoint and queues share one.

// takeNext claims the next of one queue, from a place on before which nothing is
// ready.
const (
	takeNext     = takeNextHead + takeNextTail
	takeNextHead = picked + ` FROM todo_live l` + takeNextWhere

	picked = `
WITH picked AS MATERIALIZED (
	SELECT l.ctid AS at, $3::uuid AS worker, $4::int AS lease, 1 AS ord`
	takeNextWhere = `
	WHERE l.owner = $1 AND l.queue = $2 AND l.claimable AND (l.rank, l.vstart, l.id) >= ($6::smallint, $7::bigint, $8::uuid)
		AND l.state = 'ready' AND (l.deadline IS NULL OR l.deadline > clock_timestamp())
		AND NOT (SELECT q.paused FROM queue q WHERE q.owner = $1 AND q.name = $2)`
	takeNextTail = `
	ORDER BY l.rank, l.vstart, l.id
	LIMIT $5 FOR UPDATE SKIP LOCKED
)`
)

var (
	takeAlone     = takeNextHead + guarded(9) + takeNextTail + leaseHead + `$12::uuid` + leaseTail
	takeAloneBare = takeNextHead + guarded(9) + takeNextTail + bareHead + `$12::uuid` + bareTail
)

// takeAcross claims the next of several queues. The first of each are looked up and
// put in order, and then locked one by one until there are enough, so that nothing is
// locked that is not taken.
const takeAcross = `
WITH picked AS MATERIALIZED (
	SELECT x.*, $3::uuid AS worker, $4::int AS lease, 1 AS ord FROM (
		SELECT c.at
		FROM unnest($2::text[], $6::smallint[], $7::bigint[], $8::uuid[]) AS f(queue, rank, vstart, id), LATERAL (
			SELECT q.name FROM queue q WHERE q.owner = $1 AND q.name = f.queue AND NOT q.paused LIMIT 1
		) q, LATERAL (
			SELECT l.ctid AS at, l.rank, l.vstart, l.id FROM todo_live l
			WHERE l.owner = $1 AND l.queue = f.queue AND l.claimable AND (l.rank, l.vstart, l.id) >= (f.rank, f.vstart, f.id)
				AND l.state = 'ready' AND (l.deadline IS NULL OR l.deadline > clock_timestamp())
			ORDER BY l.rank, l.vstart, l.id
			LIMIT $5 + 16
		) c
		ORDER BY c.rank, c.vstart, c.id
	) c, LATERAL (
		SELECT l.ctid AS at` + itsWeight + ` FROM todo_live l WHERE l.ctid = c.at AND l.state = 'ready' AND l.claimable LIMIT 1 FOR UPDATE SKIP LOCKED
	) x
	LIMIT $5
)`

// itsWeight is what fitting needs of a row.
const itsWeight = `, l.id, l.weight, l.artifacts, l.questions`

// takeEach claims the next of many queues, a few of each. No queue is named twice.
var takeEach = `
WITH picked AS MATERIALIZED (
	SELECT x.at, i.worker, i.lease, i.ord
	FROM (
		` + each(1, "owner uuid", "queue text", "worker uuid", "lease int", "max int", "rank smallint", "vstart bigint", "id uuid") + ` OFFSET 0
	) i, LATERAL (
		SELECT q.name FROM queue q WHERE q.owner = i.owner AND q.name = i.queue AND NOT q.paused LIMIT 1
	) q, LATERAL (
		SELECT l.ctid AS at FROM todo_live l
		WHERE l.owner = i.owner AND l.queue = i.queue AND l.claimable AND (l.rank, l.vstart, l.id) >= (i.rank, i.vstart, i.id)
			AND l.state = 'ready' AND (l.deadline IS NULL OR l.deadline > clock_timestamp())
		ORDER BY l.rank, l.vstart, l.id
		LIMIT i.max FOR UPDATE SKIP LOCKED
	) x
)`

// fitting leaves of the rows picked the first ones that weigh no more than $9
// together, and at least one, and numbers them. The rows picked come in order.
const fitting = `, fit AS MATERIALIZED (
	SELECT p.at, p.worker, p.lease, p.ord, p.n FROM (
		SELECT p.*, row_number() OVER inorder AS n, sum(t.weight) OVER inorder AS total
		FROM picked p, LATERAL (
			SELECT p.weight + CASE WHEN p.artifacts > 0 THEN (
					SELECT coalesce(sum(octet_length(a.artifact)), 0) FROM todo_artifact a WHERE a.owner = $1 AND a.todo = p.id
				) ELSE 0 END + CASE WHEN p.questions > 0 THEN (
					SELECT coalesce(sum(octet_length(e.question) + coalesce(octet_length(e.answer), 0) + coalesce(octet_length(e.payload), 0)), 0)
					FROM todo_exchange e WHERE e.owner = $1 AND e.todo = p.id
				) ELSE 0 END AS weight
		) t
		WINDOW inorder AS (ROWS UNBOUNDED PRECEDING)
	) p WHERE p.n = 1 OR p.total <= $9::bigint
)`

// takeByID claims one todo. It waits for whoever has the row locked, because the
// answer is about that row.
const takeByID = `
WITH picked AS MATERIALIZED (
	SELECT l.ctid AS at, $3::uuid AS worker, $4::int AS lease, 1 AS ord FROM todo_live l
	WHERE l.owner = $1 AND l.id = $2 AND l.state = 'ready' AND l.subject IS NULL AND l.queue = ANY ($5::text[])
		AND (l.claimable OR l.not_before <= clock_timestamp())
		AND (l.deadline IS NULL OR l.deadline > clock_timestamp())
		AND NOT (SELECT q.paused FROM queue q WHERE q.owner = l.owner AND q.name = l.queue LIMIT 1)
	LIMIT 1 FOR UPDATE
)` + lease

// The claims of the next todos: a few at once, or so many that their weight counts. The
// contents of many are better read together afterwards than one by one here.
const (
	takeNextFew    = takeNext + lease
	takeNextBare   = takeNext + bare
	takeAcrossFew  = takeAcross + lease
	takeNextMany   = picked + itsWeight + ` FROM todo_live l` + takeNextWhere + takeNextTail + fitting + bareFit
	takeAcrossMany = takeAcross + fitting + bareFit
)

var (
	takeEachFew  = takeEach + lease
	takeEachBare = takeEach + bare
)

// lease makes leases of the rows picked and returns them with their contents; bare,
// without. The server takes long to make up a token, so where it is known which row
// comes to which of them they are given.
const (
	lease     = leaseHead + `gen_random_uuid()` + leaseTail
	leaseHead = `, taken AS (
	UPDATE todo_live l` + leased
	leaseTail = `
	FROM picked p WHERE l.ctid = p.at
	RETURNING ` + takenColumns + `, l.owner
)
SELECT k.ord, k.id, k.line, k.queue, k.version, k.attempt, k.token, k.lease_expires_at, k.rank, k.vstart, k.deadline, k.more, k.weight,
	t.title, t.body, t.payload, t.grant_id IS NOT NULL, t.identity, t.calls_itself
FROM taken k LEFT JOIN LATERAL (SELECT * FROM todo t WHERE t.owner = k.owner AND t.id = k.id LIMIT 1) t ON true`

	bare     = bareHead + `gen_random_uuid()` + bareTail
	bareHead = `
UPDATE todo_live l` + leased
	bareTail = `
FROM picked p WHERE l.ctid = p.at
RETURNING ` + takenColumns
	bareFit = bareHead + `($10::uuid[])[p.n::int]
FROM fit p WHERE l.ctid = p.at
RETURNING ` + takenColumns

	leased = `
SET state = 'leased', version = l.version + 1, attempt = l.attempt + 1, claimable = true,
	worker = p.worker, started_at = clock_timestamp(),
	lease_expires_at = clock_timestamp() + make_interval(secs => p.lease), lease_seconds = p.lease,
	beaten = false, progress = NULL, not_before = NULL, token = `

	takenColumns = `p.ord, l.id, l.line, l.queue, l.version, l.attempt, l.token, l.lease_expires_at, l.rank, l.vstart, l.deadline,
	l.attempt > 1 OR l.questions > 0 OR l.artifacts > 0 AS more, l.weight`
)

// reclaimNext settles the lapsed leases among the todos that come before, or are,
// the next $3 of each queue. Rows in between that are ready are locked with them,
// and claimed by the statement after this.
const reclaimNext = `
WITH locked AS MATERIALIZED (
	SELECT x.at, x.state FROM unnest($1::uuid[], $2::text[], $3::int[]) AS i(owner, queue, max), LATERAL (
		SELECT l.ctid AS at, l.state FROM todo_live l
		WHERE l.owner = i.owner AND l.queue = i.queue AND l.claimable
			AND (l.state = 'ready' OR l.state = 'leased' AND l.lease_expires_at <= clock_timestamp())
		ORDER BY l.rank, l.vstart, l.id
		LIMIT i.max FOR UPDATE SKIP LOCKED
	) x
), held AS MATERIALIZED (
	SELECT ` + lapsedItem + `, ` + heldColumns + `
	FROM locked k, todo_live l WHERE l.ctid = k.at AND k.state = 'leased'
)` + settle

// reclaimByID settles the leases of these todos that have lapsed.
const reclaimByID = `
WITH locked AS MATERIALIZED (
	SELECT x.at FROM unnest($1::uuid[], $2::uuid[]) AS i(owner, id), LATERAL (
		SELECT l.ctid AS at FROM todo_live l
		WHERE l.owner = i.owner AND l.id = i.id AND l.state = 'leased' AND l.lease_expires_at <= clock_timestamp()
		LIMIT 1 FOR UPDATE
	) x
), held AS MATERIALIZED (
	SELECT ` + lapsedItem + `, ` + heldColumns + `
	FROM locked k, todo_live l WHERE l.ctid = k.at
)` + settle

// queueDemands adds the statements for the round's claims.
func (r *round) queueDemands(b *script, k *looks) {
	var next, byID []*demand
	for _, d := range r.demands {
		d.taken, d.weight, d.lines = nil, 0, nil
		if d.id != uuid.Nil {
			byID = append(byID, d)
		} else {
			next = append(next, d)
		}
	}
	queueFull(b, next)
	r.queueNext(b, next, k)
	queueByID(b, byID, k)
}

// queueFull adds what a full look needs first: what is due becomes claimable, what
// has lapsed ready.
func queueFull(b *script, next []*demand) {
	wanted := map[lane]int32{}
	var first *demand
	for _, d := range next {
		if !d.full {
			continue
		}
		if first == nil {
			first = d
		}
		for _, q := range d.queues {
			wanted[lane{d.auth.owner, q}] += int32(d.max)
		}
	}
	if first == nil {
		return
	}
	all := make([]lane, 0, len(wanted))
	for l := range wanted {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b lane) int {
		if c := byRow(a.owner, uuid.Nil, b.owner, uuid.Nil); c != 0 {
			return c
		}
		return strings.Compare(a.queue, b.queue)
	})
	owners, queues, maxes := make([][16]byte, len(all)), make([]string, len(all)), make([]int32, len(all))
	for i, l := range all {
		owners[i], queues[i], maxes[i] = l.owner, l.queue, wanted[l]
	}
	b.add(promoteDue, owners, queues)
	b.add(reclaimNext, owners, queues, maxes).rows(movesOf(first))
}

// movesOf notes what became of lapsed leases that were found on the way.
func movesOf(d *demand) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		return scanMoves(rows, func(_ int, m move) error {
			d.moves = append(d.moves, m)
			return nil
		})
	}
}

// group is demands of one endpoint on the same queues.
type group struct {
	queues  []string
	lease   int32 // seconds
	demands []*demand
	wanted  int
	many    bool // one of them wants so many that their weight counts
}

func (g *group) owner() uuid.UUID    { return g.demands[0].auth.owner }
func (g *group) endpoint() uuid.UUID { return g.demands[0].auth.endpoint }

// groupsOf puts demands together, in the order of the first of each.
func groupsOf(demands []*demand) []*group {
	type alike struct {
		endpoint uuid.UUID
		queues   string
		lease    time.Duration
	}
	var order []*group
	known := make(map[alike]*group, len(demands))
	for _, d := range demands {
		a := alike{d.auth.endpoint, strings.Join(d.queues, ","), d.lease}
		g := known[a]
		if g == nil {
			g = &group{queues: d.queues, lease: int32(d.lease / time.Second)}
			known[a] = g
			order = append(order, g)
		}
		g.demands, g.wanted, g.many = append(g.demands, d), g.wanted+d.max, g.many || d.max > smallDemand
	}
	return order
}

// queueNext adds the statements for demands of the next todos.
func (r *round) queueNext(b *script, demands []*demand, k *looks) {
	var each []*group // of one queue and few, no queue twice
	taken := map[lane]bool{}
	for _, g := range groupsOf(demands) {
		if len(g.queues) == 1 && !g.many {
			if l := (lane{g.owner(), g.queues[0]}); !taken[l] {
				taken[l] = true
				each = append(each, g)
				continue
			}
		}
		g.queueOn(b, k, false)
	}
	if len(each) == 1 {
		each[0].queueOn(b, k, r.single)
		return
	}
	queueEach(b, each, k)
}

// queueOn adds a statement for the group alone.
func (g *group) queueOn(b *script, k *looks, alone bool) {
	one, across := takeNextFew, takeAcrossFew
	warm := k.known.warm()
	if warm {
		one = takeNextBare
	}
	var more []any
	if alone {
		one, more = takeAlone, append(g.demands[0].auth.guards(), raw(uuid.New()))
		if warm {
			one = takeAloneBare
		}
	}
	if g.many {
		tokens := make([][16]byte, g.wanted)
		for i := range tokens {
			tokens[i] = uuid.New()
		}
		one, across, more = takeNextMany, takeAcrossMany, []any{int64(2*len(g.demands)-1) * pageBytes, tokens}
	}
	deal := dealOut([]*group{g}, k)
	if len(g.queues) == 1 {
		from := k.from(lane{g.owner(), g.queues[0]})
		b.add(one, append([]any{raw(g.owner()), g.queues[0], raw(g.endpoint()), g.lease, g.wanted, from.rank, from.vstart, raw(from.id)}, more...)...).rows(deal)
		return
	}
	ranks, starts, ids := make([]int16, len(g.queues)), make([]int64, len(g.queues)), make([][16]byte, len(g.queues))
	for i, q := range g.queues {
		from := k.from(lane{g.owner(), q})
		ranks[i], starts[i], ids[i] = from.rank, from.vstart, from.id
	}
	b.add(across, append([]any{raw(g.owner()), g.queues, raw(g.endpoint()), g.lease, g.wanted, ranks, starts, ids}, more...)...).rows(deal)
}

// queueEach adds one statement for groups of which no two share a queue.
func queueEach(b *script, groups []*group, k *looks) {
	if len(groups) == 0 {
		return
	}
	n := len(groups)
	var (
		owners, workers, ids = make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
		queues               = make([]string, n)
		leases, maxes        = make([]int32, n), make([]int32, n)
		ranks                = make([]int16, n)
		starts               = make([]int64, n)
	)
	for i, g := range groups {
		from := k.from(lane{g.owner(), g.queues[0]})
		owners[i], queues[i], workers[i], leases[i], maxes[i] = g.owner(), g.queues[0], g.endpoint(), g.lease, int32(g.wanted)
		ranks[i], starts[i], ids[i] = from.rank, from.vstart, from.id
	}
	sql := takeEachFew
	if k.known.warm() {
		sql = takeEachBare
	}
	b.add(sql, owners, queues, workers, leases, maxes, ranks, starts, ids).rows(dealOut(groups, k))
}

// queueByID adds a statement for each demand by id, in the order of the rows.
func queueByID(b *script, demands []*demand, k *looks) {
	if len(demands) == 0 {
		return
	}
	slices.SortStableFunc(demands, func(a, b *demand) int { return byRow(a.auth.owner, a.id, b.auth.owner, b.id) })
	owners, ids := make([][16]byte, len(demands)), make([][16]byte, len(demands))
	for i, d := range demands {
		owners[i], ids[i] = d.auth.owner, d.id
	}
	b.add(reclaimByID, owners, ids).rows(movesOf(demands[0]))
	for _, d := range demands {
		b.add(takeByID, d.auth.owner, d.id, d.auth.endpoint, int32(d.lease/time.Second), d.queues).
			rows(dealOut([]*group{{queues: d.queues, demands: []*demand{d}}}, k))
	}
}

// taken is a row of what the statements above return.
type taken struct {
	ord     int // of the group
	claimed Claimed
	line    uuid.UUID
	at      place
	weight  int // of body and payload, in bytes
}

// dealOut gives the todos that a statement has taken to the demands, in the order of
// both.
func dealOut(groups []*group, k *looks) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		all := make([][]taken, len(groups))
		var scan func() (taken, error)
		for rows.Next() {
			if scan == nil { // a statement that failed has no columns
				scan = scanTaken(rows, k.known)
			}
			t, err := scan()
			if err != nil {
				return err
			}
			if t.ord < 1 || t.ord > len(groups) {
				return errUnexpected
			}
			all[t.ord-1] = append(all[t.ord-1], t)
		}
		for i, g := range groups {
			if err := g.deal(all[i], k); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// deal gives todos to the group's demands. Each gets what one answer holds before
// somebody gets more.
func (g *group) deal(all []taken, k *looks) error {
	for _, d := range g.demands {
		d.decided = true // also when there is nothing
	}
	slices.SortFunc(all, func(a, b taken) int {
		if a.at.before(b.at) {
			return -1
		}
		return 1
	})
	d, again := 0, 0
	for _, t := range all {
		for d < len(g.demands) && (len(g.demands[d].taken) == g.demands[d].max || g.demands[d].weight > pageBytes) {
			d++
		}
		to := d
		if d == len(g.demands) {
			for again < len(g.demands) && len(g.demands[again].taken) == g.demands[again].max {
				again++
			}
			to = again
		}
		if to == len(g.demands) {
			return errUnexpected
		}
		x := g.demands[to]
		x.taken, x.lines, x.weight = append(x.taken, t.claimed), append(x.lines, t.line), x.weight+t.weight
		k.took(lane{x.auth.owner, t.claimed.Queue}, t.at)
	}
	return nil
}

// scanTaken returns what reads a row, with or without the content.
func scanTaken(rows pgx.Rows, known *contents) func() (taken, error) {
	var t taken
	c := &t.claimed
	var token uuid.UUID
	var x content
	targets := []any{
		&t.ord, into(&c.TodoID), into(&t.line), &c.Queue, &c.Version, &c.Attempt, into(&token), &c.LeaseExpiresAt,
		&t.at.rank, &t.at.vstart, &c.Deadline, &c.more, &t.weight,
	}
	full := len(rows.FieldDescriptions()) > len(targets)
	if full {
		targets = append(targets, &x.title, &x.body, &x.payload, &x.friend, &x.identity, &x.callsItself)
	}
	return func() (taken, error) {
		// Nothing is left of the row before.
		t = taken{claimed: Claimed{State: Leased, Exchanges: []Exchange{}, PriorAttempts: []PriorAttempt{}, Artifacts: []Artifact{}}}
		x = content{}
		if err := rows.Scan(targets...); err != nil {
			return t, err
		}
		t.at.id, c.Priority, c.LeaseToken = c.TodoID, 10-int(t.at.rank), token.String()
		switch was := known.get(c.TodoID); {
		case full:
			c.setContent(&x)
		case was != nil:
			c.setContent(was)
		default:
			c.bare = true
		}
		return t, nil
	}
}
