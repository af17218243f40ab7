package todo

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
)

// Beat is a heartbeat: it prolongs the lease and tells how far the attempt is.
type Beat struct {
	TodoID     uuid.UUID
	LeaseToken string
	Lease      time.Duration // 0 = the attempt's lease length
	Progress   *Progress
	Artifacts  []Artifact // added to the todo's by name
}

// Beaten is what a heartbeat learns.
type Beaten struct {
	TodoID          uuid.UUID `json:"todo_id"`
	State           State     `json:"state"`
	Version         int64     `json:"version"`
	LeaseExpiresAt  time.Time `json:"lease_expires_at"`
	CancelRequested bool      `json:"cancel_requested"`
}

type beat struct {
	verdict
	auth      *authority
	id        uuid.UUID
	token     uuid.UUID
	lease     *int32
	progress  *string
	artifacts added

	acted   bool
	visible bool // to the friend: progress or artifacts
	line    uuid.UUID
	after   Beaten
}

// Heartbeat prolongs leases, counted from now, and stores progress and partial
// artifacts. A lease that has lapsed and was not reclaimed goes on.
func (s *Store) Heartbeat(ctx context.Context, c endpoint.Caller, items []Beat) ([]Outcome[Beaten], error) {
	if err := checkItems(len(items)); err != nil {
		return nil, err
	}
	w := &work{auth: authorityOf(c)}
	out := make([]Outcome[Beaten], len(items))
	made := make([]*beat, len(items))
	for i, item := range items {
		m, size, err := newBeat(item)
		if err == nil {
			err = s.roomFor(ctx, w.auth.owner, m.id, m.artifacts)
		}
		if err != nil {
			out[i].Err = err
			continue
		}
		m.auth = &w.auth
		made[i] = m
		w.beats = append(w.beats, m)
		w.size += itemSize + size
	}
	if len(w.beats) > 0 {
		if err := s.do(ctx, w); err != nil {
			return nil, err
		}
	}
	for i, m := range made {
		if m != nil {
			out[i].Value, out[i].Err = m.after, m.err
		}
	}
	return out, nil
}

func newBeat(item Beat) (m *beat, size int, err error) {
	m = &beat{id: item.TodoID}
	if item.Lease != 0 {
		d, err := leaseLength(item.Lease, 0)
		if err != nil {
			return nil, 0, err
		}
		seconds := int32(d / time.Second)
		m.lease = &seconds
	}
	if m.progress, err = checkProgress(item.Progress); err != nil {
		return nil, 0, err
	}
	if m.artifacts.names, m.artifacts.bodies, size, err = checkArtifacts(item.Artifacts); err != nil {
		return nil, 0, err
	}
	if m.token, err = parseToken(item.LeaseToken); err != nil {
		return nil, 0, err
	}
	m.visible = m.progress != nil || len(m.artifacts.names) > 0
	return m, size + textSize(m.progress), nil
}

// prolonged is what a heartbeat k changes in row l.
const prolonged = `
SET lease_expires_at = clock_timestamp() + make_interval(secs => coalesce(k.lease, l.lease_seconds)),
	beaten = true,
	progress = coalesce(k.progress, l.progress),
	artifacts = l.artifacts + k.artifacts,
	version = l.version + (k.progress IS NOT NULL OR k.artifacts > 0)::int`

const (
	prolongOne     = prolongOneHead + prolongOneTail
	prolongOneHead = `
UPDATE todo_live l` + prolonged + `
FROM (SELECT $3::uuid AS token, $4::text AS queues) i, (SELECT $5::int AS lease, $6::text AS progress, $7::int AS artifacts) k
WHERE l.owner = $1 AND l.id = $2 AND ` + current
	prolongOneTail = `
RETURNING l.line, l.version, l.lease_expires_at, l.cancel_requested`
)

var prolongAlone = prolongOneHead + guarded(8) + prolongOneTail

var prolongMany = `
WITH item AS MATERIALIZED (
	` + each(1, "owner uuid", "id uuid", "token uuid", "queues text", "lease int", "progress text", "artifacts int") + `
), found AS MATERIALIZED (
	SELECT i.ord, i.token, i.lease, i.progress, i.artifacts, x.at FROM item i, ` + found + `
)
UPDATE todo_live l` + prolonged + `
FROM found k WHERE ` + stillHeld + `
RETURNING l.line, l.version, l.lease_expires_at, l.cancel_requested, k.ord`

func (r *round) queueBeats(b *script) {
	if len(r.beats) == 0 {
		return
	}
	items := inOrder(r.beats)
	queueArtifacts(b, items, func(x *beat) added { return x.artifacts })
	var line uuid.UUID
	after := Beaten{State: Leased}
	targets := []any{into(&line), &after.Version, &after.LeaseExpiresAt, &after.CancelRequested}
	prolonged := func(x *beat) {
		x.acted, x.line, x.after = true, line, after
		x.after.TodoID = x.id
	}
	if len(items) <= r.few {
		for _, x := range items {
			sql, args := prolongOne, []any{raw(x.auth.owner), raw(x.id), raw(x.token), x.auth.queues, x.lease, x.progress, len(x.artifacts.names)}
			if r.single {
				sql, args = prolongAlone, append(args, x.auth.guards()...)
			}
			b.add(sql, args...).rows(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, targets, func() error {
					prolonged(x)
					return nil
				})
				return err
			})
		}
		return
	}
	for items := range slices.Chunk(items, manyAtOnce) {
		n := len(items)
		owners, ids, tokens := make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
		queues, leases, progress, artifacts := make([]string, n), make([]*int32, n), make([]*string, n), make([]int32, n)
		for i, x := range items {
			owners[i], ids[i], tokens[i], queues[i], leases[i], progress[i] = x.auth.owner, x.id, x.token, x.auth.queues, x.lease, x.progress
			artifacts[i] = int32(len(x.artifacts.names))
		}
		b.add(prolongMany, owners, ids, tokens, queues, leases, progress, artifacts).rows(func(rows pgx.Rows) error {
			var ord int
			_, err := pgx.ForEachRow(rows, append(targets, &ord), func() error {
				if ord < 1 || ord > n {
					return errUnexpected
				}
				prolonged(items[ord-1])
				return nil
			})
			return err
		})
	}
}
