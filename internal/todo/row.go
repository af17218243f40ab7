package todo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// whole are the columns of a todo t with its live row l or its outcome o.
const whole = `t.id, t.queue, t.kind, t.line, t.grant_id, t.subject, t.title, t.body, t.payload, t.priority, t.deadline,
	t.identity, t.calls_itself, t.trace, t.created_at,
	coalesce(l.state, o.state), coalesce(l.version, o.version), coalesce(l.attempt, o.attempt),
	coalesce(l.artifacts, o.artifacts), coalesce(l.questions, o.questions),
	l.not_before, coalesce(l.cancel_requested, false), l.lease_expires_at, coalesce(l.worker, o.worker), coalesce(l.started_at, o.started_at),
	coalesce(l.progress, o.progress), l.question_id, l.question, l.asked_at, coalesce(l.public_message, o.public_message),
	o.result, o.error, o.finished_at`

// ends joins the live row and the outcome of a todo t, of which there is one.
const ends = `
	LEFT JOIN todo_live l ON l.owner = t.owner AND l.id = t.id
	LEFT JOIN todo_outcome o ON o.owner = t.owner AND o.id = t.id`

// row is a todo as it is read.
type row struct {
	id, line        uuid.UUID
	queue, kind     string
	grant, subject  *uuid.UUID
	title, body     string
	payload         *string
	priority        int
	deadline        *time.Time
	identity, calls string
	trace           string
	createdAt       time.Time
	state           State
	version         int64
	attempt         int
	artifacts       int
	questions       int
	notBefore       *time.Time
	cancelRequested bool
	leaseExpiresAt  *time.Time
	worker          *uuid.UUID
	startedAt       *time.Time
	progress        *string
	questionID      *uuid.UUID
	question        *string
	askedAt         *time.Time
	publicMessage   *string
	result          *string
	err             *string
	finishedAt      *time.Time
}

func (r *row) targets() []any {
	return []any{
		&r.id, &r.queue, &r.kind, &r.line, &r.grant, &r.subject, &r.title, &r.body, &r.payload, &r.priority, &r.deadline,
		&r.identity, &r.calls, &r.trace, &r.createdAt,
		&r.state, &r.version, &r.attempt, &r.artifacts, &r.questions,
		&r.notBefore, &r.cancelRequested, &r.leaseExpiresAt, &r.worker, &r.startedAt,
		&r.progress, &r.questionID, &r.question, &r.askedAt, &r.publicMessage,
		&r.result, &r.err, &r.finishedAt,
	}
}

func scanRow(from pgx.CollectableRow) (row, error) {
	var r row
	err := from.Scan(r.targets()...)
	return r, err
}

func (r *row) asked() *Question {
	if r.questionID == nil || r.askedAt == nil {
		return nil
	}
	return &Question{ID: *r.questionID, Text: *r.question, AskedAt: *r.askedAt}
}

