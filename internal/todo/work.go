package todo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
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

	guest *work // of a call that waits for what is created here
}

// itemSize stands for the cost of an item beside its bytes.
const itemSize = 4 << 10

// few is up to how many items of a kind are carried out by a statement each: one
// statement for all costs more to start than it saves before that.
const few = 2

// verdict is how an item was decided.
type verdict struct {
	decided bool
	err     error
}

func (v *verdict) decide(err error) { v.decided, v.err = true, err }

// do carries out w in a batch and returns after the commit.
func (s *Store) do(ctx context.Context, w *work) error {
	_, err := s.batch.Do(ctx, w)
	return unavailable(err)
}

// round is the undecided items of a batch, gathered by kind.
type round struct {
	few         int
	single      bool // one item, whose statement holds its caller's lock
	works       []*work
	creates     []*creation
	demands     []*demand
	beats       []*beat
	completions []*completion
	endings     []*ending
}

func (r *round) items() int {
	return len(r.creates) + len(r.demands) + len(r.beats) + len(r.completions) + len(r.endings)
}

// gather collects the undecided items.
func gather(works []*work) *round {
	r := &round{few: few}
	for _, w := range works {
		r.add(w)
		if w.guest != nil {
			r.add(w.guest)
		}
	}
	return r
}

// add puts the undecided items of w in.
func (r *round) add(w *work) {
	n := r.items()
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
	if r.items() > n {
		r.works = append(r.works, w)
	}
}

func byRow(ownerA, idA, ownerB, idB uuid.UUID) int {
	if c := bytes.Compare(ownerA[:], ownerB[:]); c != 0 {
		return c
	}
	return bytes.Compare(idA[:], idB[:])
}

// tries bounds how often items are looked at again that concurrent changes leave
// undecided.
const tries = 8

// execute carries out the works in one transaction. What a concurrent change left
// undecided is looked at again in another.
func (s *Store) execute(ctx context.Context, works []*work) ([]postgres.Result[struct{}], error) {
	results := make([]postgres.Result[struct{}], len(works))
	fail := func(r *round, err error) {
		for i, w := range works {
			if slices.Contains(r.works, w) {
				results[i].Err = err
			}
		}
	}
	anything := false
	for try := 0; ; try++ {
		r := gather(works)
		if len(r.works) == 0 {
			break
		}
		if try == tries {
			fail(r, refusal.New(refusal.Unavailable, "this todo is being changed by too many at once; repeat the call"))
			break
		}
		committed, err := s.carryOut(ctx, r, try > 0)
		anything = anything || committed
		if err == nil {
			continue
		}
		if isStale(err) && len(works) == 1 {
			if g := works[0].guest; g != nil && !g.demand.decided {
				works[0].guest = nil // it may be the guest who is stale
				continue
			}
			fail(r, endpoint.ErrStale)
			break
		}
		// A key that another transaction has just created: now it can be found.
		if !anything && len(works) == 1 && postgres.Violates(err, "todo_key_once") {
			continue
		}
		if !anything {
			return nil, err // nothing took effect, or nobody knows
		}
		// Something is committed, so the batch must not be run again.
		fail(r, unavailable(err))
		break
	}
	s.announce(works)
	return results, nil
}

