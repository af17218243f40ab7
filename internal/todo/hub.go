package todo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// hub keeps the waiting calls of this process. A call registers, looks, and waits;
// whoever commits a change wakes those whom it may concern, here directly and in
// other processes by a hint under the topic of the queue or line; or a creation here
// takes a claiming call along as its guest (adr/0050). One poll a period
// serves all: it asks the database which of them have something to see.
//
// A todo that becomes ready wakes one claiming call and not all: thousands of idle
// workers would otherwise fight for one todo. Whoever claims something wakes the
// next, and one who was woken and leaves without looking passes the wake on.
type hub struct {
	s    *Store
	done chan struct{}

	mu      sync.Mutex
	lanes   map[lane]*waitingLane
	watches map[uuid.UUID]*watchedLine
	closed  bool
	ended   sync.WaitGroup
}

func (l lane) topic() string { return "todo.queue/" + l.owner.String() + "/" + l.queue }

func lineTopic(line uuid.UUID) string { return "todo.line/" + line.String() }

func ownerTopic(owner uuid.UUID) string { return "todo.owner/" + owner.String() }

// wakeAll, as a number of todos, wakes every waiting call.
const wakeAll = 1 << 30

// waitingLane are the claiming calls that wait for a queue, longest first.
type waitingLane struct {
	calls []*readyWait
	end   func() // of the subscription
}

// readyWait is a claiming call that waits.
type readyWait struct {
	h     *hub
	auth  authority
	lanes []lane
	woken chan struct{}
	found bool         // the call has claimed something
	ask   func() *work // what it wants; nil when it cannot be a guest

	// Guarded by h.mu.
	pending bool   // woken, and has not looked since
	idle    bool   // has looked, and waits
	guest   *guest // in a creation that is on its way
}

// watchedLine are the calls that wait for todos of one line.
type watchedLine struct {
	owner   uuid.UUID
	watches map[*watch]struct{}
	end     func()
}

// watch is a call that waits for a todo to change.
type watch struct {
	h       *hub
	auth    authority
	line    uuid.UUID
	id      uuid.UUID
	version int64 // seen last; guarded by h.mu
	woken   chan struct{}
}

func newHub(s *Store) *hub {
	h := &hub{s: s, done: make(chan struct{}), lanes: map[lane]*waitingLane{}, watches: map[uuid.UUID]*watchedLine{}}
	h.ended.Add(1)
	go func() {
		defer h.ended.Done()
		h.poll()
	}()
	return h
}

// close makes all waiting calls return and ends the hub's goroutines.
func (h *hub) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.done)
	}
	h.mu.Unlock()
	h.ended.Wait()
}

// subscribe calls f whenever there is a hint under the topic, until the returned
// function is called.
func (h *hub) subscribe(topic string, f func()) func() {
	hints, end := h.s.wake.Subscribe(topic)
	stop := make(chan struct{})
	h.ended.Add(1)
	go func() {
		defer h.ended.Done()
		defer end()
		for {
			select {
			case <-hints:
				f()
			case <-stop:
				return
			case <-h.done:
				return
			}
		}
	}()
	return func() { close(stop) }
}

