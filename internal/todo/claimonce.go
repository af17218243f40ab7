package todo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/refusal"
)

// takeOnce claims under a claim_id: what was claimed is remembered in the claim's
// transaction, and a repeat finds it. It is a transaction of its own, since it has
// to look before it may claim.
func (s *Store) takeOnce(ctx context.Context, w *work, claimID string) ([]Claimed, error) {
	if err := line("claim_id", claimID, maxKey); err != nil {
		return nil, err
	}
	d := w.demand
	d.full = true
	var before []uuid.UUID
	var k *looks
	err := s.inTransaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		before, d.taken, d.lines, d.moves = nil, nil, nil, nil
		if err := w.auth.uphold(ctx, tx); err != nil {
			return err
		}
		// Two repeats at once: the second waits here and then finds the first's.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 40))`,
			w.auth.endpoint.String()+" "+claimID); err != nil {
			return err
		}
		var tokens []uuid.UUID
		err := tx.QueryRow(ctx, `SELECT tokens FROM todo_claim WHERE owner = $1 AND endpoint = $2 AND claim_id = $3`,
			w.auth.owner, w.auth.endpoint, claimID).Scan(&tokens)
		if err == nil {
			before = tokens
			return nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if k != nil {
			k.end(false)
		}
		r := &round{demands: []*demand{d}}
		b := &script{}
		k = s.lanes.begin(r)
		k.known = s.known
		r.queueDemands(b, k)
		if err := b.run(ctx, tx); err != nil {
			return err
		}
		if len(d.taken) == 0 {
			return nil
		}
		todos := make([]uuid.UUID, len(d.taken))
		tokens = make([]uuid.UUID, len(d.taken))
		for i, c := range d.taken {
			todos[i] = c.TodoID
			if tokens[i], err = uuid.Parse(c.LeaseToken); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO todo_claim (owner, endpoint, claim_id, todos, tokens, created_at) VALUES ($1, $2, $3, $4, $5, clock_timestamp())`,
			w.auth.owner, w.auth.endpoint, claimID, todos, tokens)
		return err
	})
	if k != nil {
		k.end(err == nil)
	}
	if err != nil {
		return nil, fmt.Errorf("claim once: %w", err)
	}
	if before != nil {
		return s.heldBy(ctx, w.auth, d, before)
	}
	s.announce([]*work{w})
	return s.complement(ctx, w.auth.owner, d.taken)
}

// heldBy returns those of the leases with these tokens that are current still.
func (s *Store) heldBy(ctx context.Context, a authority, d *demand, tokens []uuid.UUID) ([]Claimed, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT l.id, l.queue, l.version, l.attempt, l.token, l.lease_expires_at, 10 - l.rank, l.deadline,
			l.attempt > 1 OR l.questions > 0 OR l.artifacts > 0,
			t.title, t.body, t.payload, t.grant_id IS NOT NULL, t.identity, t.calls_itself
		FROM todo_claim c, unnest(c.todos, c.tokens) WITH ORDINALITY AS i(id, token, n)
		JOIN todo_live l ON l.owner = $1 AND l.id = i.id AND l.state = 'leased' AND l.token = i.token
		JOIN todo t ON t.owner = $1 AND t.id = i.id
		WHERE c.owner = $1 AND c.endpoint = $2 AND c.tokens = $3::uuid[] AND l.queue = ANY ($4::text[])
		ORDER BY i.n`, a.owner, a.endpoint, tokens, strings.Split(a.queues, ","))
	if err != nil {
		return nil, fmt.Errorf("look for the leases of an earlier claim: %w", err)
	}
	held, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Claimed, error) {
		c := Claimed{State: Leased, Exchanges: []Exchange{}, PriorAttempts: []PriorAttempt{}, Artifacts: []Artifact{}}
		var token uuid.UUID
		var x content
		if err := row.Scan(&c.TodoID, &c.Queue, &c.Version, &c.Attempt, &token, &c.LeaseExpiresAt, &c.Priority, &c.Deadline, &c.more,
			&x.title, &x.body, &x.payload, &x.friend, &x.identity, &x.callsItself); err != nil {
			return c, err
		}
		c.LeaseToken = token.String()
		c.setContent(&x)
		return c, nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for the leases of an earlier claim: %w", err)
	}
	if d.id != uuid.Nil && (len(held) == 0 || held[0].TodoID != d.id) {
		return nil, errLeaseLost
	}
	return s.complement(ctx, a.owner, held)
}

// whyNot tells why a todo could not be claimed by its id.
func (s *Store) whyNot(ctx context.Context, a authority, id uuid.UUID) error {
	var queue, kind *string
	var state *State
	var due *time.Time
	var paused, late *bool
	err := s.pool.QueryRow(ctx, `
		SELECT t.queue, t.kind, coalesce(l.state, o.state), CASE WHEN l.not_before > clock_timestamp() THEN l.not_before END,
			q.paused, l.deadline <= clock_timestamp()
		FROM todo t
		LEFT JOIN todo_live l ON l.owner = t.owner AND l.id = t.id
		LEFT JOIN todo_outcome o ON o.owner = t.owner AND o.id = t.id
		LEFT JOIN queue q ON q.owner = t.owner AND q.name = t.queue
		WHERE t.owner = $1 AND t.id = $2`, a.owner, id).Scan(&queue, &kind, &state, &due, &paused, &late)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (*kind != kindWork || !a.has(*queue)) {
		return errNoTodo
	}
	if err != nil {
		return unavailable(fmt.Errorf("look at todo %s: %w", id, err))
	}
	switch {
	case state == nil:
		return errNoTodo
	case *state != Ready:
		return refusal.New(refusal.Conflict, "this todo is %s", *state)
	case paused != nil && *paused:
		return refusal.New(refusal.Conflict, "the queue is paused")
	case due != nil:
		return refusal.New(refusal.Conflict, "this todo is not due before %s", due.UTC().Format(time.RFC3339))
	case late != nil && *late:
		return refusal.New(refusal.Conflict, "the deadline of this todo has passed")
	}
	return refusal.New(refusal.Conflict, "this todo was claimed by somebody else just now")
}
