package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// outbox collects the topics to send and sees to it that each goes out at most
// once per interval: at once when it has been quiet, else when the interval is
// over, however many changes there were meanwhile.
type outbox struct {
	interval time.Duration
	signal   chan struct{} // holds one token when there may be something to do

	mu      sync.Mutex
	ready   []topicHash
	cooling []cooling // sent topics, the earliest first
	state   map[topicHash]topicState
	ping    bool
}

type topicState uint8

const (
	topicReady   topicState = iota + 1 // in ready
	topicCooling                       // sent less than an interval ago
	topicAgain                         // the same, and changed since
)

type cooling struct {
	topic topicHash
	until time.Time
}

func newOutbox(interval time.Duration) *outbox {
	return &outbox{interval: interval, signal: make(chan struct{}, 1), state: map[topicHash]topicState{}}
}

// put notes a change of topic.
func (o *outbox) put(t topicHash) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.state[t] {
	case topicReady, topicAgain:
	case topicCooling:
		o.state[t] = topicAgain
	default:
		o.state[t] = topicReady
		o.ready = append(o.ready, t)
		o.ring()
	}
}

// putPing asks for a notification to ourselves.
func (o *outbox) putPing() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ping = true
	o.ring()
}

func (o *outbox) ring() {
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// take returns up to n topics that may go out now, whether a ping is due, and
// how long until there may be more (zero: not before the signal).
func (o *outbox) take(now time.Time, n int) (topics []topicHash, ping bool, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.cooling) > 0 && !o.cooling[0].until.After(now) {
		t := o.cooling[0].topic
		o.cooling = o.cooling[1:]
		if o.state[t] == topicAgain {
			o.state[t] = topicReady
			o.ready = append(o.ready, t)
		} else {
			delete(o.state, t)
		}
	}
	n = min(n, len(o.ready))
	topics = append(topics, o.ready[:n]...)
	o.ready = o.ready[n:]
	for _, t := range topics {
		o.state[t] = topicCooling
		o.cooling = append(o.cooling, cooling{topic: t, until: now.Add(o.interval)})
	}
	ping, o.ping = o.ping, false
	switch {
	case len(o.ready) > 0:
		wait = time.Nanosecond
	case len(o.cooling) > 0:
		wait = max(o.cooling[0].until.Sub(now), time.Nanosecond)
	}
	return topics, ping, wait
}

// Sending takes a fifth of the time at most, so that a busy system pays little for its
// hints. What changes meanwhile goes out together. A system that is not busy has them
// at once, also after a sending that took long: up to sendAhead is not yet counted.
const (
	sendShare = 5
	sendAhead = 5 * time.Millisecond
	sendRest  = 10 * time.Millisecond // at most
)

// pacer is how much time sending has taken beyond its share.
type pacer struct {
	over time.Duration
	at   time.Time
}

// took notes a sending from begin to end.
func (p *pacer) took(begin, end time.Time) {
	p.rest(begin)
	p.over += end.Sub(begin)
	p.at = end
}

// rest is how long to leave sending alone now.
func (p *pacer) rest(now time.Time) time.Duration {
	p.over = max(0, p.over-now.Sub(p.at)/(sendShare-1))
	p.at = now
	return min((sendShare-1)*(p.over-sendAhead), sendRest)
}

// send carries the outbox to the database until ctx ends.
func (w *Wake) send(ctx context.Context) {
	var conn *pgx.Conn
	defer func() { closeConn(conn) }()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	failures := 0
	var pace pacer
	for {
		if d := pace.rest(time.Now()); d > 0 && pause(ctx, d) != nil {
			return
		}
		topics, ping, wait := w.out.take(time.Now(), maxTopics)
		if len(topics) > 0 || ping {
			var err error
			begin := time.Now()
			conn, err = w.deliver(ctx, conn, topics)
			pace.took(begin, time.Now())
			if err == nil {
				failures = 0
				continue
			}
			if ctx.Err() != nil {
				return
			}
			// Hints that cannot be sent are kept: they coalesce, so they stay few.
			for _, t := range topics {
				w.out.put(t)
			}
			failures++
			w.o.Logger.WarnContext(ctx, "send wake-ups", "error", err, "failures", failures)
			if pause(ctx, backoff(failures)) != nil {
				return
			}
			continue
		}
		if wait <= 0 {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-w.out.signal:
		case <-timer.C:
		}
	}
}

// deliver sends one notification, connecting first when there is no connection,
// and returns the connection to use the next time.
func (w *Wake) deliver(ctx context.Context, conn *pgx.Conn, topics []topicHash) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.o.PingEvery)
	defer cancel()
	if conn == nil {
		var err error
		// Unnamed statements work through transaction pooling as well.
		conn, err = connect(ctx, w.url, Options{ApplicationName: "switchboard-notify", TransactionPooling: true})
		if err != nil {
			return nil, err
		}
	}
	// Losing a hint in a crash is no loss, so its commit need not wait for the disk.
	_, err := conn.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`,
		wakeChannel, encodePayload(w.name, topics))
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// closeConn says goodbye without waiting for a server that may be gone.
func closeConn(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// backoff grows from 50 ms to 5 s.
func backoff(failures int) time.Duration {
	return min(50*time.Millisecond<<min(failures-1, 7), 5*time.Second)
}
