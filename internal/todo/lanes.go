package todo

import (
	"bytes"
	"sync"
	"time"

	"github.com/google/uuid"
)

// lane is a queue of an owner.
type lane struct {
	owner uuid.UUID
	queue string
}

// place is a position in the order in which a lane's todos are claimed.
type place struct {
	rank   int16
	vstart int64
	id     uuid.UUID
}

// front comes before every place.
var front = place{}

func (p place) before(q place) bool {
	if p.rank != q.rank {
		return p.rank < q.rank
	}
	if p.vstart != q.vstart {
		return p.vstart < q.vstart
	}
	return bytes.Compare(p.id[:], q.id[:]) < 0
}

// markLife is how long a mark is believed, unless looks from the front take so long
// that they may be only one part in markShare of all time. What another process makes
// ready before it is claimed too late by this at most; where a call waits here for the
// queue, the other's hint takes the mark away.
const (
	markLife    = time.Second
	longestLife = 10 * time.Second
	markShare   = 50
)

// lanes remembers, of each queue, before which place nothing is ready, so that a
// look need not pass those that are leased, nor what is dead in the index while
// somebody holds an old snapshot. It is a hint: a claim that finds nothing looks
// again from the front.
//
// It also remembers what start-time fair queuing needs and what no table keeps when
// todos have ended: the virtual start that was claimed last in each class (its
// virtual time), and where each line comes next in it. A process that does not know
// goes by what is open; claims from the same queue bring processes together again.
type lanes struct {
	mu     sync.Mutex
	marks  map[lane]*mark
	served map[class]int64
	next   map[share]int64
}

// class is the todos of one rank in a lane.
type class struct {
	lane lane
	rank int16
}

// share is what a line has in a class.
type share struct {
	class class
	line  uuid.UUID
}

type mark struct {
	at    place
	since time.Time
	life  time.Duration
	cost  time.Duration      // of the last look from the front
	moves int                // looks that took something, and times that something was made ready
	quiet bool               // a full look found nothing, and nothing was made ready since
	looks map[*look]struct{} // on their way
}

// look is a transaction that claims from a lane.
type look struct {
	from  place
	last  place // taken, front when nothing
	low   place // the first that became ready meanwhile
	found bool  // low is set
	moves int   // of the mark when it began
	full  bool  // what is due and what has lapsed was looked at first
	fresh bool  // begins at the front because the mark had its time
	other bool  // others took something, or made something ready, meanwhile
}

// looks are those of a round.
type looks struct {
	l       *lanes
	known   *contents
	began   time.Time
	demands []*demand
	byKey   map[lane]*look
	made    []madeReady
	served  map[class]int64
	next    map[share]int64 // reserved included
	nextOf  map[share]int64 // of what was created
}

type madeReady struct {
	lane lane
	at   place
}

// maxLanes bounds the memory; what is forgotten is looked for.
const maxLanes = 10_000

func newLanes() *lanes {
	return &lanes{marks: map[lane]*mark{}, served: map[class]int64{}, next: map[share]int64{}}
}

