package todo

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// Claimed is a todo under a lease of the caller's. A friend's words stand in
// FromFriend and nowhere else.
type Claimed struct {
	TodoID         uuid.UUID       `json:"todo_id"`
	Queue          string          `json:"queue"`
	State          State           `json:"state"`
	Version        int64           `json:"version"`
	LeaseToken     string          `json:"lease_token"`
	LeaseExpiresAt time.Time       `json:"lease_expires_at"`
	Attempt        int             `json:"attempt"` // counts claims
	Priority       int             `json:"priority"`
	Deadline       *time.Time      `json:"deadline,omitempty"`
	FromFriend     *FromFriend     `json:"from_friend,omitempty"`
	Title          string          `json:"title,omitempty"`
	Body           string          `json:"body,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	Exchanges      []Exchange      `json:"exchanges"`
	PriorAttempts  []PriorAttempt  `json:"prior_attempts"`
	Artifacts      []Artifact      `json:"artifacts"`

	more bool // exchanges, earlier attempts or artifacts are to be read
}

// ClaimNext asks for the next todos.
type ClaimNext struct {
	Queues  []string // nil = all of the endpoint
	Max     int      // 0 = 1, at most 100
	Wait    time.Duration
	Lease   time.Duration // 0 = 300 s
	ClaimID string        // makes a repeat return the same leases
}

// demand is what one call wants to claim: the next of its queues, or one by id.
type demand struct {
	verdict
	auth   *authority
	queues []string // sorted
	max    int
	lease  time.Duration
	id     uuid.UUID // when one by id
	full   bool      // also look at what is due or lapsed, and skip nothing

	taken []Claimed
	lines []uuid.UUID // of the taken, in order
	moves []move      // of lapsed leases, found on the way
}

// Claim leases one todo. One that is not ready, not yet due, or in a paused queue
// is refused as a conflict.
func (s *Store) Claim(ctx context.Context, c endpoint.Caller, id uuid.UUID, lease time.Duration, claimID string) (Claimed, error) {
	lease, err := leaseLength(lease, defaultLease)
	if err != nil {
		return Claimed{}, err
	}
	w := &work{auth: authorityOf(c), size: itemSize}
	w.demand = &demand{auth: &w.auth, id: id, max: 1, lease: lease, queues: c.Endpoint.Scope.Queues}
	taken, err := s.take(ctx, w, claimID)
	if err != nil {
		return Claimed{}, err
	}
	if len(taken) == 0 {
		return Claimed{}, s.whyNot(ctx, w.auth, id)
	}
	return taken[0], nil
}

// ClaimNext leases the next todos, most urgent first, and waits for one if there is
// none. The list is empty when there is none in the end.
func (s *Store) ClaimNext(ctx context.Context, c endpoint.Caller, n ClaimNext) ([]Claimed, error) {
	lease, err := leaseLength(n.Lease, defaultLease)
	if err != nil {
		return nil, err
	}
	if err := checkWait(n.Wait); err != nil {
		return nil, err
	}
	if n.Max == 0 {
		n.Max = 1
	}
	if n.Max < 1 || n.Max > maxClaim {
		return nil, refusal.Invalid("max", "max must be from 1 to %d", maxClaim)
	}
	queues, err := claimQueues(c.Endpoint.Scope.Queues, n.Queues)
	if err != nil {
		return nil, err
	}
	auth := authorityOf(c)
	look := func() ([]Claimed, error) {
		w := &work{auth: auth, size: itemSize}
		w.demand = &demand{auth: &w.auth, queues: queues, max: n.Max, lease: lease}
		return s.take(ctx, w, n.ClaimID)
	}
	if n.Wait == 0 {
		return look()
	}
	// Registered before looking: what becomes ready between a look and the wait for
	// the next wakes that wait.
	waiting := s.hub.waitForReady(auth, queues)
	defer waiting.end()
	timer := time.NewTimer(n.Wait)
	defer timer.Stop()
	for {
		taken, err := look()
		if err != nil || len(taken) > 0 {
			waiting.found = len(taken) > 0
			return taken, err
		}
		waiting.foundNothing()
		select {
		case <-waiting.woken:
		case <-timer.C:
			return []Claimed{}, nil
		case <-s.hub.done:
			return []Claimed{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// claimQueues are the asked queues, all of them the endpoint's, sorted.
func claimQueues(granted, asked []string) ([]string, error) {
	if asked == nil {
		asked = granted
	}
	if len(asked) == 0 {
		return nil, refusal.Invalid("queues", "queues must name at least one queue")
	}
	for _, q := range asked {
		if !slices.Contains(granted, q) {
			return nil, errNoQueue
		}
	}
	queues := slices.Clone(asked)
	slices.Sort(queues)
	return slices.Compact(queues), nil
}

// take claims, first what is ready where it was last found, then with a look at
// everything. It never answers "none" without the latter.
func (s *Store) take(ctx context.Context, w *work, claimID string) ([]Claimed, error) {
	if claimID != "" {
		return s.takeOnce(ctx, w, claimID)
	}
	if err := s.do(ctx, w); err != nil {
		return nil, err
	}
	if d := w.demand; len(d.taken) == 0 && !d.full {
		d.decided, d.full = false, true
		if err := s.do(ctx, w); err != nil {
			return nil, err
		}
	}
	return s.complement(ctx, w.auth.owner, w.demand.taken)
}

// takeNext claims for each group of callers with the same queues at once and deals
// the todos out in the order of the calls. No two groups of a statement share a
// queue: two SKIP LOCKED look-ups in one statement would return the same rows.
const takeNext = `
WITH caller AS MATERIALIZED (
	SELECT i.*, (` + upheld + `) IS TRUE AS upheld
	FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::int[], $6::int[], $7::int[])
		WITH ORDINALITY AS i(owner, endpoint, version, until, grp, lease, max, ord)
), slot AS MATERIALIZED (
	SELECT c.grp, count(*)::int AS wanted, array_agg(c.ord ORDER BY c.ord) AS ords,
		array_agg(c.endpoint ORDER BY c.ord) AS endpoints, array_agg(c.lease ORDER BY c.ord) AS leases
	FROM caller c, generate_series(1, c.max) WHERE c.upheld GROUP BY c.grp
), picked AS MATERIALIZED (
	SELECT p.at, s.ords[p.nth] AS ord, s.endpoints[p.nth] AS endpoint, s.leases[p.nth] AS lease, p.nth
	FROM slot s, LATERAL (
		SELECT c.at, row_number() OVER (ORDER BY c.priority DESC, c.vstart, c.id) AS nth
		FROM unnest(string_to_array(($9::text[])[s.grp], ',')) AS name,
			LATERAL (SELECT q.name FROM queue q WHERE q.owner = ($8::uuid[])[s.grp] AND q.name = name.name AND NOT q.paused LIMIT 1) q,
			LATERAL (
				SELECT l.ctid AS at, l.priority, l.vstart, l.id FROM todo_live l
				WHERE l.owner = ($8::uuid[])[s.grp] AND l.queue = q.name AND l.claimable AND l.state = 'ready'
					AND (l.deadline IS NULL OR l.deadline > clock_timestamp())
				ORDER BY l.priority DESC, l.vstart, l.id
				LIMIT s.wanted FOR UPDATE SKIP LOCKED
			) c
	) p WHERE p.nth <= s.wanted
), taken AS (
	` + lease + `
)
SELECT k.*, ` + takenContent + `
FROM taken k LEFT JOIN LATERAL (SELECT * FROM todo t WHERE t.owner = k.owner AND t.id = k.id LIMIT 1) t ON true
UNION ALL
SELECT ord, ` + noneTaken + ` FROM caller WHERE NOT upheld
ORDER BY 2 NULLS LAST`

// lease makes leases of the rows picked.
const lease = `UPDATE todo_live l
	SET state = 'leased', version = l.version + 1, attempt = l.attempt + 1, claimable = true,
		token = gen_random_uuid(), worker = p.endpoint, started_at = clock_timestamp(),
		lease_expires_at = clock_timestamp() + make_interval(secs => p.lease), lease_seconds = p.lease,
		beaten = false, progress = NULL, not_before = NULL
	FROM picked p WHERE l.ctid = p.at
	RETURNING p.ord, p.nth, l.owner, l.id, l.line, l.queue, l.version, l.attempt, l.token, l.lease_expires_at, l.priority, l.deadline,
		l.attempt > 1 OR l.questions > 0 OR l.artifacts > 0 AS more`

const (
	takenContent = `t.title, t.body, t.payload, t.grant_id IS NOT NULL, t.identity, t.calls_itself`
	noneTaken    = `NULL::bigint, NULL::uuid, NULL::uuid, NULL::uuid, NULL::text, NULL::bigint, NULL::int, NULL::uuid, NULL::timestamptz,
	NULL::smallint, NULL::timestamptz, NULL::bool, NULL::text, NULL::text, NULL::text, NULL::bool, NULL::text, NULL::text`
)

// takeByID claims single todos. It waits for whoever has a row locked, because the
// answer is about that row.
const takeByID = `
WITH caller AS MATERIALIZED (
	SELECT i.*, (` + upheld + `) IS TRUE AS upheld
	FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::int[], $6::uuid[], $7::text[])
		WITH ORDINALITY AS i(owner, endpoint, version, until, lease, id, queues, ord)
), picked AS MATERIALIZED (
	SELECT x.at, i.ord, i.endpoint, i.lease, i.ord AS nth
	FROM caller i, LATERAL (
		SELECT l.ctid AS at, l.queue FROM todo_live l
		WHERE l.owner = i.owner AND l.id = i.id AND l.state = 'ready' AND l.subject IS NULL
			AND (l.claimable OR l.not_before <= clock_timestamp())
			AND (l.deadline IS NULL OR l.deadline > clock_timestamp())
			AND l.queue = ANY (string_to_array(i.queues, ','))
		LIMIT 1 FOR UPDATE
	) x, LATERAL (SELECT q.name FROM queue q WHERE q.owner = i.owner AND q.name = x.queue AND NOT q.paused LIMIT 1) q
	WHERE i.upheld
), taken AS (
	` + lease + `
)
SELECT k.*, ` + takenContent + `
FROM taken k LEFT JOIN LATERAL (SELECT * FROM todo t WHERE t.owner = k.owner AND t.id = k.id LIMIT 1) t ON true
UNION ALL
SELECT ord, ` + noneTaken + ` FROM caller WHERE NOT upheld`

// promoteDue makes claimable what has become due in the queues.
const promoteDue = `
UPDATE todo_live l SET claimable = true
FROM (
	SELECT x.at FROM unnest($1::uuid[], $2::text[]) AS i(owner, queue), LATERAL (
		SELECT l.ctid AS at FROM todo_live l
		WHERE l.owner = i.owner AND l.queue = i.queue AND NOT l.claimable AND l.not_before <= clock_timestamp() AND l.state = 'ready'
		ORDER BY l.not_before LIMIT 1000 FOR UPDATE SKIP LOCKED
	) x
) due WHERE l.ctid = due.at`

// reclaimNext settles the lapsed leases among the todos that come before, or are,
// the next $3 of each queue. Rows in between that are ready are locked with them,
// and claimed by the statement after this.
const reclaimNext = `
WITH locked AS MATERIALIZED (
	SELECT x.at, x.state FROM unnest($1::uuid[], $2::text[], $3::int[]) AS i(owner, queue, max), LATERAL (
		SELECT l.ctid AS at, l.state FROM todo_live l
		WHERE l.owner = i.owner AND l.queue = i.queue AND l.claimable
			AND (l.state = 'ready' OR l.state = 'leased' AND l.lease_expires_at <= clock_timestamp())
		ORDER BY l.priority DESC, l.vstart, l.id
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
func (r *round) queueDemands(b *pgx.Batch) {
	var next, byID []*demand
	for _, d := range r.demands {
		// Decided by the statements, which find nothing when there is nothing.
		d.decided, d.taken, d.lines = true, nil, nil
		if d.id != uuid.Nil {
			byID = append(byID, d)
		} else {
			next = append(next, d)
		}
	}
	queueFull(b, next)
	for len(next) > 0 {
		next = queueNext(b, next)
	}
	for len(byID) > 0 {
		byID = queueByID(b, byID)
	}
}

// queueFull adds what a full look needs first: what is due becomes claimable, what
// has lapsed ready.
func queueFull(b *pgx.Batch, next []*demand) {
	type lane struct {
		owner uuid.UUID
		queue string
	}
	wanted := map[lane]int32{}
	var for_ *demand
	for _, d := range next {
		if d.full {
			for_ = d
			for _, q := range d.queues {
				wanted[lane{d.auth.owner, q}] += int32(d.max)
			}
		}
	}
	if for_ == nil {
		return
	}
	lanes := make([]lane, 0, len(wanted))
	for l := range wanted {
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, func(a, b lane) int {
		if c := byRow(a.owner, uuid.Nil, b.owner, uuid.Nil); c != 0 {
			return c
		}
		return strings.Compare(a.queue, b.queue)
	})
	owners, queues, maxes := make([][16]byte, len(lanes)), make([]string, len(lanes)), make([]int32, len(lanes))
	for i, l := range lanes {
		owners[i], queues[i], maxes[i] = l.owner, l.queue, wanted[l]
	}
	b.Queue(promoteDue, owners, queues)
	b.Queue(reclaimNext, owners, queues, maxes).Query(func(rows pgx.Rows) error {
		return scanMoves(rows, func(_ int, m move) error {
			for_.moves = append(for_.moves, m)
			return nil
		})
	})
}

// queueNext adds one statement for as many demands as share no queue with those of
// other queues, and returns the rest.
func queueNext(b *pgx.Batch, demands []*demand) (rest []*demand) {
	type lane struct {
		owner uuid.UUID
		queue string
	}
	var (
		as            authorities
		groups        = map[string]int32{}
		taken         = map[lane]int32{}
		owners        [][16]byte
		queues        []string
		group, leases []int32
		maxes         []int32
		now           []*demand
	)
	for _, d := range demands {
		joined := strings.Join(d.queues, ",")
		name := string(d.auth.owner[:]) + joined
		g, known := groups[name]
		if !known {
			free := true
			for _, q := range d.queues {
				if taken[lane{d.auth.owner, q}] != 0 {
					free = false
				}
			}
			if !free {
				rest = append(rest, d)
				continue
			}
			owners, queues = append(owners, d.auth.owner), append(queues, joined)
			g = int32(len(owners))
			groups[name] = g
			for _, q := range d.queues {
				taken[lane{d.auth.owner, q}] = g
			}
		}
		as.add(d.auth)
		group, leases, maxes = append(group, g), append(leases, int32(d.lease/time.Second)), append(maxes, int32(d.max))
		now = append(now, d)
	}
	b.Queue(takeNext, as.owner, as.endpoint, as.version, as.until, group, leases, maxes, owners, queues).Query(dealOut(now))
	return rest
}

// queueByID adds one statement for demands by id, each todo once, and returns the
// rest.
func queueByID(b *pgx.Batch, demands []*demand) (rest []*demand) {
	slices.SortStableFunc(demands, func(a, b *demand) int { return byRow(a.auth.owner, a.id, b.auth.owner, b.id) })
	var (
		as     authorities
		ids    [][16]byte
		leases []int32
		queues []string
		now    []*demand
	)
	for _, d := range demands {
		if len(now) > 0 && now[len(now)-1].id == d.id {
			rest = append(rest, d)
			continue
		}
		as.add(d.auth)
		ids, leases, queues = append(ids, d.id), append(leases, int32(d.lease/time.Second)), append(queues, d.auth.queues)
		now = append(now, d)
	}
	b.Queue(reclaimByID, as.owner, ids).Query(func(rows pgx.Rows) error {
		return scanMoves(rows, func(_ int, m move) error {
			now[0].moves = append(now[0].moves, m)
			return nil
		})
	})
	b.Queue(takeByID, as.owner, as.endpoint, as.version, as.until, leases, ids, queues).Query(dealOut(now))
	return rest
}

// dealOut gives each demand the todos that were taken for it.
func dealOut(demands []*demand) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var (
				ord                         int
				nth, version                *int64
				owner, id, line, token      *uuid.UUID
				queue, title, body, payload *string
				identity, callsItself       *string
				attempt                     *int
				priority                    *int
				expires, deadline           *time.Time
				more, friend                *bool
			)
			if err := rows.Scan(&ord, &nth, &owner, &id, &line, &queue, &version, &attempt, &token, &expires, &priority, &deadline, &more,
				&title, &body, &payload, &friend, &identity, &callsItself); err != nil {
				return err
			}
			if ord < 1 || ord > len(demands) {
				return errUnexpected
			}
			d := demands[ord-1]
			if id == nil {
				d.auth.stale = true
				continue
			}
			c := Claimed{
				TodoID: *id, Queue: *queue, State: Leased, Version: *version, LeaseToken: token.String(), LeaseExpiresAt: *expires,
				Attempt: *attempt, Priority: *priority, Deadline: deadline, more: *more,
				Exchanges: []Exchange{}, PriorAttempts: []PriorAttempt{}, Artifacts: []Artifact{},
			}
			c.setContent(title, body, payload, friend, identity, callsItself)
			d.taken, d.lines = append(d.taken, c), append(d.lines, *line)
		}
		return rows.Err()
	}
}

// setContent puts a friend's words where they are labelled.
func (c *Claimed) setContent(title, body, payload *string, friend *bool, identity, callsItself *string) {
	if title == nil {
		return
	}
	if *friend {
		c.FromFriend = &FromFriend{Identity: *identity, CallsItself: *callsItself, Title: *title, Body: *body, Payload: rawJSON(payload)}
		return
	}
	c.Title, c.Body, c.Payload = *title, *body, rawJSON(payload)
}

func rawJSON(s *string) json.RawMessage {
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}
