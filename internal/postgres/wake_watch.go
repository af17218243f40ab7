package postgres

import "sync"

// watchers are the subscriptions that hear of this process too. Most processes
// have none most of the time, and then pay one look at a number.
type watchers struct {
	mu sync.Mutex
	of map[topicHash]map[*subscription]struct{}
}

// Watch is [Wake.Subscribe] to several topics at once, for who has no other way
// to hear of what this process does: [Wake.NotifyOthers] wakes it too. The
// function ends the subscription; the channel is not closed.
func (w *Wake) Watch(topics ...string) (<-chan struct{}, func()) {
	s := &subscription{woken: make(chan struct{}, 1)}
	hashes := make([]topicHash, len(topics))
	for i, t := range topics {
		hashes[i] = hashTopic(t)
	}
	w.mu.Lock()
	add(w.topics, s, hashes)
	w.mu.Unlock()
	w.watched.mu.Lock()
	if w.watched.of == nil {
		w.watched.of = map[topicHash]map[*subscription]struct{}{}
	}
	add(w.watched.of, s, hashes)
	w.watching.Store(int64(len(w.watched.of)))
	w.watched.mu.Unlock()
	return s.woken, sync.OnceFunc(func() {
		w.mu.Lock()
		remove(w.topics, s, hashes)
		w.mu.Unlock()
		w.watched.mu.Lock()
		defer w.watched.mu.Unlock()
		remove(w.watched.of, s, hashes)
		w.watching.Store(int64(len(w.watched.of)))
	})
}

func (w *Wake) wakeWatchers(h topicHash) {
	if w.watching.Load() == 0 {
		return
	}
	w.watched.mu.Lock()
	defer w.watched.mu.Unlock()
	for s := range w.watched.of[h] {
		s.wake()
	}
}

func add(to map[topicHash]map[*subscription]struct{}, s *subscription, hashes []topicHash) {
	for _, h := range hashes {
		if to[h] == nil {
			to[h] = map[*subscription]struct{}{}
		}
		to[h][s] = struct{}{}
	}
}

func remove(from map[topicHash]map[*subscription]struct{}, s *subscription, hashes []topicHash) {
	for _, h := range hashes {
		delete(from[h], s)
		if len(from[h]) == 0 {
			delete(from, h)
		}
	}
}
