package todo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/endpoint"
	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
)

// work is what one call wants done: items of one kind by one caller.
type work struct {
	auth authority
	size int // bytes, and something for each item

	creates     []*creation
	demand      *demand
	beats       []*beat
	completions []*completion
	endings     []*ending
}

// itemSize stands for the cost of an item beside its bytes.
const itemSize = 4 << 10

// verdict is how an item was decided.
type verdict struct {
	decided bool
	err     error
}

func (v *verdict) decide(err error) { v.decided, v.err = true, err }

// do carries out w in a batch and returns after the commit.
func (s *Store) do(ctx context.Context, w *work) error {
	if _, err := s.batch.Do(ctx, w); err != nil {
		return unavailable(err)
	}
	if w.auth.stale {
		return endpoint.ErrStale
	}
	return nil
}

// round is the undecided items of a batch, gathered by kind.
type round struct {
	works       []*work
	creates     []*creation
	demands     []*demand
	beats       []*beat
	completions []*completion
	endings     []*ending
}

// gather sorts the items of each kind by the keys of the rows that they lock.
func gather(works []*work) *round {
	r := &round{}
	for _, w := range works {
		if w.auth.stale {
			continue
		}
		n := len(r.creates) + len(r.demands) + len(r.beats) + len(r.completions) + len(r.endings)
		for _, c := range w.creates {
			if !c.decided {
				r.creates = append(r.creates, c)
			}
		}
		if w.demand != nil && !w.demand.decided {
			r.demands = append(r.demands, w.demand)
		}
		for _, b := range w.beats {
			if !b.decided {
				r.beats = append(r.beats, b)
			}
		}
		for _, c := range w.completions {
			if !c.decided {
				r.completions = append(r.completions, c)
			}
		}
		for _, e := range w.endings {
			if !e.decided {
				r.endings = append(r.endings, e)
			}
		}
		if len(r.creates)+len(r.demands)+len(r.beats)+len(r.completions)+len(r.endings) > n {
			r.works = append(r.works, w)
		}
	}
	return r
}

func byRow(ownerA, idA, ownerB, idB uuid.UUID) int {
	if c := bytes.Compare(ownerA[:], ownerB[:]); c != 0 {
		return c
	}
	return bytes.Compare(idA[:], idB[:])
}

// execute carries out the works in one transaction. What a concurrent change left
// undecided is looked at again in another.
func (s *Store) execute(ctx context.Context, works []*work) ([]postgres.Result[struct{}], error) {
	results := make([]postgres.Result[struct{}], len(works))
	for try := 0; ; try++ {
		r := gather(works)
		if len(r.works) == 0 {
			break
		}
		committed, err := s.carryOut(ctx, r)
		if err == nil && try < 8 {
			continue
		}
		if err == nil {
			err = refusal.New(refusal.Unavailable, "this todo is being changed by too many at once; repeat the call")
		}
		// A key that another transaction has just created: now it can be found.
		if !committed && len(works) == 1 && try < 8 && postgres.Violates(err, "todo_key_once") {
			continue
		}
		if try == 0 && !committed {
			return nil, err
		}
		// Some are committed, so the batch must not be run again.
		for i, w := range works {
			if slices.Contains(r.works, w) {
				results[i].Err = unavailable(err)
			}
		}
		break
	}
	s.announce(works)
	return results, nil
}

// carryOut runs one transaction, a pipeline of all kinds' statements, and decides
// every item that it can. committed tells whether it took effect despite an error.
func (s *Store) carryOut(ctx context.Context, r *round) (committed bool, err error) {
	conn, err := s.writers.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("acquire a connection: %w", err)
	}
	defer conn.Release()

	b := &pgx.Batch{}
	r.lock(b)
	r.queueCreates(b)
	r.queueEndings(b)
	r.queueCompletions(b)
	r.queueBeats(b)
	r.queueDemands(b)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return false, fmt.Errorf("carry out a batch of todos: %w", err)
	}
	return true, s.explain(ctx, conn, r)
}

// lock queues the locks of all callers' rows: peers before homes, each in the
// order of their keys.
func (r *round) lock(b *pgx.Batch) {
	type row struct{ owner, id uuid.UUID }
	var peers, homes []row
	counted := false
	for _, w := range r.works {
		switch {
		case w.auth.endpoint == uuid.Nil:
		case w.auth.home:
			homes = append(homes, row{w.auth.owner, w.auth.endpoint})
		default:
			peers = append(peers, row{w.auth.owner, w.auth.endpoint})
			counted = counted || len(w.creates) > 0
		}
	}
	queue := func(rows []row, sql string) {
		if len(rows) == 0 {
			return
		}
		slices.SortFunc(rows, func(a, b row) int { return byRow(a.owner, a.id, b.owner, b.id) })
		rows = slices.Compact(rows)
		owners, ids := make([][16]byte, len(rows)), make([][16]byte, len(rows))
		for i, x := range rows {
			owners[i], ids[i] = x.owner, x.id
		}
		b.Queue(sql, owners, ids)
	}
	if counted {
		queue(peers, lockCounted)
	} else {
		queue(peers, lockShared)
	}
	queue(homes, lockShared)
}

// explain decides the items on which the statements did not act, as far as that
// can be told from what is committed now.
func (s *Store) explain(ctx context.Context, conn *pgxpool.Conn, r *round) error {
	if err := explainCreates(ctx, conn, r.creates); err != nil {
		return err
	}
	return explainHeld(ctx, conn, r)
}

// announce wakes those who wait for what has changed.
func (s *Store) announce(works []*work) {
	for _, w := range works {
		for _, c := range w.creates {
			if c.fresh && c.notBefore == nil {
				s.hub.ready(c.auth.owner, c.queue, 1)
			}
		}
		if d := w.demand; d != nil {
			for i := range d.taken {
				s.hub.changed(d.auth.owner, d.lines[i], d.taken[i].TodoID)
			}
			s.announceMoves(d.moves)
		}
		for _, b := range w.beats {
			if b.decided && b.err == nil && b.visible {
				s.hub.changed(b.auth.owner, b.line, b.id)
			}
		}
		for _, c := range w.completions {
			if c.acted {
				s.hub.changed(c.auth.owner, c.line, c.id)
			}
		}
		for _, e := range w.endings {
			if e.acted {
				s.announceMoves([]move{e.move})
			}
		}
	}
}

// move is a todo that changed its state.
type move struct {
	owner, id, line uuid.UUID
	queue           string
	state           State
	version         int64
	claimable       bool
}

// announceMoves wakes the waiting after moves have been committed.
func (s *Store) announceMoves(moves []move) {
	for _, m := range moves {
		s.hub.changed(m.owner, m.line, m.id)
		if m.state == Ready && m.claimable {
			s.hub.ready(m.owner, m.queue, 1)
		}
	}
}

var errUnexpected = errors.New("a statement returned an item that it was not given")
