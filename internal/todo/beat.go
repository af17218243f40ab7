package todo

import (
	"context"
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

const prolongLeases = `
WITH item AS MATERIALIZED (
	SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::uuid[], $6::uuid[], $7::text[], $8::int[], $9::text[], $10::int[])
		WITH ORDINALITY AS i(owner, endpoint, version, until, id, token, queues, lease, progress, artifacts, ord)
), locked AS MATERIALIZED (
	SELECT i.ord, i.lease, i.progress, i.artifacts, x.at FROM item i, ` + holds + `
	WHERE ` + upheld + `
)
UPDATE todo_live l
SET lease_expires_at = clock_timestamp() + make_interval(secs => coalesce(k.lease, l.lease_seconds)),
	beaten = true,
	progress = coalesce(k.progress, l.progress),
	artifacts = l.artifacts + k.artifacts,
	version = l.version + (k.progress IS NOT NULL OR k.artifacts > 0)::int
FROM locked k WHERE l.ctid = k.at
RETURNING k.ord, l.line, l.version, l.lease_expires_at, l.cancel_requested`

func (r *round) queueBeats(b *pgx.Batch) {
	if len(r.beats) == 0 {
		return
	}
	items := inOrder(r.beats)
	queueArtifacts(b, items, func(x *beat) added { return x.artifacts })
	n := len(items)
	var as authorities
	ids, tokens := make([][16]byte, n), make([][16]byte, n)
	queues, leases, progress, artifacts := make([]string, n), make([]*int32, n), make([]*string, n), make([]int32, n)
	for i, x := range items {
		as.add(x.auth)
		ids[i], tokens[i], queues[i], leases[i], progress[i] = x.id, x.token, x.auth.queues, x.lease, x.progress
		artifacts[i] = int32(len(x.artifacts.names))
	}
	b.Queue(prolongLeases, as.owner, as.endpoint, as.version, as.until, ids, tokens, queues, leases, progress, artifacts).Query(func(rows pgx.Rows) error {
		var ord int
		var line uuid.UUID
		var version int64
		var expires time.Time
		var cancel bool
		_, err := pgx.ForEachRow(rows, []any{&ord, &line, &version, &expires, &cancel}, func() error {
			if ord < 1 || ord > n {
				return errUnexpected
			}
			x := items[ord-1]
			x.acted, x.line = true, line
			x.after = Beaten{TodoID: x.id, State: Leased, Version: version, LeaseExpiresAt: expires, CancelRequested: cancel}
			return nil
		})
		return err
	})
}