// carryOut runs one transaction, a pipeline of all kinds' statements, and decides
// every item that it can. A statement misses a row that changes between its snapshot
// and its lock; with lockFirst the rows are locked by a statement of their own, and
// nothing is missed. committed tells whether it took effect despite an error.
func (s *Store) carryOut(ctx context.Context, r *round, lockFirst bool) (committed bool, err error) {
	conn, err := s.writers.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("acquire a connection: %w", err)
	}
	defer conn.Release()
	// A context that can end costs a goroutine that watches it. A time set on the
	// connection bounds the wait as well, and a batch is not given up otherwise.
	ctx = context.WithoutCancel(ctx)
	wire := conn.Conn().PgConn().Conn()
	if err := wire.SetDeadline(time.Now().Add(transactionTime)); err != nil {
		return false, fmt.Errorf("bound the wait for the database: %w", err)
	}
	defer wire.SetDeadline(time.Time{}) //nolint:errcheck // a broken connection is not used again

	b := &script{}
	looks := s.lanes.begin(r)
	looks.known = s.known
	r.single = !lockFirst && r.alone()
	s.remember(r)
	r.lock(b)
	if lockFirst {
		r.lockHeld(b)
	}
	r.queueCreates(b, looks)
	r.queueEndings(b)
	r.queueCompletions(b)
	r.queueBeats(b)
	r.queueDemands(b, looks)
	err = b.run(ctx, conn)
	looks.end(err == nil)
	if err != nil {
		r.forget()
		return false, fmt.Errorf("carry out a batch of todos: %w", err)
	}
	if r.single && !r.acted() {
		return false, nil // the caller's authority was not looked at: once more, under its lock
	}
	return true, s.explain(ctx, conn, r)
}

// acted reports whether the statement of a single item did anything. A claim that
// found nothing is followed by a full look anyway.
func (r *round) acted() bool {
	switch {
	case len(r.creates) > 0:
		return r.creates[0].fresh
	case len(r.beats) > 0:
		return r.beats[0].acted
	case len(r.completions) > 0:
		return r.completions[0].acted
	}
	return true
}

// forget takes back what statements have returned, because their transaction did not
// commit: the items may be carried out again, and go otherwise then.
func (r *round) forget() {
	for _, c := range r.creates {
		c.fresh = false
	}
	for _, d := range r.demands {
		d.decided, d.taken, d.lines, d.moves = false, nil, nil, nil
	}
	for _, b := range r.beats {
		b.acted = false
	}
	for _, c := range r.completions {
		c.acted = false
	}
	for _, e := range r.endings {
		e.acted = false
	}
}

// explain decides the items on which the statements did not act, as far as that
// can be told from what is committed now.
func (s *Store) explain(ctx context.Context, conn *pgxpool.Conn, r *round) error {
	if err := explainCreates(ctx, conn, r.creates); err != nil {
		return err
	}
	return explainHeld(ctx, conn, r)
}

// remember keeps the contents of what is to be created: a guest may get it in this
// transaction, and others may claim it before its creator is told. What then is not
// created is forgotten, and not so much is kept at once that it pushes out the rest.
func (s *Store) remember(r *round) {
	bytes := 0
	for _, c := range r.creates {
		if bytes += len(c.body) + textSize(c.payload); bytes > contentBytes/8 {
			return
		}
		if !c.known {
			c.known = true
			s.known.add(c)
		}
	}
}

// announce wakes those who wait for what has changed.
func (s *Store) announce(works []*work) {
	for _, w := range works {
		s.announceOne(w)
		if w.guest != nil {
			s.announceOne(w.guest)
		}
	}
}

func (s *Store) announceOne(w *work) {
	changed := changes{h: s.hub}
	defer changed.tell()
	for _, c := range w.creates {
		switch {
		case c.known && !c.fresh:
			s.known.forget(c.id)
		case c.fresh && !c.known:
			s.known.add(c)
		}
		if !c.fresh || c.notBefore != nil {
			continue
		}
		if w.guest == nil || !w.guest.demand.took(c.id) {
			s.hub.ready(c.auth.owner, c.queue, 1)
		}
	}
	if d := w.demand; d != nil {
		for i := range d.taken {
			changed.add(d.lines[i], d.taken[i].TodoID)
		}
		s.announceMoves(d.moves)
	}
	for _, b := range w.beats {
		if b.acted && b.visible {
			changed.add(b.line, b.id)
		}
	}
	for _, c := range w.completions {
		if c.acted {
			changed.add(c.line, c.id)
		}
	}
	for _, e := range w.endings {
		if e.acted {
			s.announceMoves([]move{e.move})
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
		s.hub.changed(m.line, m.id)
		if m.state == Ready && m.claimable {
			s.lanes.reset(lane{m.owner, m.queue})
			s.hub.ready(m.owner, m.queue, 1)
		}
	}
}

var errUnexpected = errors.New("a statement returned an item that it was not given")
