package todo

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// holding is an item of a worker that names a lease.
type holding interface {
	row() (a *authority, id, token uuid.UUID)
	settled() bool // the statement has acted
	// repeated decides an item whose call was carried out before, and reports
	// whether that is so.
	repeated(h history) bool
	decide(err error)
}

func (e *ending) row() (*authority, uuid.UUID, uuid.UUID)     { return e.auth, e.id, e.token }
func (c *completion) row() (*authority, uuid.UUID, uuid.UUID) { return c.auth, c.id, c.token }
func (b *beat) row() (*authority, uuid.UUID, uuid.UUID)       { return b.auth, b.id, b.token }
func (e *ending) settled() bool                               { return e.acted }
func (c *completion) settled() bool                           { return c.acted }
func (b *beat) settled() bool                                 { return b.acted }

// history is what is known of a todo and of the attempt that a token belongs to.
type history struct {
	queue *string
	kind  *string
	holds bool // the token is current

	outcome        *State
	outcomeVersion *int64
	outcomeToken   *uuid.UUID
	outcomeDigest  []byte
	attempt        *string
	attemptDigest  []byte
	attemptState   *State
	attemptVersion *int64
}

func (e *ending) repeated(h history) bool {
	if h.attempt == nil || !bytes.Equal(h.attemptDigest, e.hash) {
		return false
	}
	e.after = Changed{TodoID: e.id, State: *h.attemptState, Version: *h.attemptVersion}
	e.decide(nil)
	return true
}

func (c *completion) repeated(h history) bool {
	if h.outcomeToken == nil || *h.outcomeToken != c.token || !bytes.Equal(h.outcomeDigest, c.hash) {
		return false
	}
	c.after = Changed{TodoID: c.id, State: *h.outcome, Version: *h.outcomeVersion}
	c.decide(nil)
	return true
}

func (b *beat) repeated(history) bool { return false }

// inOrder sorts items by the keys of their rows, which is the order in which they
// are locked, and keeps one item a todo: a statement changes a row once. The others
// stay undecided and are tried again.
func inOrder[H holding](items []H) []H {
	if len(items) < 2 {
		return items
	}
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b H) int {
		x, idX, _ := a.row()
		y, idY, _ := b.row()
		return byRow(x.owner, idX, y.owner, idY)
	})
	return slices.CompactFunc(items, func(a, b H) bool {
		_, idA, _ := a.row()
		_, idB, _ := b.row()
		return idA == idB
	})
}

// lockHeld queues the lock of the rows of all items that name a lease, in the order
// of their keys.
func (r *round) lockHeld(b *script) {
	var all []holding
	for _, e := range r.endings {
		all = append(all, e)
	}
	for _, c := range r.completions {
		all = append(all, c)
	}
	for _, x := range r.beats {
		all = append(all, x)
	}
	if len(all) == 0 {
		return
	}
	all = inOrder(all)
	owners, ids := make([][16]byte, len(all)), make([][16]byte, len(all))
	for i, h := range all {
		a, id, _ := h.row()
		owners[i], ids[i] = a.owner, id
	}
	b.add(`
		SELECT FROM unnest($1::uuid[], $2::uuid[]) AS i(owner, id),
			LATERAL (SELECT FROM todo_live l WHERE l.owner = i.owner AND l.id = i.id LIMIT 1 FOR UPDATE) x`, owners, ids)
}

// explainHeld decides the items on whose rows the statements did not act.
func explainHeld(ctx context.Context, conn *pgxpool.Conn, r *round) error {
	var open []holding
	add := func(h holding) {
		if h.settled() {
			h.decide(nil)
			return
		}
		open = append(open, h)
	}
	for _, e := range r.endings {
		add(e)
	}
	for _, c := range r.completions {
		add(c)
	}
	for _, b := range r.beats {
		add(b)
	}
	if len(open) == 0 {
		return nil
	}
	n := len(open)
	owners, ids, tokens := make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
	for i, h := range open {
		a, id, token := h.row()
		owners[i], ids[i], tokens[i] = a.owner, id, token
	}
	rows, err := conn.Query(ctx, `
		SELECT i.ord, t.queue, t.kind, coalesce(l.token = i.token, false),
			o.state, o.version, o.token, o.digest, a.outcome, a.digest, a.state, a.version
		FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS i(owner, id, token, ord)
		LEFT JOIN LATERAL (SELECT t.queue, t.kind FROM todo t WHERE t.owner = i.owner AND t.id = i.id LIMIT 1) t ON true
		LEFT JOIN LATERAL (SELECT l.token FROM todo_live l WHERE l.owner = i.owner AND l.id = i.id LIMIT 1) l ON true
		LEFT JOIN LATERAL (SELECT o.* FROM todo_outcome o WHERE o.owner = i.owner AND o.id = i.id LIMIT 1) o ON true
		LEFT JOIN LATERAL (SELECT a.* FROM todo_attempt a WHERE a.owner = i.owner AND a.todo = i.id AND a.token = i.token LIMIT 1) a ON true`,
		owners, ids, tokens)
	if err != nil {
		return fmt.Errorf("explain what was not done: %w", err)
	}
	var ord int
	var h history
	_, err = pgx.ForEachRow(rows, []any{
		&ord, &h.queue, &h.kind, &h.holds,
		&h.outcome, &h.outcomeVersion, &h.outcomeToken, &h.outcomeDigest, &h.attempt, &h.attemptDigest, &h.attemptState, &h.attemptVersion,
	}, func() error {
		judge(open[ord-1], h)
		return nil
	})
	if err != nil {
		return fmt.Errorf("explain what was not done: %w", err)
	}
	return nil
}

// judge decides an item on which the statement did not act, or leaves it
// undecided because it could now.
func judge(item holding, h history) {
	a, _, _ := item.row()
	switch {
	case h.queue == nil || *h.kind != kindWork || !a.has(*h.queue):
		item.decide(errNoTodo)
	case h.holds:
	case item.repeated(h):
	default:
		item.decide(errLeaseLost)
	}
}
