package friend

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// followers are those on this replica who want to know when a request changes.
// They are told at once of changes made here and, through Wake, elsewhere; one
// query a second for all of them catches what a hint has missed.
type followers struct {
	mu   sync.Mutex
	of   map[uuid.UUID]map[*follower]struct{}
	seen map[uuid.UUID]time.Time
}

type follower struct{ rung chan struct{} }

func newFollowers() *followers {
	return &followers{of: map[uuid.UUID]map[*follower]struct{}{}, seen: map[uuid.UUID]time.Time{}}
}

func topic(request uuid.UUID) string { return "friend_request " + request.String() }

// Follow returns a channel that is rung whenever the request may have changed.
// Follow first, then look, then wait. The function ends it; the channel is not
// closed.
func (s *Store) Follow(id uuid.UUID) (<-chan struct{}, func()) {
	f := &follower{rung: make(chan struct{}, 1)}
	h := s.followers
	h.mu.Lock()
	if h.of[id] == nil {
		h.of[id] = map[*follower]struct{}{}
	}
	h.of[id][f] = struct{}{}
	h.mu.Unlock()

	unsubscribe := s.forward(id, f)
	return f.rung, func() {
		unsubscribe()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.of[id], f)
		if len(h.of[id]) == 0 {
			delete(h.of, id)
			delete(h.seen, id)
		}
	}
}

// forward rings f for hints of other replicas.
func (s *Store) forward(id uuid.UUID, f *follower) (end func()) {
	if s.o.Wake == nil {
		return func() {}
	}
	hints, unsubscribe := s.o.Wake.Subscribe(topic(id))
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-hints:
				f.ring()
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		unsubscribe()
		close(done)
		ended.Wait()
	})
}

func (f *follower) ring() {
	select {
	case f.rung <- struct{}{}:
	default:
	}
}

func (h *followers) ring(id uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.of[id] {
		f.ring()
	}
}

// ring tells followers here and on other replicas, after a commit.
func (s *Store) ring(id uuid.UUID) {
	s.followers.ring(id)
	if s.o.Wake != nil {
		s.o.Wake.Notify(topic(id))
	}
}

// pollFollowed looks at all followed requests in one query.
func (s *Store) pollFollowed(ctx context.Context) error {
	h := s.followers
	h.mu.Lock()
	ids := make([]uuid.UUID, 0, len(h.of))
	for id := range h.of {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	rows, err := s.pool.Query(ctx, `SELECT id, updated_at FROM friend_request WHERE id = ANY($1)`, ids)
	if err != nil {
		return fmt.Errorf("look at followed requests: %w", err)
	}
	var id uuid.UUID
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		h.mu.Lock()
		last, known := h.seen[id]
		if h.of[id] != nil {
			h.seen[id] = at
		}
		h.mu.Unlock()
		// The first look may be later than the follower's own, so it rings too.
		if !known || !last.Equal(at) {
			h.ring(id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look at followed requests: %w", err)
	}
	return nil
}
