package postgres

// queue holds the calls that wait, first come first served within an owner, and
// owners in turn. It is guarded by the batcher's mutex.
type queue[I, O any] struct {
	turns  []*lane[I, O]          // owners with calls waiting, whose turn is next first
	lanes  map[string]*lane[I, O] // the same by name
	length int
	size   int // of all calls
}

// lane is the queue of one owner.
type lane[I, O any] struct {
	owner string
	calls []*call[I, O]
	taken int // into the batch that is being gathered
}

func (q *queue[I, O]) add(c *call[I, O]) {
	if q.lanes == nil {
		q.lanes = map[string]*lane[I, O]{}
	}
	l := q.lanes[c.owner]
	if l == nil {
		l = &lane[I, O]{owner: c.owner}
		q.lanes[c.owner] = l
		q.turns = append(q.turns, l)
	}
	l.calls = append(l.calls, c)
	q.length++
	q.size += c.size
}

// take gathers a batch: one call from each owner in turn until a bound is
// reached. Calls whose callers have given up are dropped on the way.
func (q *queue[I, O]) take(maxItems, maxPerOwner, maxBytes int) []*call[I, O] {
	var batch []*call[I, O]
	bytes := 0
	var resting []*lane[I, O] // have had their share of this batch
	for len(q.turns) > 0 && len(batch) < maxItems {
		l := q.turns[0]
		c := l.calls[0]
		if c.state.Load() == callAbandoned {
			q.shift(l)
			continue
		}
		if len(batch) > 0 && bytes+c.size > maxBytes {
			break
		}
		if !c.state.CompareAndSwap(callWaiting, callTaken) {
			continue // abandoned just now; dropped in the next round
		}
		batch = append(batch, c)
		bytes += c.size
		l.taken++
		full := l.taken >= maxPerOwner
		q.turns = q.turns[1:]
		l.calls[0] = nil
		l.calls = l.calls[1:]
		q.length--
		q.size -= c.size
		switch {
		case len(l.calls) == 0:
			delete(q.lanes, l.owner)
		case full:
			resting = append(resting, l)
		default:
			q.turns = append(q.turns, l)
		}
	}
	for _, l := range q.turns {
		l.taken = 0
	}
	for _, l := range resting {
		l.taken = 0
	}
	q.turns = append(q.turns, resting...)
	return batch
}

// shift drops the first call of the lane whose turn it is.
func (q *queue[I, O]) shift(l *lane[I, O]) {
	q.size -= l.calls[0].size
	l.calls[0] = nil
	l.calls = l.calls[1:]
	q.length--
	if len(l.calls) == 0 {
		delete(q.lanes, l.owner)
		q.turns = q.turns[1:]
	}
}
