package todo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/refusal"
)

// How much one answer may weigh. A call of two hundred bytes could otherwise ask for
// a hundred todos with a megabyte in each, and each answer is several times that in
// memory; a few at once would end the process for everybody. What does not fit comes
// with the next page or claim; one todo always does.
const (
	pageBytes     = 2 << 20 // of what one list or claim brings along
	maxAttached   = 4 << 20 // of artifacts, on one todo
	maxHistory    = 100     // attempts, and exchanges, that are shown of one todo: the newest
	historyBytes  = 1 << 20 // of exchanges
	smallDemand   = 4       // todos whose weight a claim does not ask for
	artifactsFull = "this todo holds as many artifacts as one may: 100, and 4 MiB of them; give larger ones a url, or repeat a name to replace one"
)

// weight, in SQL, is what todo t with live row l or outcome o brings into a list.
const weight = `octet_length(t.body) + coalesce(octet_length(t.payload), 0) + coalesce(octet_length(o.result), 0) +
	CASE WHEN coalesce(l.artifacts, o.artifacts) > 0 THEN (
		SELECT coalesce(sum(octet_length(a.artifact)), 0) FROM todo_artifact a WHERE a.owner = t.owner AND a.todo = t.id
	) ELSE 0 END`

// weighed is a todo that a list has found and not read yet.
type weighed struct {
	id     uuid.UUID
	at     time.Time
	weight int64
}

func scanWeighed(from pgx.CollectableRow) (w weighed, err error) {
	err = from.Scan(&w.id, &w.at, &w.weight)
	return w, err
}

// page is the beginning of found that one answer holds, at most limit of them.
func page(found []weighed, limit int) []weighed {
	total := int64(0)
	for i, w := range found {
		if total += w.weight; i == limit || i > 0 && total > pageBytes {
			return found[:i]
		}
	}
	return found
}

// read reads todos in this order. One that is gone meanwhile is left out.
func (s *Store) read(ctx context.Context, owner uuid.UUID, list []weighed) ([]row, error) {
	if len(list) == 0 {
		return nil, nil
	}
	ids := make([]uuid.UUID, len(list))
	for i, w := range list {
		ids[i] = w.id
	}
	rows, err := s.pool.Query(ctx, `
		SELECT `+whole+`
		FROM unnest($2::uuid[]) WITH ORDINALITY AS i(id, n) JOIN todo t ON t.owner = $1 AND t.id = i.id`+ends+`
		WHERE coalesce(l.state, o.state) IS NOT NULL ORDER BY i.n`, owner, ids)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read todos: %w", err))
	}
	found, err := pgx.CollectRows(rows, scanRow)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read todos: %w", err))
	}
	return found, nil
}

// roomFor refuses artifacts for which a todo has no room. Calls at the same moment
// may together exceed it a little: it bounds memory and is no quota.
func (s *Store) roomFor(ctx context.Context, owner, id uuid.UUID, a added) error {
	if len(a.names) == 0 {
		return nil
	}
	count, bytes := len(a.names), int64(0)
	for _, b := range a.bodies {
		bytes += int64(len(b))
	}
	var had int
	var held int64
	err := s.pool.QueryRow(ctx, `
		SELECT count(*), coalesce(sum(octet_length(a.artifact)), 0) FROM todo_artifact a
		WHERE a.owner = $1 AND a.todo = $2 AND a.name <> ALL ($3::text[])`, owner, id, a.names).Scan(&had, &held)
	if err != nil {
		return unavailable(fmt.Errorf("look at the artifacts of todo %s: %w", id, err))
	}
	if had+count > maxArtifacts || held+bytes > maxAttached {
		return refusal.New(refusal.PayloadTooLarge, artifactsFull)
	}
	return nil
}
