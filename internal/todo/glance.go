package todo

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"switchboard/internal/endpoint"
)

// What tells whether there is something to claim, and takes nothing.

// glance reports whether there may be something to claim in the queues, without taking
// or settling anything, and that the caller's authority holds; endpoint.ErrStale.
func (s *Store) glance(ctx context.Context, a authority, queues []string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTime)
	defer cancel()
	var holds, some bool
	err := s.pool.QueryRow(ctx, `
		SELECT i.ok, EXISTS (
			SELECT FROM queue q
			WHERE q.owner = $1 AND q.name = ANY ($5::text[]) AND NOT q.paused AND (
				(SELECT l.id FROM todo_live l
					WHERE l.owner = q.owner AND l.queue = q.name AND l.claimable
						AND (l.state = 'ready' AND (l.deadline IS NULL OR l.deadline > clock_timestamp())
							OR l.state = 'leased' AND l.lease_expires_at <= clock_timestamp())
					ORDER BY l.rank, l.vstart, l.id LIMIT 1) IS NOT NULL
				OR (SELECT m.todo FROM todo_timer m
					WHERE m.owner = q.owner AND m.what = 'due' AND m.queue = q.name AND m.at <= (SELECT clock_timestamp())
					ORDER BY m.at LIMIT 1) IS NOT NULL)
		)
		FROM `+authorised, raw(a.owner), raw(a.endpoint), a.version, a.until, queues).Scan(&holds, &some)
	if err != nil {
		return false, unavailable(fmt.Errorf("glance at the queues: %w", err))
	}
	if !holds {
		return false, endpoint.ErrStale
	}
	return some, nil
}

// moreReady reports whether something is ready in the queues.
func (s *Store) moreReady(ctx context.Context, d *demand) (bool, error) {
	if d.id != uuid.Nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, transactionTime)
	defer cancel()
	var more bool
	err := s.pool.QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM queue q, LATERAL (
				SELECT FROM todo_live l
				WHERE l.owner = q.owner AND l.queue = q.name AND l.claimable AND l.state = 'ready' AND (l.deadline IS NULL OR l.deadline > clock_timestamp())
				ORDER BY l.rank, l.vstart, l.id LIMIT 1
			) l WHERE q.owner = $1 AND q.name = ANY ($2::text[]) AND NOT q.paused
		)`, d.auth.owner, d.queues).Scan(&more)
	if err != nil {
		return false, unavailable(fmt.Errorf("look for ready todos: %w", err))
	}
	return more, nil
}
