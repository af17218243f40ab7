package todo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// New is a todo to create (specs/protocol.md section 5, create_for and create).
type New struct {
	Queue          string          `json:"queue"`
	Title          string          `json:"title"`
	IdempotencyKey string          `json:"idempotency_key"`
	Body           string          `json:"body,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	Priority       *int            `json:"priority,omitempty"`
	NotBefore      *time.Time      `json:"not_before,omitempty"`
	Deadline       *time.Time      `json:"deadline,omitempty"`
	Traceparent    string          `json:"traceparent,omitempty"`
}

// Created is a todo that was created, now or by an earlier call of the same key.
type Created struct {
	TodoID       uuid.UUID `json:"todo_id"`
	State        State     `json:"state"`
	Version      int64     `json:"version"`
	Deduplicated bool      `json:"deduplicated"`
}

// creation is one item of Create.
type creation struct {
	verdict
	auth                                      *authority
	line                                      uuid.UUID
	key                                       string
	hash                                      []byte
	id                                        uuid.UUID
	queue                                     string
	title, body, trace, identity, callsItself string
	payload                                   *string
	priority                                  int
	notBefore                                 *time.Time
	deadline                                  *time.Time
	grant                                     *uuid.UUID
	limits                                    *scope.Limits // of a peer; nil when nothing is counted

	fresh   bool // created by this call
	found   string
	known   uuid.UUID
	created Created
}

// Create serves create_for (peer caller) and create (home caller): one outcome an
// item, in order. endpoint.ErrStale, for the whole call, says that the caller must
// be resolved anew.
func (s *Store) Create(ctx context.Context, c endpoint.Caller, items []New) ([]Outcome[Created], error) {
	w := &work{auth: authorityOf(c)}
	limits := &c.Endpoint.Scope.Limits
	if w.auth.home {
		limits = nil
	}
	out := make([]Outcome[Created], len(items))
	made := make([]*creation, len(items))
	for i, n := range items {
		if !c.May(scope.CreateFor, n.Queue) {
			out[i].Err = errNoQueue
			continue
		}
		m, err := newCreation(n, limits)
		if err != nil {
			out[i].Err = err
			continue
		}
		m.auth, m.line = &w.auth, c.Endpoint.Line
		if !w.auth.home {
			m.grant, m.identity, m.callsItself = &c.Endpoint.GrantID, c.Endpoint.IdentityText, c.Endpoint.CallsItself
		}
		made[i] = m
		w.add(m)
	}
	if err := checkItems(len(items)); err != nil {
		return nil, err
	}
	if len(w.creates) > 0 {
		if err := s.do(ctx, w); err != nil {
			return nil, err
		}
	}
	for i, m := range made {
		if m != nil {
			out[i].Value, out[i].Err = m.created, m.err
		}
	}
	return out, nil
}

// CreateOwn puts a todo into a queue of the human's own, inbox included.
func (s *Store) CreateOwn(ctx context.Context, owner uuid.UUID, n New) (Created, error) {
	w := &work{auth: authority{owner: owner}}
	m, err := newCreation(n, nil)
	if err != nil {
		return Created{}, err
	}
	m.auth, m.line = &w.auth, owner
	w.add(m)
	if err := s.do(ctx, w); err != nil {
		return Created{}, err
	}
	return m.created, m.err
}

func (w *work) add(m *creation) {
	w.creates = append(w.creates, m)
	w.size += itemSize + len(m.title) + len(m.body)
	if m.payload != nil {
		w.size += len(*m.payload)
	}
}

func checkItems(n int) error {
	if n < 1 || n > maxItems {
		return refusal.Invalid("items", "items must be from 1 to %d", maxItems)
	}
	return nil
}

// newCreation checks an item as far as that needs no look at the database.
func newCreation(n New, limits *scope.Limits) (*creation, error) {
	if err := line("title", n.Title, maxTitle); err != nil {
		return nil, err
	}
	if err := line("idempotency_key", n.IdempotencyKey, maxKey); err != nil {
		return nil, err
	}
	if err := long("body", n.Body, maxBody); err != nil {
		return nil, err
	}
	if err := checkTrace(n.Traceparent); err != nil {
		return nil, err
	}
	maxPayload, maxPriority := int64(homePayload), int64(9)
	if limits != nil {
		maxPayload, maxPriority = limits.MaxPayloadBytes, limits.MaxPriority
	}
	payload, err := document("payload", n.Payload, maxPayload)
	if err != nil {
		return nil, err
	}
	priority := int(min(5, maxPriority))
	asked := ""
	if n.Priority != nil {
		priority, asked = *n.Priority, strconv.Itoa(*n.Priority)
		if priority < 1 || priority > 9 {
			return nil, refusal.Invalid("priority", "priority must be from 1 to 9")
		}
		if int64(priority) > maxPriority {
			return nil, refusal.Invalid("priority", "priority must not be above %d, the most that this endpoint may ask for", maxPriority)
		}
	}
	return &creation{
		key: n.IdempotencyKey, id: newID(), queue: n.Queue, title: n.Title, body: n.Body, trace: n.Traceparent,
		payload: payload, priority: priority, notBefore: n.NotBefore, deadline: n.Deadline, limits: limits,
		// Everything but traceparent: a repeat may run under another trace. The
		// priority as it was asked for, since the default may have been narrowed.
		hash: digest([]byte(n.Queue), []byte(n.Title), []byte(n.Body), canonical(payload), []byte(asked), moment(n.NotBefore), moment(n.Deadline)),
	}, nil
}

// insertTodos creates those items whose key is new and which the limits allow.
//
// The caller's row is locked by now, for update when a limit is counted, and this
// statement's snapshot is younger than the lock: what is counted here cannot
// change before the commit. Keys are looked up first; one that another transaction
// is just creating violates todo_key_once, and the batch is run again.
//
// The virtual start of a line's first new todo in a class (queue and priority) is
// that of the class's first ready todo, or one more than the line's own last,
// whichever is more: start-time fair queuing with all weights equal.
const insertTodos = `
WITH item AS MATERIALIZED (
	SELECT i.*, clock_timestamp() AS now
	FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::uuid[], $6::text[], $7::bytea[], $8::uuid[], $9::text[],
			$10::smallint[], $11::timestamptz[], $12::timestamptz[], $13::uuid[], $14::bigint[], $15::bigint[], $16::int[])
		WITH ORDINALITY AS i(owner, endpoint, version, until, line, key, digest, id, queue,
			priority, not_before, deadline, grant_id, max_open, per_hour, delay_days, ord)
), judged AS MATERIALIZED (
	SELECT i.*, k.id AS known,
		CASE
			WHEN i.endpoint IS NOT NULL AND (` + upheld + `) IS NOT TRUE THEN 'stale'
			WHEN k.digest = i.digest THEN 'known'
			WHEN k.id IS NOT NULL THEN 'conflict'
			WHEN (SELECT q.name FROM queue q WHERE q.owner = i.owner AND q.name = i.queue LIMIT 1) IS NULL THEN 'no_queue'
			WHEN i.not_before > i.now + make_interval(days => i.delay_days) THEN 'too_far'
			WHEN i.deadline <= i.now THEN 'too_late'
			ELSE 'new'
		END AS verdict
	FROM item i LEFT JOIN LATERAL (
		SELECT k.id, k.digest FROM todo_key k WHERE k.owner = i.owner AND k.line = i.line AND k.key = i.key LIMIT 1
	) k ON true
), numbered AS (
	SELECT j.*,
		row_number() OVER (PARTITION BY line ORDER BY ord) AS nth,
		row_number() OVER (PARTITION BY line, queue, priority ORDER BY ord) AS nth_of_class
	FROM judged j WHERE verdict = 'new'
), measured AS (
	SELECT n.*,
		CASE WHEN nth = 1 AND max_open IS NOT NULL THEN (
			SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.line = n.line AND l.vstart >= 0 LIMIT n.max_open) open
		) END AS open,
		CASE WHEN nth = 1 AND per_hour IS NOT NULL THEN (
			SELECT k.ordinal FROM todo_key k WHERE k.line = n.line AND k.ordinal >= 0 ORDER BY k.created_at DESC, k.id DESC LIMIT 1
		) END AS last,
		CASE WHEN nth = 1 AND per_hour IS NOT NULL THEN (
			SELECT k.ordinal FROM todo_key k WHERE k.line = n.line AND k.ordinal >= 0 AND k.created_at > n.now - interval '1 hour'
			ORDER BY k.created_at, k.id LIMIT 1
		) END AS first,
		CASE WHEN nth_of_class = 1 THEN greatest(0, (
			SELECT l.vstart FROM todo_live l
			WHERE l.owner = n.owner AND l.queue = n.queue AND l.claimable AND l.priority = n.priority AND l.state = 'ready'
			ORDER BY l.vstart, l.id LIMIT 1
		), 1 + (
			SELECT l.vstart FROM todo_live l
			WHERE l.line = n.line AND l.queue = n.queue AND l.priority = n.priority AND l.vstart >= 0
			ORDER BY l.vstart DESC LIMIT 1
		)) END AS start
	FROM numbered n
), admitted AS MATERIALIZED (
	SELECT m.*,
		max(start) OVER (PARTITION BY line, queue, priority) + nth_of_class - 1 AS vstart,
		coalesce(max(last) OVER by_line, 0) + nth AS ordinal,
		CASE
			WHEN max_open IS NOT NULL AND max(open) OVER by_line + nth > max_open THEN 'over_open'
			WHEN per_hour IS NOT NULL AND coalesce(max(last) OVER by_line - max(first) OVER by_line + 1, 0) + nth > per_hour THEN 'over_hour'
			ELSE 'new'
		END AS outcome
	FROM measured m
	WINDOW by_line AS (PARTITION BY line)
), keyed AS (
	INSERT INTO todo_key (owner, line, key, id, digest, ordinal, created_at)
	SELECT owner, line, key, id, digest, CASE WHEN per_hour IS NULL THEN 0 ELSE ordinal END, now FROM admitted WHERE outcome = 'new'
), written AS (
	INSERT INTO todo (owner, id, queue, line, endpoint, grant_id, key, title, body, payload, priority, deadline, identity, calls_itself, trace, created_at)
	SELECT owner, id, queue, line, endpoint, grant_id, key, ($17::text[])[ord], ($18::text[])[ord], ($19::text[])[ord], priority, deadline,
		($20::text[])[ord], ($21::text[])[ord], ($22::text[])[ord], now
	FROM admitted WHERE outcome = 'new'
), opened AS (
	INSERT INTO todo_live (owner, id, queue, line, endpoint, priority, vstart, claimable, state, not_before, deadline)
	SELECT owner, id, queue, line, endpoint, priority, vstart, not_before IS NULL OR not_before <= now, 'ready', not_before, deadline
	FROM admitted WHERE outcome = 'new'
)
SELECT ord, verdict, known FROM judged WHERE verdict <> 'new'
UNION ALL
SELECT ord, outcome, NULL FROM admitted`

// queueCreates adds the statement for the round's creations, in the order of their
// keys. Of equal keys only the first takes part; the others find it afterwards.
func (r *round) queueCreates(b *pgx.Batch) {
	if len(r.creates) == 0 {
		return
	}
	items := slices.Clone(r.creates)
	if len(items) > 1 {
		slices.SortStableFunc(items, func(a, b *creation) int {
			if c := byRow(a.auth.owner, a.line, b.auth.owner, b.line); c != 0 {
				return c
			}
			return 0
		})
		items = firstOfKeys(items)
	}
	n := len(items)
	var (
		as           authorities
		endpoints    = make([]*[16]byte, n)
		lines, ids   = make([][16]byte, n), make([][16]byte, n)
		keys, queues = make([]string, n), make([]string, n)
		hashes       = make([][]byte, n)
		priorities   = make([]int16, n)
		notBefore    = make([]*time.Time, n)
		deadlines    = make([]*time.Time, n)
		grants       = make([]*[16]byte, n)
		open, hourly = make([]*int64, n), make([]*int64, n)
		delay        = make([]*int32, n)
		titles       = make([]string, n)
		bodies       = make([]string, n)
		payloads     = make([]*string, n)
		identities   = make([]string, n)
		callsItself  = make([]string, n)
		traces       = make([]string, n)
	)
	for i, c := range items {
		as.add(c.auth)
		if c.auth.endpoint != uuid.Nil {
			endpoints[i] = (*[16]byte)(&c.auth.endpoint)
		}
		lines[i], ids[i], keys[i], queues[i], hashes[i] = c.line, c.id, c.key, c.queue, c.hash
		priorities[i], notBefore[i], deadlines[i] = int16(c.priority), c.notBefore, c.deadline
		if c.grant != nil {
			grants[i] = (*[16]byte)(c.grant)
		}
		if c.limits != nil {
			open[i], hourly[i] = &c.limits.MaxOpen, &c.limits.PerHour
			days := int32(min(c.limits.MaxDelayDays, 36500))
			delay[i] = &days
		}
		titles[i], bodies[i], payloads[i] = c.title, c.body, c.payload
		identities[i], callsItself[i], traces[i] = c.identity, c.callsItself, c.trace
	}
	b.Queue(insertTodos, as.owner, endpoints, as.version, as.until, lines, keys, hashes, ids, queues,
		priorities, notBefore, deadlines, grants, open, hourly, delay,
		titles, bodies, payloads, identities, callsItself, traces).Query(func(rows pgx.Rows) error {
		var ord int
		var outcome string
		var known *uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{&ord, &outcome, &known}, func() error {
			if ord < 1 || ord > n {
				return errUnexpected
			}
			c := items[ord-1]
			c.found = outcome
			if known != nil {
				c.known = *known
			}
			return nil
		})
		return err
	})
}

// firstOfKeys keeps the first item of each key; items are sorted by line.
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

// explainCreates turns what the statement found into outcomes.
func explainCreates(ctx context.Context, conn *pgxpool.Conn, items []*creation) error {
	for _, c := range items {
		found := c.found
		c.found = ""
		switch found {
		case "new":
			c.fresh = true
			c.created = Created{TodoID: c.id, State: Ready, Version: 1}
			c.decide(nil)
		case "stale":
			c.auth.stale = true
			c.decide(endpoint.ErrStale)
		case "no_queue":
			c.decide(errNoQueue)
		case "too_far":
			c.decide(refusal.Invalid("not_before", "not_before must not lie more than %d days ahead", c.limits.MaxDelayDays))
		case "too_late":
			c.decide(refusal.Invalid("deadline", "deadline has passed"))
		case "over_open":
			c.decide(refusal.New(refusal.QuotaExceeded, "%d todos are open, as many as this endpoint may have open at once", c.limits.MaxOpen))
		case "over_hour":
			after, err := untilNextHour(ctx, conn, c)
			if err != nil {
				return err
			}
			c.decide(refusal.New(refusal.RateLimited, "%d todos were created in the last hour, as many as this endpoint may create", c.limits.PerHour).After(after))
		case "known", "conflict":
			if err := explainKnown(ctx, conn, c, found == "conflict"); err != nil {
				return err
			}
		}
	}
	return nil
}

// untilNextHour is how long until the oldest creation that counts no longer does.
func untilNextHour(ctx context.Context, conn *pgxpool.Conn, c *creation) (time.Duration, error) {
	var seconds float64
	err := conn.QueryRow(ctx, `
		SELECT coalesce((
			SELECT extract(epoch FROM k.created_at + interval '1 hour' - clock_timestamp())
			FROM todo_key k
			WHERE k.line = $1 AND k.ordinal >= 0 AND k.created_at > clock_timestamp() - interval '1 hour'
			ORDER BY k.created_at, k.id LIMIT 1
		), 3600)::float8`, c.line).Scan(&seconds)
	if err != nil {
		return 0, fmt.Errorf("look for the oldest todo of the hour: %w", err)
	}
	return max(time.Second, time.Duration(seconds*float64(time.Second)).Round(time.Second)), nil
}

// keyLifetime is how long a key is remembered after its todo's end.
const keyLifetime = 30 * 24 * time.Hour

// explainKnown answers for a key that is taken. A key whose todo ended too long ago
// to be remembered is given up, and the item stays undecided.
func explainKnown(ctx context.Context, conn *pgxpool.Conn, c *creation, conflict bool) error {
	var state *State
	var version *int64
	var forgotten bool
	err := conn.QueryRow(ctx, `
		SELECT coalesce(l.state, o.state), coalesce(l.version, o.version),
			coalesce(o.finished_at < clock_timestamp() - make_interval(secs => $3), l.id IS NULL AND o.id IS NULL)
		FROM (SELECT $1::uuid AS owner, $2::uuid AS id) i
		LEFT JOIN todo_live l ON l.owner = i.owner AND l.id = i.id
		LEFT JOIN todo_outcome o ON o.owner = i.owner AND o.id = i.id`,
		c.auth.owner, c.known, keyLifetime.Seconds()).Scan(&state, &version, &forgotten)
	if err != nil {
		return fmt.Errorf("look at todo %s: %w", c.known, err)
	}
	switch {
	case forgotten:
		_, err := conn.Exec(ctx, `DELETE FROM todo_key WHERE owner = $1 AND line = $2 AND key = $3 AND id = $4`,
			c.auth.owner, c.line, c.key, c.known)
		if err != nil {
			return fmt.Errorf("forget the key of todo %s: %w", c.known, err)
		}
	case conflict:
		c.decide(refusal.New(refusal.Conflict, "this idempotency_key was used for another todo"))
	default:
		c.created = Created{TodoID: c.known, State: *state, Version: *version, Deduplicated: true}
		c.decide(nil)
	}
	return nil
}