func progressOf(s *string) *Progress {
	if s == nil {
		return nil
	}
	var p Progress
	if json.Unmarshal([]byte(*s), &p) != nil {
		return nil
	}
	return &p
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func readArtifacts(ctx context.Context, q querier, owner uuid.UUID, ids []uuid.UUID) (map[uuid.UUID][]Artifact, error) {
	out := map[uuid.UUID][]Artifact{}
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := q.Query(ctx, `
		SELECT a.todo, a.artifact FROM todo_artifact a
		WHERE a.owner = $1 AND a.todo = ANY ($2::uuid[]) ORDER BY a.todo, a.position`, owner, ids)
	if err != nil {
		return nil, fmt.Errorf("read artifacts: %w", err)
	}
	var id uuid.UUID
	var body string
	_, err = pgx.ForEachRow(rows, []any{&id, &body}, func() error {
		var a Artifact
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			return err
		}
		out[id] = append(out[id], a)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read artifacts: %w", err)
	}
	return out, nil
}

// readExchanges reads the newest exchanges, as many as an answer has room for.
func readExchanges(ctx context.Context, q querier, owner uuid.UUID, ids []uuid.UUID) (map[uuid.UUID][]Exchange, error) {
	out := map[uuid.UUID][]Exchange{}
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := q.Query(ctx, `
		SELECT e.todo, e.id, e.question, e.asked_at, e.answer, e.payload, e.answered_at FROM (
			SELECT e.*, row_number() OVER newest AS n,
				sum(octet_length(e.question) + coalesce(octet_length(e.answer), 0) + coalesce(octet_length(e.payload), 0)) OVER newest AS bytes
			FROM todo_exchange e WHERE e.owner = $1 AND e.todo = ANY ($2::uuid[])
			WINDOW newest AS (PARTITION BY e.todo ORDER BY e.asked_at DESC, e.id DESC)
		) e
		WHERE e.n = 1 OR e.n <= $3 AND e.bytes <= $4
		ORDER BY e.todo, e.asked_at, e.id`, owner, ids, maxHistory, historyBytes)
	if err != nil {
		return nil, fmt.Errorf("read exchanges: %w", err)
	}
	var id uuid.UUID
	var x Exchange
	var answer, payload *string
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &x.Question.ID, &x.Question.Text, &x.Question.AskedAt, &answer, &payload, &at}, func() error {
		e := x
		if at != nil {
			e.Answer = &AnswerGiven{Text: text(answer), Payload: rawJSON(payload), At: *at}
		}
		out[id] = append(out[id], e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read exchanges: %w", err)
	}
	return out, nil
}

// readAttempts reads the attempts that have ended, the newest of them, and the one
// that completed the todo.
func readAttempts(ctx context.Context, q querier, owner uuid.UUID, ids []uuid.UUID) (map[uuid.UUID][]PriorAttempt, error) {
	out := map[uuid.UUID][]PriorAttempt{}
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := q.Query(ctx, `
		SELECT a.todo, a.attempt, a.worker, a.started_at, a.ended_at, a.outcome, a.error, a.progress
		FROM (
			SELECT a.*, row_number() OVER (PARTITION BY a.todo ORDER BY a.attempt DESC) AS n
			FROM todo_attempt a WHERE a.owner = $1 AND a.todo = ANY ($2::uuid[])
		) a WHERE a.n <= $3
		UNION ALL
		SELECT o.id, o.attempt, o.worker, o.started_at, o.finished_at, 'completed', NULL, o.progress
		FROM todo_outcome o WHERE o.owner = $1 AND o.id = ANY ($2::uuid[]) AND o.state = 'done' AND o.worker IS NOT NULL
		ORDER BY 1, 2`, owner, ids, maxHistory)
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	var id uuid.UUID
	var a PriorAttempt
	var problem, progress *string
	_, err = pgx.ForEachRow(rows, []any{&id, &a.Attempt, &a.Worker, &a.StartedAt, &a.EndedAt, &a.Outcome, &problem, &progress}, func() error {
		b := a
		b.Error, b.Progress = text(problem), progressOf(progress)
		if a.EndedAt != nil {
			at := *a.EndedAt
			b.EndedAt = &at
		}
		out[id] = append(out[id], b)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	return out, nil
}

// readContents reads the contents of claimed todos whose statement left them out.
func (s *Store) readContents(ctx context.Context, owner uuid.UUID, taken []Claimed) error {
	at := map[uuid.UUID]*Claimed{}
	var ids []uuid.UUID
	for i := range taken {
		if c := &taken[i]; c.bare {
			ids = append(ids, c.TodoID)
			at[c.TodoID] = c
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := s.pool.Query(ctx, `
		SELECT t.id, t.title, t.body, t.payload, t.grant_id IS NOT NULL, t.identity, t.calls_itself
		FROM todo t WHERE t.owner = $1 AND t.id = ANY ($2::uuid[])`, owner, ids)
	if err != nil {
		return unavailable(fmt.Errorf("read the contents of claimed todos: %w", err))
	}
	var id uuid.UUID
	var x content
	_, err = pgx.ForEachRow(rows, []any{&id, &x.title, &x.body, &x.payload, &x.friend, &x.identity, &x.callsItself}, func() error {
		at[id].setContent(&x)
		return nil
	})
	if err != nil {
		return unavailable(fmt.Errorf("read the contents of claimed todos: %w", err))
	}
	return nil
}

// complement reads what claimed todos bring along from before. The lease is
// committed by now, and what came before it does not change.
func (s *Store) complement(ctx context.Context, owner uuid.UUID, taken []Claimed) ([]Claimed, error) {
	if !slices.ContainsFunc(taken, func(c Claimed) bool { return c.bare || c.more }) {
		if taken == nil {
			taken = []Claimed{}
		}
		return taken, nil
	}
	ctx, cancel := context.WithTimeout(ctx, transactionTime)
	defer cancel()
	if err := s.readContents(ctx, owner, taken); err != nil {
		return nil, err
	}
	var ids []uuid.UUID
	for _, c := range taken {
		if c.more {
			ids = append(ids, c.TodoID)
		}
	}
	if len(ids) == 0 {
		return taken, nil
	}
	exchanges, err := readExchanges(ctx, s.pool, owner, ids)
	if err != nil {
		return nil, unavailable(err)
	}
	attempts, err := readAttempts(ctx, s.pool, owner, ids)
	if err != nil {
		return nil, unavailable(err)
	}
	artifacts, err := readArtifacts(ctx, s.pool, owner, ids)
	if err != nil {
		return nil, unavailable(err)
	}
	for i := range taken {
		c := &taken[i]
		c.Exchanges = append(c.Exchanges, exchanges[c.TodoID]...)
		c.PriorAttempts = append(c.PriorAttempts, attempts[c.TodoID]...)
		c.Artifacts = append(c.Artifacts, artifacts[c.TodoID]...)
	}
	return taken, nil
}
