package todo

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
)

// Completion ends a todo with a result. Artifacts are added to those that came with
// heartbeats, by name.
type Completion struct {
	TodoID     uuid.UUID
	LeaseToken string
	Result     json.RawMessage
	Artifacts  []Artifact
}

type completion struct {
	verdict
	auth      *authority
	id        uuid.UUID
	token     uuid.UUID
	hash      []byte
	result    *string
	artifacts added

	acted bool
	line  uuid.UUID
	after Changed
}

// added is what a call adds to a todo's artifacts.
type added struct {
	names, bodies []string
}

// Complete ends todos as done, also when they were asked to stop.
func (s *Store) Complete(ctx context.Context, c endpoint.Caller, items []Completion) ([]Outcome[Changed], error) {
	if err := checkItems(len(items)); err != nil {
		return nil, err
	}
	w := &work{auth: authorityOf(c)}
	out := make([]Outcome[Changed], len(items))
	made := make([]*completion, len(items))
	for i, item := range items {
		m, size, err := newCompletion(item)
		if err == nil {
			err = s.roomFor(ctx, w.auth.owner, m.id, m.artifacts)
		}
		if err != nil {
			out[i].Err = err
			continue
		}
		m.auth = &w.auth
		made[i] = m
		w.completions = append(w.completions, m)
		w.size += itemSize + size
	}
	if len(w.completions) > 0 {
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

func newCompletion(item Completion) (m *completion, size int, err error) {
	m = &completion{id: item.TodoID}
	if m.result, err = document("result", item.Result, maxResult); err != nil {
		return nil, 0, err
	}
	if m.artifacts.names, m.artifacts.bodies, size, err = checkArtifacts(item.Artifacts); err != nil {
		return nil, 0, err
	}
	if m.token, err = parseToken(item.LeaseToken); err != nil {
		return nil, 0, err
	}
	parts := [][]byte{[]byte("completed"), canonical(m.result)}
	for _, b := range m.artifacts.bodies {
		parts = append(parts, []byte(b))
	}
	m.hash = digest(parts...)
	return m, size + textSize(m.result), nil
}

// endedColumns are what an outcome keeps of a row.
const endedColumns = `l.owner, l.id, l.line, l.version, l.attempt, l.artifacts, l.questions, l.worker, l.token, l.started_at, l.lease_seconds, l.progress`

// finishOne ends one todo if its token is current.
const (
	finishOne     = finishOneHead + finishOneTail
	finishOneHead = `
WITH gone AS (
	DELETE FROM todo_live l USING (SELECT $3::uuid AS token, $4::text AS queues) i
	WHERE l.owner = $1 AND l.id = $2 AND ` + current
	finishOneTail = `
	RETURNING ` + endedColumns + `
), ended AS (
	INSERT INTO todo_outcome (owner, id, state, version, attempt, artifacts, questions, worker, token, digest, started_at, lease_seconds, progress,
		result, finished_at)
	SELECT owner, id, 'done', version + 1, attempt, artifacts + $7, questions, worker, token, $5, started_at, lease_seconds, progress,
		$6, clock_timestamp()
	FROM gone
)
SELECT line, version + 1 FROM gone`
)

var finishAlone = finishOneHead + guarded(8) + finishOneTail

// finishTodos ends the todos whose tokens are current. The outcome is made of what
// the deletion returns, so it exists exactly when the row is gone.
var finishTodos = `
WITH item AS MATERIALIZED (
	` + each(1, "owner uuid", "id uuid", "token uuid", "queues text", "digest bytea", "result text", "artifacts int") + `
), found AS MATERIALIZED (
	SELECT i.ord, i.token, i.digest, i.result, i.artifacts, x.at FROM item i, ` + found + `
), gone AS (
	DELETE FROM todo_live l USING found k WHERE ` + stillHeld + `
	RETURNING k.ord, k.digest, k.result, k.artifacts AS added, ` + endedColumns + `
), ended AS (
	INSERT INTO todo_outcome (owner, id, state, version, attempt, artifacts, questions, worker, token, digest, started_at, lease_seconds, progress,
		result, finished_at)
	SELECT owner, id, 'done', version + 1, attempt, artifacts + added, questions, worker, token, digest, started_at, lease_seconds, progress,
		result, clock_timestamp()
	FROM gone
)
SELECT ord, line, version + 1 FROM gone`

func (r *round) queueCompletions(b *script) {
	if len(r.completions) == 0 {
		return
	}
	items := inOrder(r.completions)
	queueArtifacts(b, items, func(c *completion) added { return c.artifacts })
	finished := func(c *completion, line uuid.UUID, version int64) {
		c.acted, c.line = true, line
		c.after = Changed{TodoID: c.id, State: Done, Version: version}
	}
	if len(items) <= r.few {
		for _, c := range items {
			sql, args := finishOne, []any{raw(c.auth.owner), raw(c.id), raw(c.token), c.auth.queues, c.hash, c.result, len(c.artifacts.names)}
			if r.single {
				sql, args = finishAlone, append(args, c.auth.guards()...)
			}
			b.add(sql, args...).rows(func(rows pgx.Rows) error {
				var line uuid.UUID
				var version int64
				_, err := pgx.ForEachRow(rows, []any{into(&line), &version}, func() error {
					finished(c, line, version)
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
		queues, hashes, results, artifacts := make([]string, n), make([][]byte, n), make([]*string, n), make([]int32, n)
		for i, c := range items {
			owners[i], ids[i], tokens[i], queues[i], hashes[i], results[i] = c.auth.owner, c.id, c.token, c.auth.queues, c.hash, c.result
			artifacts[i] = int32(len(c.artifacts.names))
		}
		b.add(finishTodos, owners, ids, tokens, queues, hashes, results, artifacts).rows(func(rows pgx.Rows) error {
			var ord int
			var line uuid.UUID
			var version int64
			_, err := pgx.ForEachRow(rows, []any{&ord, into(&line), &version}, func() error {
				if ord < 1 || ord > n {
					return errUnexpected
				}
				finished(items[ord-1], line, version)
				return nil
			})
			return err
		})
	}
}

// addArtifacts stores artifacts of those whose tokens are current, the newest of a
// name. It locks the rows, so the statement after it finds them as this one did.
var addArtifacts = `
WITH item AS MATERIALIZED (
	` + each(1, "owner uuid", "id uuid", "token uuid", "queues text") + `
), locked AS MATERIALIZED (
	SELECT i.ord, i.owner, i.id FROM item i, ` + holds + `
)
INSERT INTO todo_artifact (owner, todo, name, artifact, position)
SELECT k.owner, k.id, a.name, a.artifact, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + a.n
FROM unnest($5::bigint[], $6::text[], $7::text[]) WITH ORDINALITY AS a(ord, name, artifact, n) JOIN locked k ON k.ord = a.ord
ON CONFLICT (owner, todo, name) DO UPDATE SET artifact = excluded.artifact`

// queueArtifacts adds the statement for the items' artifacts, if there are any.
func queueArtifacts[H holding](b *script, items []H, of func(H) added) {
	var owners, ids, tokens [][16]byte
	var queues, names, bodies []string
	var ords []int64
	for _, item := range items {
		a, id, token := item.row()
		what := of(item)
		if len(what.names) == 0 {
			continue
		}
		owners, ids, tokens, queues = append(owners, a.owner), append(ids, id), append(tokens, token), append(queues, a.queues)
		for i := range what.names {
			ords = append(ords, int64(len(ids)))
			names, bodies = append(names, what.names[i]), append(bodies, what.bodies[i])
		}
	}
	if len(ids) > 0 {
		b.add(addArtifacts, owners, ids, tokens, queues, ords, names, bodies)
	}
}
