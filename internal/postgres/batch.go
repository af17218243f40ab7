package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"switchboard/internal/refusal"
)

// Result is the outcome of one item of a batch. Err of one item does not touch
// the others: it is a refusal that the statement found, not a failed statement.
type Result[O any] struct {
	Value O
	Err   error
}

// BatchOptions bounds a [Batcher]. The zero value is usable.
type BatchOptions[I any] struct {
	// Workers is how many gathered batches may be on their way at once; default 2.
	Workers int
	// Spread is how much must be waiting, in Size, for another batch than the first to
	// start; until then calls are better gathered. Default 0: at once.
	Spread int
	// Direct is how many calls may be on their way, each alone on its caller's
	// goroutine, before gathering begins: alone, a batch only costs. Default 4.
	Direct int
	// MaxItems bounds a batch; default 128.
	MaxItems int
	// MaxBytes bounds the sum of Size over a batch, which holds one item at least;
	// default 4 MiB. It counts only with Size.
	MaxBytes int
	Size     func(I) int
	// Owner names whose item it is. Owners take turns within a batch, each with
	// MaxPerOwner items at most (default MaxItems), so that one with thousands of
	// calls waiting does not delay another with one.
	Owner       func(I) string
	MaxPerOwner int
	// MaxWaiting bounds the items waiting; more are refused as unavailable. Default 16384.
	MaxWaiting int
	// Retries is how often an item alone is run again after a deadlock or a
	// serialization failure; default 5.
	Retries int
}

// Batcher gathers concurrent calls of one kind into one execution while the
// previous one is on its way (group commit). There is no timer: when nothing is
// on its way, a call is executed at once on its caller's goroutine.
//
// Executions are detached from their callers' contexts: a caller that gives up
// waiting does not undo what others ride on, and its own item may take effect.
type Batcher[I, O any] struct {
	exec func(context.Context, []I) ([]Result[O], error)
	o    BatchOptions[I]

	mu       sync.Mutex
	waiting  queue[I, O]
	running  int // executions on their way
	inFlight int // items in them
	last     int // items in the execution that ended last
	closed   bool
	idle     chan struct{} // closed when closed and nothing runs or waits

	base   context.Context // ends when Close gives up waiting
	cancel context.CancelFunc

	batches, items, reruns atomic.Int64
}

// call is one item that waits for a batch.
type call[I, O any] struct {
	ctx   context.Context
	item  I
	owner string
	size  int
	done  chan Result[O]
	state atomic.Int32
}

// States of a call: whoever moves it away from waiting decides what becomes of it.
const (
	callWaiting int32 = iota
	callTaken
	callAbandoned
)

// NewBatcher returns a batcher over exec, which carries out the items in one
// transaction and returns their outcomes in order once it has committed. An
// error of exec says that the batch as a whole failed; when it proves that
// nothing took effect ([RolledBack]), the items are run again one by one, so
// that only the one at fault fails.
func NewBatcher[I, O any](exec func(context.Context, []I) ([]Result[O], error), o BatchOptions[I]) *Batcher[I, O] {
	for _, d := range []struct {
		field *int
		value int
	}{{&o.Workers, 2}, {&o.Direct, 4}, {&o.MaxItems, 128}, {&o.MaxBytes, 4 << 20}, {&o.MaxWaiting, 16384}, {&o.Retries, 5}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.MaxPerOwner <= 0 {
		o.MaxPerOwner = o.MaxItems
	}
	b := &Batcher[I, O]{exec: exec, o: o, idle: make(chan struct{})}
	b.base, b.cancel = context.WithCancel(context.Background())
	return b
}

// Do carries out item, alone or in a batch, and returns its outcome after the
// commit. If ctx ends while the item waits for its batch, the item is withdrawn;
// if it ends while the batch is on its way, Do returns at once and the outcome
// is unknown. A call that is executed on this goroutine is not interrupted.
func (b *Batcher[I, O]) Do(ctx context.Context, item I) (O, error) {
	var none O
	if err := ctx.Err(); err != nil {
		return none, err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return none, refusal.New(refusal.Unavailable, "this server is stopping")
	}
	if b.waiting.length == 0 && b.last <= b.o.Direct && (b.inFlight < b.o.Direct || b.mayStart()) {
		b.running++
		b.inFlight++
		b.mu.Unlock()
		r := b.direct(ctx, item)
		return r.Value, r.Err
	}
	if b.waiting.length >= b.o.MaxWaiting {
		b.mu.Unlock()
		return none, refusal.New(refusal.Unavailable, "too many calls are waiting").After(time.Second)
	}
	c := b.newCall(ctx, item)
	b.waiting.add(c)
	if b.mayStart() {
		b.running++
		go b.gather()
	}
	b.mu.Unlock()

	select {
	case r := <-c.done:
		return r.Value, r.Err
	case <-ctx.Done():
	}
	c.state.CompareAndSwap(callWaiting, callAbandoned)
	return none, ctx.Err()
}

// Stats tells how many executions there were, how many items they carried, and
// how many items were run again.
func (b *Batcher[I, O]) Stats() (batches, items, reruns int64) {
	return b.batches.Load(), b.items.Load(), b.reruns.Load()
}

// Waiting returns how many items wait for a batch.
func (b *Batcher[I, O]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting.length
}

// Close refuses new calls and waits for those admitted. When ctx ends first,
// what is still on its way is cancelled, and Close returns ctx's error.
func (b *Batcher[I, O]) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		b.settle()
	}
	b.mu.Unlock()
	defer b.cancel()
	select {
	case <-b.idle:
		return nil
	case <-ctx.Done():
		b.cancel()
		<-b.idle
		return fmt.Errorf("drain the batches: %w", ctx.Err())
	}
}

