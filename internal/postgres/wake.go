package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// wakeChannel is the one channel on which all replicas listen.
const wakeChannel = "switchboard_wake"

// WakeOptions adjusts a [Wake]; the zero value is usable.
type WakeOptions struct {
	// Interval is the shortest time between two notifications of one topic to
	// other processes; default 2 ms. The first goes out at once.
	Interval time.Duration
	// PingEvery is how often the path is tried by a notification to ourselves,
	// which must be back within the same time; default 5 s.
	PingEvery time.Duration
	Logger    *slog.Logger
}

// Wake carries hints that something changed, within this process and between
// processes on one database. A hint may be late, doubled or lost: a waiter looks
// for itself when it is woken, and from time to time when it is not.
//
// Other processes are told through NOTIFY on a connection of its own, because
// NOTIFY in a transaction takes a lock that orders all commits. When LISTEN does
// not work, as behind transaction pooling, only the hints of this process
// arrive, and [Wake.Listening] says so.
type Wake struct {
	url  string
	o    WakeOptions
	name string // of this process within payloads

	mu     sync.Mutex
	topics map[topicHash]map[*subscription]struct{}

	watched  watchers
	watching atomic.Int64 // topics in watched

	out       *outbox
	listening atomic.Bool
	heard     atomic.Int64 // when another process was heard last, as nanoseconds of Unix time
	pongs     chan struct{}

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// topicHash is what goes over the wire for a topic: short, and telling nobody
// with a look at the channel what it is about.
type topicHash [8]byte

func hashTopic(topic string) topicHash {
	sum := sha256.Sum256([]byte(topic))
	return topicHash(sum[:8])
}

type subscription struct {
	woken chan struct{}
}

// NewWake starts the goroutines that send and listen at url, which should be a
// direct one. They survive the loss of their connections and end with
// [Wake.Close].
func NewWake(url string, o WakeOptions) *Wake {
	if o.Interval <= 0 {
		o.Interval = 2 * time.Millisecond
	}
	if o.PingEvery <= 0 {
		o.PingEvery = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Wake{
		url:    url,
		o:      o,
		name:   rand.Text()[:nameLength],
		topics: map[topicHash]map[*subscription]struct{}{},
		out:    newOutbox(o.Interval),
		pongs:  make(chan struct{}, 1),
		cancel: cancel,
	}
	w.ended.Add(2)
	go func() { defer w.ended.Done(); w.send(ctx) }()
	go func() { defer w.ended.Done(); w.listen(ctx) }()
	return w
}

// Close ends the goroutines and waits for them. Subscriptions fall silent.
func (w *Wake) Close() {
	w.cancel()
	w.ended.Wait()
}

// Listening reports whether hints of other processes arrive. Who polls as a
// fallback may do so more often while they do not.
func (w *Wake) Listening() bool { return w.listening.Load() }

// Subscribe returns a channel that holds one token after something has changed
// under topic. Tokens do not add up. Subscribe first, then look, then wait:
// otherwise a change between look and subscription is missed. The function ends
// the subscription; the channel is not closed.
func (w *Wake) Subscribe(topic string) (<-chan struct{}, func()) {
	s := &subscription{woken: make(chan struct{}, 1)}
	hashes := []topicHash{hashTopic(topic)}
	w.mu.Lock()
	add(w.topics, s, hashes)
	w.mu.Unlock()
	return s.woken, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		remove(w.topics, s, hashes)
	}
}

// Notify wakes the subscribers of topic, those of this process before it
// returns. Call it after the commit. It never blocks on the database.
func (w *Wake) Notify(topic string) {
	h := hashTopic(topic)
	w.wakeLocal(h)
	w.put(h)
}

// NotifyOthers is Notify for who has told this process already. Those who
// [Wake.Watch] are woken here all the same.
func (w *Wake) NotifyOthers(topic string) {
	h := hashTopic(topic)
	w.wakeWatchers(h)
	w.put(h)
}

// put sends a topic to other processes, if there may be any.
func (w *Wake) put(h topicHash) {
	if !w.alone() {
		w.out.put(h)
	}
}

// After so many periods, and so long, without a ping of another process we take it
// that there is none.
const (
	quietPings = 3
	quietTime  = 3 * time.Second
)

// alone reports whether nobody else is there to be told. Every process pings through
// the channel, and a new one as soon as it listens, so one that listens knows of the
// others. A single process then pays nothing for hints.
func (w *Wake) alone() bool {
	return w.listening.Load() && time.Since(time.Unix(0, w.heard.Load())) > max(quietPings*w.o.PingEvery, quietTime)
}

func (w *Wake) wakeLocal(h topicHash) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.topics[h] {
		s.wake()
	}
}

// wakeAll is for when hints may have been missed.
func (w *Wake) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, set := range w.topics {
		for s := range set {
			s.wake()
		}
	}
}

func (s *subscription) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// A payload is the sender's name and then the topics, each of fixed length; a
// name alone is a ping of the sender to itself.
const (
	nameLength  = 8
	topicLength = 11 // 8 bytes in base64url
	// maxTopics keeps a payload well below the 8000 bytes that NOTIFY takes.
	maxTopics = 500
)

func encodePayload(name string, topics []topicHash) string {
	b := make([]byte, 0, nameLength+len(topics)*topicLength)
	b = append(b, name...)
	for _, t := range topics {
		b = base64.RawURLEncoding.AppendEncode(b, t[:])
	}
	return string(b)
}

// decodePayload reads a payload; what is not one yields no topics. Anybody who
// may connect to the database may notify, so nothing in it is trusted.
func decodePayload(payload string) (name string, topics []topicHash) {
	if len(payload) < nameLength || (len(payload)-nameLength)%topicLength != 0 {
		return "", nil
	}
	name, rest := payload[:nameLength], payload[nameLength:]
	for ; rest != ""; rest = rest[topicLength:] {
		var t topicHash
		if n, err := base64.RawURLEncoding.Decode(t[:], []byte(rest[:topicLength])); err == nil && n == len(t) {
			topics = append(topics, t)
		}
	}
	return name, topics
}