// waitForReady registers a claiming call for the queues.
func (h *hub) waitForReady(auth authority, queues []string) *readyWait {
	w := &readyWait{h: h, auth: auth, woken: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range queues {
		l := lane{auth.owner, q}
		w.lanes = append(w.lanes, l)
		wl := h.lanes[l]
		if wl == nil {
			wl = &waitingLane{}
			if !h.closed {
				wl.end = h.subscribe(l.topic(), func() {
					h.s.lanes.reset(l)
					h.wakeReady(l, 1)
				})
			}
			h.lanes[l] = wl
		}
		wl.calls = append(wl.calls, w)
	}
	return w
}

// foundNothing notes that the call has looked and waits again.
func (w *readyWait) foundNothing() {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.pending, w.idle = false, true
}

// end takes the call out. What it may have been woken for is the next call's.
func (w *readyWait) end() {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	pass := w.found || w.pending
	for _, l := range w.lanes {
		wl := w.h.lanes[l]
		for i, c := range wl.calls {
			if c == w {
				wl.calls = append(wl.calls[:i], wl.calls[i+1:]...)
				break
			}
		}
		if len(wl.calls) == 0 {
			if wl.end != nil {
				wl.end()
			}
			delete(w.h.lanes, l)
			continue
		}
		if pass {
			wl.wake(1)
		}
	}
}

// wake wakes up to n calls that have not been woken yet.
func (wl *waitingLane) wake(n int) {
	for _, c := range wl.calls {
		if n <= 0 {
			return
		}
		if c.pending {
			continue
		}
		c.pending = true
		n--
		select {
		case c.woken <- struct{}{}:
		default:
		}
	}
}

func (h *hub) wakeReady(l lane, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if wl := h.lanes[l]; wl != nil {
		wl.wake(n)
	}
}

// ready tells that n todos of a queue have become ready.
func (h *hub) ready(owner uuid.UUID, queue string, n int) {
	l := lane{owner, queue}
	h.wakeReady(l, n)
	h.s.wake.NotifyOthers(l.topic())
}

// watch registers a call that waits for a todo of a line.
func (h *hub) watch(auth authority, line, id uuid.UUID) *watch {
	w := &watch{h: h, auth: auth, line: line, id: id, woken: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	wl := h.watches[line]
	if wl == nil {
		wl = &watchedLine{owner: auth.owner, watches: map[*watch]struct{}{}}
		if !h.closed {
			endLine := h.subscribe(lineTopic(line), func() { h.lookAt(line) })
			endOwner := h.subscribe(ownerTopic(auth.owner), func() { h.lookAt(line) })
			wl.end = func() { endLine(); endOwner() }
		}
		h.watches[line] = wl
	}
	wl.watches[w] = struct{}{}
	return w
}

// seen notes which version the call waits beyond.
func (w *watch) seen(version int64) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.version = version
}

func (w *watch) end() {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	wl := w.h.watches[w.line]
	delete(wl.watches, w)
	if len(wl.watches) == 0 {
		if wl.end != nil {
			wl.end()
		}
		delete(w.h.watches, w.line)
	}
}

func (w *watch) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// changed tells that todos of a line have changed.
func (h *hub) changed(line uuid.UUID, ids ...uuid.UUID) {
	h.mu.Lock()
	if wl := h.watches[line]; wl != nil {
		for w := range wl.watches {
			if slices.Contains(ids, w.id) {
				w.wake()
			}
		}
	}
	h.mu.Unlock()
	h.s.wake.NotifyOthers(lineTopic(line))
}

// changes gathers what has changed, so that a line with many is told of once.
type changes struct {
	h    *hub
	line uuid.UUID
	ids  []uuid.UUID
}

func (c *changes) add(line, id uuid.UUID) {
	if line != c.line {
		c.tell()
		c.line = line
	}
	c.ids = append(c.ids, id)
}

func (c *changes) tell() {
	if len(c.ids) > 0 {
		c.h.changed(c.line, c.ids...)
		c.ids = c.ids[:0]
	}
}

// touched tells that some todos of an owner have changed.
func (h *hub) touched(owner uuid.UUID) {
	h.mu.Lock()
	for l, wl := range h.lanes {
		if l.owner == owner {
			wl.wake(wakeAll)
		}
	}
	for _, wl := range h.watches {
		if wl.owner == owner {
			for w := range wl.watches {
				w.wake()
			}
		}
	}
	h.mu.Unlock()
	h.s.wake.NotifyOthers(ownerTopic(owner))
}

// poll looks after all waiting calls from time to time.
func (h *hub) poll() {
	t := time.NewTicker(h.s.o.PollEvery)
	defer t.Stop()
	for {
		select {
		case <-h.done:
			return
		case <-t.C:
		}
		h.pollReady()
		h.lookAt(uuid.Nil)
	}
}

// pollReady wakes one call of each queue that seems to have something to claim, and
// every claiming call whose authority no longer holds.
func (h *hub) pollReady() {
	h.mu.Lock()
	var owners [][16]byte
	var queues []string
	calls := map[*readyWait]struct{}{}
	for l, wl := range h.lanes {
		owners, queues = append(owners, l.owner), append(queues, l.queue)
		for _, c := range wl.calls {
			calls[c] = struct{}{}
		}
	}
	h.mu.Unlock()
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := h.s.pool.Query(ctx, `
		SELECT i.owner, i.queue FROM unnest($1::uuid[], $2::text[]) AS i(owner, queue)
		WHERE EXISTS (
			SELECT FROM (
				SELECT l.state, l.lease_expires_at FROM todo_live l
				WHERE l.owner = i.owner AND l.queue = i.queue AND l.claimable
				ORDER BY l.rank, l.vstart, l.id LIMIT 1000
			) l WHERE l.state = 'ready' OR l.lease_expires_at <= clock_timestamp()
		) OR EXISTS (
			SELECT FROM todo_timer m
			WHERE m.owner = i.owner AND m.what = 'due' AND m.queue = i.queue AND m.at <= (SELECT clock_timestamp())
		)`, owners, queues)
	if err == nil {
		var l lane
		_, err = pgx.ForEachRow(rows, []any{&l.owner, &l.queue}, func() error {
			h.wakeReady(l, 1)
			return nil
		})
	}
	if err != nil {
		h.s.log.WarnContext(ctx, "poll for ready todos", "error", err)
		return
	}
	auths := map[authority][]*readyWait{}
	for c := range calls {
		auths[c.auth] = append(auths[c.auth], c)
	}
	err = h.stale(ctx, auths, func(c *readyWait) {
		h.mu.Lock()
		defer h.mu.Unlock()
		select {
		case c.woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		h.s.log.WarnContext(ctx, "poll for waiting callers", "error", err)
	}
}

// stale calls f for each waiting call whose authority no longer holds.
func (h *hub) stale(ctx context.Context, auths map[authority][]*readyWait, f func(*readyWait)) error {
	var as authorities
	list := make([]authority, 0, len(auths))
	for a := range auths {
		as.add(&a)
		list = append(list, a)
	}
	rows, err := h.s.pool.Query(ctx, `
		SELECT i.ord FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[]) WITH ORDINALITY AS i(owner, endpoint, version, until, ord)
		WHERE (`+upheld+`) IS NOT TRUE`, as.owner, as.endpoint, as.version, as.until)
	if err != nil {
		return fmt.Errorf("look for stale callers: %w", err)
	}
	var ord int
	_, err = pgx.ForEachRow(rows, []any{&ord}, func() error {
		for _, c := range auths[list[ord-1]] {
			f(c)
		}
		return nil
	})
	return err
}

// lookAt wakes those who wait for todos of the line (of any, for uuid.Nil) that have
// another version than they saw, or who are no longer whom they said.
func (h *hub) lookAt(line uuid.UUID) {
	h.mu.Lock()
	var list []*watch
	var as authorities
	var ids [][16]byte
	var versions []int64
	add := func(wl *watchedLine) {
		for w := range wl.watches {
			list = append(list, w)
			as.add(&w.auth)
			ids, versions = append(ids, w.id), append(versions, w.version)
		}
	}
	if line == uuid.Nil {
		for _, wl := range h.watches {
			add(wl)
		}
	} else if wl := h.watches[line]; wl != nil {
		add(wl)
	}
	h.mu.Unlock()
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := h.s.pool.Query(ctx, `
		SELECT i.ord
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::uuid[], $6::bigint[])
			WITH ORDINALITY AS i(owner, endpoint, version, until, id, seen, ord)
		WHERE (`+upheld+`) IS NOT TRUE
			OR (SELECT l.version FROM todo_live l WHERE l.owner = i.owner AND l.id = i.id LIMIT 1) IS DISTINCT FROM i.seen`,
		as.owner, as.endpoint, as.version, as.until, ids, versions)
	if err == nil {
		var ord int
		_, err = pgx.ForEachRow(rows, []any{&ord}, func() error {
			list[ord-1].wake()
			return nil
		})
	}
	if err != nil {
		h.s.log.WarnContext(ctx, "look after waiting calls", "error", err)
	}
}