// begin notes that the round's claims start to look.
func (l *lanes) begin(r *round) *looks {
	k := &looks{l: l, began: time.Now(), demands: r.demands}
	if len(r.demands) == 0 && len(r.creates) == 0 {
		return k
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.byKey = make(map[lane]*look, len(r.demands))
	k.served, k.next, k.nextOf = map[class]int64{}, map[share]int64{}, map[share]int64{}
	for _, d := range r.demands {
		if d.id != uuid.Nil {
			continue
		}
		for _, q := range d.queues {
			n := lane{d.auth.owner, q}
			x := k.byKey[n]
			if x == nil {
				m, fresh := l.mark(n, k.began)
				x = &look{from: m.at, moves: m.moves, fresh: fresh}
				m.looks[x] = struct{}{}
				k.byKey[n] = x
			}
			if d.full {
				x.from, x.full = front, true
			}
		}
	}
	for _, c := range r.creates {
		sh := c.share()
		if v, ok := l.served[sh.class]; ok {
			k.served[sh.class] = v
		}
		k.next[sh] = l.next[sh]
	}
	return k
}

// mark returns a lane's mark as far as it is believed still, and whether it has just
// had its time. l.mu is held.
func (l *lanes) mark(n lane, now time.Time) (m *mark, fresh bool) {
	m = l.marks[n]
	if m == nil {
		if len(l.marks) >= maxLanes {
			for old, x := range l.marks {
				if len(x.looks) == 0 {
					delete(l.marks, old)
				}
			}
		}
		m = &mark{since: now, life: markLife, looks: map[*look]struct{}{}}
		l.marks[n] = m
	}
	if now.Sub(m.since) > m.life {
		m.at, m.since, fresh = front, now, true
	}
	return m, fresh
}

// from is where the round's claims of a lane begin.
func (k *looks) from(n lane) place {
	if x := k.byKey[n]; x != nil {
		return x.from
	}
	return front
}

// start is what is known of where a todo comes in its class: the least virtual start
// that it may have, the line's next, and whether the class's virtual time is known.
func (k *looks) start(sh share) (least, next int64, known bool) {
	next = k.next[sh]
	served, known := k.served[sh.class]
	return max(next, served), next, known
}

// reserve notes that the line's next todo in a class starts no earlier, though it is
// not known yet whether the one before it is created.
func (k *looks) reserve(sh share, next int64) { k.next[sh] = max(k.next[sh], next) }

// took notes that a claim of the round has taken a todo.
func (k *looks) took(n lane, p place) {
	if x := k.byKey[n]; x != nil && x.last.before(p) {
		x.last = p
	}
	c := class{n, p.rank}
	if v, ok := k.served[c]; !ok || p.vstart > v {
		k.served[c] = p.vstart
	}
}

// created notes that the round has created a todo.
func (k *looks) created(c *creation, vstart int64) {
	k.made = append(k.made, madeReady{lane{c.auth.owner, c.queue}, place{c.rank(), vstart, c.id}})
	sh := c.share()
	k.nextOf[sh] = max(k.nextOf[sh], vstart+1)
}

// end draws the marks, once the transaction has committed.
func (k *looks) end(committed bool) {
	if len(k.byKey) == 0 && len(k.made) == 0 {
		return
	}
	l := k.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, x := range k.byKey {
		m := l.marks[n]
		delete(m.looks, x)
		x.other = m.moves != x.moves || len(m.looks) > 0
		if !committed {
			continue
		}
		if x.fresh {
			// Of two, since one may have waited for a lock or the disk.
			cost := time.Since(k.began)
			m.life = min(max(markLife, markShare*min(cost, m.cost)), longestLife)
			m.cost = cost
		}
		if x.last == front {
			m.quiet = m.quiet || x.full && !x.other
			continue
		}
		m.moves++
		m.quiet = false
		at := x.last
		if x.found && x.low.before(at) {
			at = x.low
		}
		// Only on from where the look began: others may have drawn it back since.
		if !m.at.before(x.from) && m.at.before(at) {
			m.at = at
		}
	}
	if !committed {
		return
	}
	k.tell()
	for _, r := range k.made {
		l.drawBack(r.lane, r.at)
	}
	if len(l.served) >= maxLanes {
		clear(l.served)
	}
	for c, v := range k.served {
		if old, ok := l.served[c]; !ok || v > old {
			l.served[c] = v
		}
	}
	if len(l.next) >= maxLanes {
		clear(l.next)
	}
	for sh, v := range k.nextOf {
		l.next[sh] = max(l.next[sh], v)
	}
}

// tell notes of each demand whether what it wants may have been there unseen: of two
// looks at once, one may take what the other was to have, and leave what only it sees.
func (k *looks) tell() {
	for _, d := range k.demands {
		d.crowded = false
		for _, q := range d.queues {
			if x := k.byKey[lane{d.auth.owner, q}]; x != nil && x.other {
				d.crowded = true
			}
		}
	}
}

// quiet reports whether there was nothing in the queues when they were looked at last.
func (l *lanes) quiet(owner uuid.UUID, queues []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range queues {
		if m := l.marks[lane{owner, q}]; m == nil || !m.quiet {
			return false
		}
	}
	return true
}

// drawBack makes sure that looks find what is ready at p. l.mu is held.
func (l *lanes) drawBack(n lane, p place) {
	m := l.marks[n]
	if m == nil {
		return
	}
	if p.before(m.at) {
		m.at = p
	}
	m.moves++
	m.quiet = false
	for x := range m.looks {
		if !x.found || p.before(x.low) {
			x.found, x.low = true, p
		}
	}
}

// reset forgets a lane's mark: something became ready somewhere in it.
func (l *lanes) reset(n lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drawBack(n, front)
}

// atLeast notes that a line's next todo in a class starts no earlier.
func (l *lanes) atLeast(sh share, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next[sh] = max(l.next[sh], next)
}
