package todo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Run settles what time has decided until ctx ends: lapsed leases, deadlines,
// questions that nobody answered, and what retention lets go. Nothing depends on it
// but that states are shown as they are: a lapsed lease is reclaimed without it. Any
// number of replicas may run it.
func (s *Store) Run(ctx context.Context) error {
	t := time.NewTicker(s.o.ReapEvery)
	defer t.Stop()
	var lastScan, lastRetain time.Time
	scanCost := time.Duration(0)
	for {
		if err := s.reap(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "reap todos", "error", err)
		}
		// A lapsed lease behind todos that are still to be claimed is due to nobody, and
		// the scan that finds it reads all that is open: it takes its time.
		if begin := time.Now(); begin.Sub(lastScan) >= max(s.o.ReapEvery, 100*scanCost) {
			if err := s.reapLapsed(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "reap lapsed leases", "error", err)
			}
			lastScan, scanCost = time.Now(), time.Since(begin)
		}
		if time.Since(lastRetain) >= time.Hour {
			if err := s.retain(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "let go of old todos", "error", err)
			}
			lastRetain = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// reapBatch bounds what one transaction settles.
const reapBatch = 500

// reap settles deadlines and unanswered questions, and makes claimable what is due.
func (s *Store) reap(ctx context.Context) error {
	for _, r := range []struct{ sql, what, why string }{
		{expireDeadlines, timerDeadline, "the deadline has passed"},
		{expireQuestions, timerQuestion, "the question was not answered in seven days"},
	} {
		for n := reapBatch; n == reapBatch; {
			moves, err := s.settleSome(ctx, r.sql, r.why, reapBatch, r.what)
			if err != nil {
				return err
			}
			n = len(moves)
		}
	}
	return s.promote(ctx)
}

// settleSome runs a settling statement in a transaction of its own and wakes whom
// it concerns.
func (s *Store) settleSome(ctx context.Context, sql string, args ...any) ([]move, error) {
	var moves []move
	err := s.inTransaction(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		moves, err = settleMany(ctx, tx, sql, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.announceMoves(moves)
	return moves, nil
}

// promote makes claimable what has become due, anywhere, and wakes the workers.
func (s *Store) promote(ctx context.Context) error {
	for {
		n := 0
		found := map[lane]int{}
		err := s.inTransaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
			n = 0
			clear(found)
			rows, err := tx.Query(ctx, promoteAnywhere, reapBatch)
			if err != nil {
				return err
			}
			var l lane
			_, err = pgx.ForEachRow(rows, []any{&l.owner, &l.queue}, func() error {
				n++
				found[l]++
				return nil
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("make due todos claimable: %w", err)
		}
		for l, n := range found {
			s.lanes.reset(l)
			s.hub.ready(l.owner, l.queue, n)
		}
		if n < reapBatch {
			return nil
		}
	}
}

// reapByID settles those of these todos whose leases have lapsed.
const reapByID = `
WITH locked AS MATERIALIZED (
	SELECT x.at FROM unnest($1::uuid[], $2::uuid[]) AS i(owner, id), LATERAL (
		SELECT l.ctid AS at FROM todo_live l
		WHERE l.owner = i.owner AND l.id = i.id AND l.state = 'leased' AND l.lease_expires_at <= clock_timestamp()
		LIMIT 1 FOR UPDATE SKIP LOCKED
	) x
), held AS MATERIALIZED (
	SELECT ` + lapsedItem + `, ` + heldColumns + `
	FROM locked k, todo_live l WHERE l.ctid = k.at
)` + settle

// reapLapsed settles the lapsed leases anywhere.
func (s *Store) reapLapsed(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, `
		SELECT l.owner, l.id FROM todo_live l
		WHERE l.state = 'leased' AND l.lease_expires_at <= clock_timestamp() LIMIT 20000`)
	if err != nil {
		return fmt.Errorf("look for lapsed leases: %w", err)
	}
	var owners, ids [][16]byte
	var owner, id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&owner, &id}, func() error {
		owners, ids = append(owners, owner), append(ids, id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for lapsed leases: %w", err)
	}
	for len(ids) > 0 {
		n := min(len(ids), reapBatch)
		if _, err := s.settleSome(ctx, reapByID, owners[:n], ids[:n]); err != nil {
			return err
		}
		owners, ids = owners[n:], ids[n:]
	}
	return nil
}
