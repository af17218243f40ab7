package todo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/refusal"
)

// keyLifetime is how long a key is remembered after its todo's end.
const keyLifetime = 30 * 24 * time.Hour

// uncreated is what speaks against a creation.
type uncreated struct {
	known     *uuid.UUID // the key's todo
	same      *bool
	state     *State
	version   *int64
	forgotten bool // the key's todo ended too long ago
	queue     bool // there is one
	tooFar    bool
	tooLate   bool
	overOpen  bool
	overHour  bool
	wait      float64 // seconds until the oldest creation of the hour is an hour old
}

// explainCreates tells what became of each creation. One against which nothing
// speaks any more stays undecided.
func explainCreates(ctx context.Context, conn *pgxpool.Conn, items []*creation) error {
	var open []*creation
	for _, c := range items {
		if c.fresh {
			c.created = Created{TodoID: c.id, State: Ready, Version: 1}
			c.decide(nil)
			continue
		}
		open = append(open, c)
	}
	if len(open) == 0 {
		return nil
	}
	n := len(open)
	owners, lines := make([][16]byte, n), make([][16]byte, n)
	names, hashes, queues := make([][16]byte, n), make([][16]byte, n), make([]string, n)
	deadlines, notBefore := make([]*time.Time, n), make([]*time.Time, n)
	maxOpen, perHour, delay := make([]*int64, n), make([]*int64, n), make([]*int32, n)
	for i, c := range open {
		owners[i], lines[i], names[i], hashes[i], queues[i] = c.auth.owner, c.line, c.name, c.hash, c.queue
		deadlines[i], notBefore[i] = c.deadline, c.notBefore
		if c.limits != nil {
			days := c.delayDays()
			maxOpen[i], perHour[i], delay[i] = &c.limits.MaxOpen, &c.limits.PerHour, &days
		}
	}
	rows, err := conn.Query(ctx, `
		SELECT i.ord, k.id, k.digest = i.digest, coalesce(l.state, o.state), coalesce(l.version, o.version),
			coalesce(o.finished_at < clock_timestamp() - make_interval(secs => $11), k.id IS NOT NULL AND l.id IS NULL AND o.id IS NULL),
			EXISTS (SELECT FROM queue q WHERE q.owner = i.owner AND q.name = i.queue),
			coalesce(i.not_before > clock_timestamp() + make_interval(days => i.delay_days), false),
			coalesce(i.deadline <= clock_timestamp(), false),
			coalesce((SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.line = i.line AND l.limited LIMIT i.max_open) x) >= i.max_open, false),
			coalesce(coalesce(h.last - h.first + 1, 0) >= i.per_hour, false), coalesce(h.wait, 3600)::float8
		FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::timestamptz[], $7::timestamptz[],
				$8::bigint[], $9::bigint[], $10::int[])
			WITH ORDINALITY AS i(owner, line, name, digest, queue, deadline, not_before, max_open, per_hour, delay_days, ord)
		LEFT JOIN LATERAL (
			SELECT k.id, k.digest FROM todo_key k WHERE k.owner = i.owner AND k.name = i.name LIMIT 1
		) k ON true
		LEFT JOIN LATERAL (SELECT l.id, l.state, l.version FROM todo_live l WHERE l.owner = i.owner AND l.id = k.id LIMIT 1) l ON true
		LEFT JOIN LATERAL (SELECT o.* FROM todo_outcome o WHERE o.owner = i.owner AND o.id = k.id LIMIT 1) o ON true
		LEFT JOIN LATERAL (
			SELECT f.ordinal AS first, extract(epoch FROM f.created_at + interval '1 hour' - clock_timestamp()) AS wait, (
				SELECT k.ordinal FROM todo_key k WHERE k.line = i.line AND k.ordinal >= 0 ORDER BY k.created_at DESC, k.id DESC LIMIT 1
			) AS last
			FROM todo_key f
			WHERE f.line = i.line AND f.ordinal >= 0 AND f.created_at > (SELECT clock_timestamp() - interval '1 hour')
			ORDER BY f.created_at, f.id LIMIT 1
		) h ON i.per_hour IS NOT NULL`,
		owners, lines, names, hashes, queues, deadlines, notBefore, maxOpen, perHour, delay, keyLifetime.Seconds())
	if err != nil {
		return fmt.Errorf("explain what was not created: %w", err)
	}
	var forgotten []*creation
	var ord int
	var u uncreated
	_, err = pgx.ForEachRow(rows, []any{
		&ord, &u.known, &u.same, &u.state, &u.version, &u.forgotten, &u.queue, &u.tooFar, &u.tooLate, &u.overOpen, &u.overHour, &u.wait,
	}, func() error {
		c := open[ord-1]
		if u.forgotten {
			forgotten = append(forgotten, c)
			return nil
		}
		c.explained(u)
		return nil
	})
	if err != nil {
		return fmt.Errorf("explain what was not created: %w", err)
	}
	for _, c := range forgotten {
		_, err := conn.Exec(ctx, `
			DELETE FROM todo_key k WHERE k.owner = $1 AND k.name = $2
				AND NOT EXISTS (SELECT FROM todo_live l WHERE l.owner = k.owner AND l.id = k.id)`, c.auth.owner, c.name)
		if err != nil {
			return fmt.Errorf("forget a key: %w", err)
		}
	}
	return nil
}

func (c *creation) explained(u uncreated) {
	switch {
	case u.known != nil && !*u.same:
		c.decide(refusal.New(refusal.Conflict, "this idempotency_key was used for another todo"))
	case u.known != nil:
		c.created = Created{TodoID: *u.known, State: *u.state, Version: *u.version, Deduplicated: true}
		c.decide(nil)
	case !u.queue:
		c.decide(errNoQueue)
	case u.tooFar:
		c.decide(refusal.Invalid("not_before", "not_before must not lie more than %d days ahead", c.limits.MaxDelayDays))
	case u.tooLate:
		c.decide(refusal.Invalid("deadline", "deadline has passed"))
	case u.overOpen:
		c.decide(refusal.New(refusal.QuotaExceeded, "%d todos are open, as many as this endpoint may have open at once", c.limits.MaxOpen))
	case u.overHour:
		after := max(time.Second, time.Duration(u.wait*float64(time.Second)).Round(time.Second))
		c.decide(refusal.New(refusal.RateLimited, "%d todos were created in the last hour, as many as this endpoint may create", c.limits.PerHour).After(after))
	}
}
