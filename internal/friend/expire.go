package friend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/todo"
)

const (
	sweepEvery = 5 * time.Second
	followPoll = time.Second
	// sweepBatch keeps each transaction short.
	sweepBatch = 100
)

// Run expires requests, grants and sign-ins, writes reminders, forgets replay
// keys that cannot matter any more, and looks after followers; it ends with ctx.
// Any number of replicas may run it.
func (s *Store) Run(ctx context.Context) error {
	sweep, poll := time.NewTicker(sweepEvery), time.NewTicker(followPoll)
	defer sweep.Stop()
	defer poll.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			err = s.Sweep(ctx)
		case <-poll.C:
			err = s.pollFollowed(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "friend: look after requests and grants", "error", err)
		}
	}
}

// Sweep does once what Run does every few seconds.
func (s *Store) Sweep(ctx context.Context) error {
	return errors.Join(
		s.sweepRequests(ctx),
		s.sweepGrants(ctx),
		s.remind(ctx),
		s.forget(ctx),
	)
}

func (s *Store) sweepRequests(ctx context.Context) error {
	for {
		var gone []Request
		err := s.inTx(ctx, func(tx pgx.Tx) (err error) {
			gone, err = s.expireRequests(ctx, tx, `state = 'pending'`)
			return err
		})
		if err != nil {
			return fmt.Errorf("expire friend requests: %w", err)
		}
		for _, r := range gone {
			s.changed(r.Owner, r.ID)
		}
		if len(gone) < sweepBatch {
			return nil
		}
	}
}

// expireRequests ends pending requests whose time is over among those that
// where selects. Rows that somebody is deciding upon are left to them.
func (s *Store) expireRequests(ctx context.Context, tx pgx.Tx, where string, args ...any) ([]Request, error) {
	rs, err := s.requests(ctx, tx, fmt.Sprintf(`
		WHERE (r.owner, r.id) IN (
			SELECT owner, id FROM friend_request
			WHERE %s AND expires_at <= clock_timestamp()
			ORDER BY owner, id LIMIT %d FOR UPDATE SKIP LOCKED)`, where, sweepBatch), args...)
	if err != nil {
		return nil, err
	}
	for _, r := range rs {
		if _, err := tx.Exec(ctx, `
			UPDATE friend_request SET state = 'expired', decided_at = expires_at, updated_at = clock_timestamp()
			WHERE owner = $1 AND id = $2`, r.Owner, r.ID); err != nil {
			return nil, fmt.Errorf("expire a friend request: %w", err)
		}
		if err := s.finishConsent(ctx, tx, r, todo.Failed, RequestExpired, uuid.Nil); err != nil {
			return nil, err
		}
		if err := s.record(ctx, tx, activity.Event{
			Owner: r.Owner, Kind: "friend_request.expired", Actor: actorSystem, Object: "friend_request", ObjectID: r.ID,
			Detail: map[string]any{"persona": r.Persona},
		}); err != nil {
			return nil, err
		}
	}
	return rs, nil
}

func (s *Store) sweepGrants(ctx context.Context) error {
	for {
		var gone []Grant
		err := s.inTx(ctx, func(tx pgx.Tx) (err error) {
			gone, err = s.grants(ctx, tx, fmt.Sprintf(`
				WHERE (g.owner, g.id) IN (
					SELECT owner, id FROM friend_grant
					WHERE state IN ('active', 'paused') AND expires_at <= clock_timestamp()
					ORDER BY owner, id LIMIT %d FOR UPDATE SKIP LOCKED)`, sweepBatch))
			if err != nil {
				return err
			}
			byEndpoint(gone)
			for _, g := range gone {
				if err := s.markExpired(ctx, tx, g); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("expire grants: %w", err)
		}
		for _, g := range gone {
			s.afterChange(g)
		}
		if len(gone) < sweepBatch {
			return nil
		}
	}
}

// markExpired writes down what the clock has already done: the endpoint's row
// carries its own end and answers nobody any more. Open todos stay for the
// owner's workers.
func (s *Store) markExpired(ctx context.Context, tx pgx.Tx, g Grant) error {
	if err := s.end(ctx, tx, g, GrantExpired, g.ExpiresAt); err != nil {
		return err
	}
	expired := endpoint.Expired
	if err := s.o.Endpoints.ChangePeer(ctx, tx, g.Owner, g.EndpointID, endpoint.Change{State: &expired}); err != nil {
		return fmt.Errorf("expire the endpoint: %w", err)
	}
	if err := s.record(ctx, tx, activity.Event{
		Owner: g.Owner, Kind: "grant.expired", Actor: actorSystem, Object: "grant", ObjectID: g.ID, GrantID: g.ID,
		Detail: map[string]any{"persona": g.Persona},
	}); err != nil {
		return err
	}
	return s.notify(ctx, tx, Notice{
		Kind: "grant.changed", Owner: g.Owner, Identity: g.Identity.Hash, Persona: g.Persona,
		RequestID: g.RequestID, GrantID: g.ID, State: string(GrantExpired), Event: "grant.expired", ExpiresAt: g.ExpiresAt,
	})
}

// remind tells both sides 14 and 2 days before a grant ends. A grant that was
// given for less than that time is not announced the moment it is made.
func (s *Store) remind(ctx context.Context) error {
	if s.o.Notify == nil {
		return nil
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		gs, err := s.grants(ctx, tx, fmt.Sprintf(`
			WHERE (g.owner, g.id) IN (
				SELECT owner, id FROM friend_grant
				WHERE state IN ('active', 'paused') AND expires_at > clock_timestamp()
				  AND (   expires_at <= clock_timestamp() + interval '14 days' AND expires_at - approved_at > interval '14 days'
				          AND reminded_at IS NULL
				       OR expires_at <= clock_timestamp() + interval '2 days' AND expires_at - approved_at > interval '2 days'
				          AND (reminded_at IS NULL OR reminded_at < expires_at - interval '2 days'))
				ORDER BY owner, id LIMIT %d FOR UPDATE SKIP LOCKED)`, sweepBatch))
		if err != nil {
			return err
		}
		for _, g := range gs {
			if _, err := tx.Exec(ctx, `UPDATE friend_grant SET reminded_at = clock_timestamp() WHERE owner = $1 AND id = $2`, g.Owner, g.ID); err != nil {
				return fmt.Errorf("mark the reminder: %w", err)
			}
			if err := s.notify(ctx, tx, Notice{
				Kind: "grant.ending", Owner: g.Owner, Identity: g.Identity.Hash, Persona: g.Persona,
				RequestID: g.RequestID, GrantID: g.ID, State: string(g.State), ExpiresAt: g.ExpiresAt,
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remind of ending grants: %w", err)
	}
	return nil
}

// forget deletes what only mattered for a while: replay keys, and sign-ins that
// were never redeemed, with all that belongs to them.
func (s *Store) forget(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM friend_replay WHERE keep_until < clock_timestamp()`)
	if err != nil {
		return fmt.Errorf("forget replay keys: %w", err)
	}
	_, err = s.pool.Exec(ctx, `
		WITH gone AS (
			DELETE FROM friend_request WHERE todo_id IS NULL AND expires_at <= clock_timestamp() RETURNING id
		), link AS (
			DELETE FROM friend_sign_in WHERE request_id IN (SELECT id FROM gone)
		)
		DELETE FROM friend_message WHERE request_id IN (SELECT id FROM gone)`)
	if err != nil {
		return fmt.Errorf("forget sign-ins: %w", err)
	}
	return nil
}