func (b *Batcher[I, O]) newCall(ctx context.Context, item I) *call[I, O] {
	c := &call[I, O]{ctx: ctx, item: item, done: make(chan Result[O], 1)}
	if b.o.Owner != nil {
		c.owner = b.o.Owner(item)
	}
	if b.o.Size != nil {
		c.size = b.o.Size(item)
	}
	return c
}

// direct runs one item on the caller's goroutine, and afterwards sees to those
// that came meanwhile.
func (b *Batcher[I, O]) direct(ctx context.Context, item I) Result[O] {
	r := b.alone(b.detach(ctx), item)
	b.mu.Lock()
	alone := b.waiting.length == 0
	if alone {
		b.leave(1)
	}
	b.mu.Unlock()
	if !alone {
		// This call's own goroutine may soon be back with the next one.
		go func() {
			b.linger()
			if batch := b.next(1); batch != nil {
				b.work(batch)
			}
		}()
	}
	return r
}

// detached has the values of a caller's context (its trace) and ends with the batcher.
type detached struct {
	context.Context
	values context.Context
}

func (d detached) Value(key any) any { return d.values.Value(key) }

func (b *Batcher[I, O]) detach(ctx context.Context) context.Context { return detached{b.base, ctx} }

// gather runs what there is once those have come who are on their way.
func (b *Batcher[I, O]) gather() {
	b.linger()
	if batch := b.next(0); batch != nil {
		b.work(batch)
	}
}

// enough is how many calls are worth an execution at once. With fewer, the fixed cost
// of a transaction is more than what waiting for the next ones costs.
const enough = 32

// linger lets those come who are on their way. A batch that has just ended sets all
// its callers going at once; without this the first of them would be executed alone
// and the others would wait for it. There is no timer here either: it lets every
// goroutine run that can, as long as that brings calls.
func (b *Batcher[I, O]) linger() {
	for before := -1; ; {
		b.mu.Lock()
		n := b.waiting.length
		b.mu.Unlock()
		if n == before || n >= enough {
			return
		}
		before = n
		runtime.Gosched()
	}
}

// work runs batch after batch as long as one may follow.
func (b *Batcher[I, O]) work(batch []*call[I, O]) {
	for batch != nil {
		b.run(batch)
		b.linger()
		batch = b.next(len(batch))
	}
}

// next counts an execution of n items out and, if another may start now, counts
// it in and returns its calls.
func (b *Batcher[I, O]) next(n int) []*call[I, O] {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(n)
	defer b.settle()
	if !b.mayStart() && b.inFlight >= b.o.Direct {
		return nil // who is on the way takes what waits
	}
	batch := b.waiting.take(b.o.MaxItems, b.o.MaxPerOwner, b.o.MaxBytes)
	if len(batch) == 0 {
		return nil
	}
	b.running++
	b.inFlight += len(batch)
	return batch
}

// mayStart reports whether a batch may start now. b.mu is held.
func (b *Batcher[I, O]) mayStart() bool {
	return b.running == 0 || b.running < b.o.Workers && b.waiting.size >= b.o.Spread
}

// leave counts an execution of n items out. b.mu is held.
func (b *Batcher[I, O]) leave(n int) {
	b.running--
	b.inFlight -= n
	if n > 0 {
		b.last = n
	}
	b.settle()
}

// settle tells Close when the last execution has ended. b.mu is held.
func (b *Batcher[I, O]) settle() {
	if !b.closed || b.running > 0 || b.waiting.length > 0 {
		return
	}
	select {
	case <-b.idle:
	default:
		close(b.idle)
	}
}

// run executes a batch and tells every caller.
func (b *Batcher[I, O]) run(batch []*call[I, O]) {
	if len(batch) == 1 {
		batch[0].done <- b.alone(b.detach(batch[0].ctx), batch[0].item)
		return
	}
	items := make([]I, len(batch))
	for i, c := range batch {
		items[i] = c.item
	}
	results, err := b.execute(b.base, items)
	switch {
	case err == nil:
		for i, c := range batch {
			c.done <- results[i]
		}
	case RolledBack(err):
		for _, c := range batch {
			b.reruns.Add(1)
			c.done <- b.alone(b.detach(c.ctx), c.item)
		}
	default:
		// The outcome is unknown, so nothing may be run a second time.
		for _, c := range batch {
			c.done <- Result[O]{Err: err}
		}
	}
}

// alone runs one item, several times if it collides with others.
func (b *Batcher[I, O]) alone(ctx context.Context, item I) Result[O] {
	for attempt := 0; ; attempt++ {
		results, err := b.execute(ctx, []I{item})
		if err == nil {
			return results[0]
		}
		if !Retryable(err) || attempt >= b.o.Retries {
			return Result[O]{Err: err}
		}
		b.reruns.Add(1)
		// Two that deadlocked once would again if they kept step.
		backoff := time.Duration(1+rand.IntN(4<<attempt)) * time.Millisecond //nolint:gosec // no secret
		if pauseErr := pause(ctx, backoff); pauseErr != nil {
			return Result[O]{Err: err}
		}
	}
}

// execute calls exec and makes sure that there is an outcome for every item,
// also when exec panics: nobody may be left waiting.
func (b *Batcher[I, O]) execute(ctx context.Context, items []I) (results []Result[O], err error) {
	b.batches.Add(1)
	b.items.Add(int64(len(items)))
	defer func() {
		if p := recover(); p != nil {
			results, err = nil, fmt.Errorf("batch of %d panicked: %v\n%s", len(items), p, debug.Stack())
		}
	}()
	results, err = b.exec(ctx, items)
	if err == nil && len(results) != len(items) {
		return nil, fmt.Errorf("batch of %d items has %d outcomes", len(items), len(results))
	}
	return results, err
}
