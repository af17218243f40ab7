package todo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// Detail is the whole of a todo for its owner and the owner's workers. What a
// friend wrote stands in FromFriend and nowhere else.
type Detail struct {
	TodoID          uuid.UUID       `json:"todo_id"`
	Queue           string          `json:"queue"`
	Kind            string          `json:"kind"` // work, friend_request
	State           State           `json:"state"`
	Version         int64           `json:"version"`
	Priority        int             `json:"priority"`
	Attempt         int             `json:"attempt"`
	MaxAttempts     int             `json:"max_attempts"`
	NotBefore       *time.Time      `json:"not_before,omitempty"`
	Deadline        *time.Time      `json:"deadline,omitempty"`
	CancelRequested bool            `json:"cancel_requested"`
	LeaseExpiresAt  *time.Time      `json:"lease_expires_at,omitempty"`
	FromFriend      *FromFriend     `json:"from_friend,omitempty"`
	GrantID         *uuid.UUID      `json:"grant_id,omitempty"`
	Title           string          `json:"title,omitempty"`
	Body            string          `json:"body,omitempty"`
	Payload         json.RawMessage `json:"payload,omitempty"`
	Progress        *Progress       `json:"progress,omitempty"`
	Question        *Question       `json:"question,omitempty"`
	Result          json.RawMessage `json:"result,omitempty"`
	PublicMessage   string          `json:"public_message,omitempty"`
	Artifacts       []Artifact      `json:"artifacts"`
	Attempts        []PriorAttempt  `json:"attempts,omitempty"`  // get only
	Exchanges       []Exchange      `json:"exchanges,omitempty"` // get only
	CreatedAt       time.Time       `json:"created_at"`
	FinishedAt      *time.Time      `json:"finished_at,omitempty"`
}

func (r *row) detail(artifacts []Artifact, maxAttempts int) Detail {
	d := Detail{
		TodoID: r.id, Queue: r.queue, Kind: r.kind, State: r.state, Version: r.version, Priority: r.priority, Attempt: r.attempt,
		MaxAttempts: maxAttempts, NotBefore: r.notBefore, Deadline: r.deadline, CancelRequested: r.cancelRequested,
		LeaseExpiresAt: r.leaseExpiresAt, GrantID: r.grant, Progress: progressOf(r.progress), Question: r.asked(),
		Result: rawJSON(r.result), PublicMessage: text(r.publicMessage), Artifacts: artifacts,
		CreatedAt: r.createdAt, FinishedAt: r.finishedAt,
	}
	if d.Artifacts == nil {
		d.Artifacts = []Artifact{}
	}
	if r.grant != nil {
		d.FromFriend = &FromFriend{Identity: r.identity, CallsItself: r.calls, Title: r.title, Body: r.body, Payload: rawJSON(r.payload)}
	} else {
		d.Title, d.Body, d.Payload = r.title, r.body, rawJSON(r.payload)
	}
	return d
}

// Filter narrows [Store.List]; zero members do not.
type Filter struct {
	Queue   string
	State   State
	GrantID uuid.UUID
}

// List lists the human's todos, newest first.
func (s *Store) List(ctx context.Context, owner uuid.UUID, f Filter, cursor string, limit int) ([]Detail, string, error) {
	var queues []string
	if f.Queue != "" {
		if !scope.QueueName(f.Queue) {
			return nil, "", nil // no queue has such a name
		}
		queues = []string{f.Queue}
	}
	bind := postgres.BindCursor("todos", owner.String(), f.Queue, string(f.State), f.GrantID.String())
	return s.list(ctx, owner, f, queues, true, bind, cursor, limit)
}

// ListForWorker lists the todos in the queues of a home endpoint, newest first.
func (s *Store) ListForWorker(ctx context.Context, c endpoint.Caller, queue string, state State, cursor string, limit int) ([]Detail, string, error) {
	queues := c.Endpoint.Scope.Queues
	if queue != "" {
		if !c.May(scope.TodoStatus, queue) {
			return nil, "", errNoQueue
		}
		queues = []string{queue}
	}
	if err := s.check(ctx, c); err != nil {
		return nil, "", err
	}
	bind := postgres.BindCursor("list_todos", c.Endpoint.ID.String(), queue, string(state))
	return s.list(ctx, c.Endpoint.Owner, Filter{State: state}, append([]string{}, queues...), false, bind, cursor, limit)
}

// list reads a page. It starts from the table that holds the state asked for, so
// that few open todos are found among many finished ones and the other way round.
func (s *Store) list(ctx context.Context, owner uuid.UUID, f Filter, queues []string, consent bool, bind, cursor string, limit int) ([]Detail, string, error) {
	limit, err := pageSize(limit)
	if err != nil {
		return nil, "", err
	}
	if f.State != "" && !f.State.known() {
		return nil, "", refusal.Invalid("state", "there is no such state")
	}
	before := uuid.Max
	if cursor != "" {
		key, err := postgres.DecodeCursor(bind, cursor, 1)
		if err != nil {
			return nil, "", err
		}
		if before, err = uuid.Parse(key[0]); err != nil {
			return nil, "", refusal.Invalid("cursor", "cursor is not one that this list returned").Because(err)
		}
	}
	from := `todo t` + ends
	key := "t"
	switch f.State {
	case "":
	case Done, Failed, Canceled:
		from, key = `todo_outcome o JOIN todo t ON t.owner = o.owner AND t.id = o.id
			LEFT JOIN todo_live l ON l.owner = t.owner AND l.id = t.id`, "o"
	default:
		from, key = `todo_live l JOIN todo t ON t.owner = l.owner AND t.id = l.id
			LEFT JOIN todo_outcome o ON o.owner = t.owner AND o.id = t.id`, "l"
	}
	var grant *uuid.UUID
	if f.GrantID != uuid.Nil {
		grant = &f.GrantID
	}
	rows, err := s.pool.Query(ctx, `
		SELECT t.id, t.created_at, `+weight+`
		FROM `+from+`
		WHERE `+key+`.owner = $1 AND `+key+`.id < $2 AND coalesce(l.state, o.state) IS NOT NULL
			AND ($3::text = '' OR coalesce(l.state, o.state) = $3)
			AND ($4::text[] IS NULL OR t.queue = ANY ($4))
			AND ($5::uuid IS NULL OR t.grant_id = $5)
			AND ($6::bool OR t.kind = 'work')
		ORDER BY `+key+`.id DESC LIMIT $7`, owner, before, string(f.State), queues, grant, consent, limit+1)
	if err != nil {
		return nil, "", unavailable(fmt.Errorf("list todos: %w", err))
	}
	all, err := pgx.CollectRows(rows, scanWeighed)
	if err != nil {
		return nil, "", unavailable(fmt.Errorf("list todos: %w", err))
	}
	shown, next := page(all, limit), ""
	if len(shown) < len(all) {
		next = postgres.EncodeCursor(bind, shown[len(shown)-1].id.String())
	}
	found, err := s.read(ctx, owner, shown)
	if err != nil {
		return nil, "", err
	}
	found = slices.DeleteFunc(found, func(r row) bool { return f.State != "" && r.state != f.State }) // moved meanwhile
	out, err := s.details(ctx, owner, found)
	return out, next, err
}

// details completes rows with artifacts and their queues' budgets.
func (s *Store) details(ctx context.Context, owner uuid.UUID, found []row) ([]Detail, error) {
	out := make([]Detail, len(found))
	if len(found) == 0 {
		return out, nil
	}
	artifacts, err := readArtifacts(ctx, s.pool, owner, withArtifacts(found))
	if err != nil {
		return nil, unavailable(err)
	}
	names := make([]string, len(found))
	for i := range found {
		names[i] = found[i].queue
	}
	budgets := map[string]int{}
	rows, err := s.pool.Query(ctx, `SELECT q.name, q.max_attempts FROM queue q WHERE q.owner = $1 AND q.name = ANY ($2::text[])`, owner, names)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read queues: %w", err))
	}
	var name string
	var budget int
	if _, err := pgx.ForEachRow(rows, []any{&name, &budget}, func() error { budgets[name] = budget; return nil }); err != nil {
		return nil, unavailable(fmt.Errorf("read queues: %w", err))
	}
	for i := range found {
		out[i] = found[i].detail(artifacts[found[i].id], budgets[found[i].queue])
	}
	return out, nil
}

// Get returns a todo of the human's with its whole history.
func (s *Store) Get(ctx context.Context, owner, id uuid.UUID) (Detail, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT `+whole+` FROM todo t`+ends+` WHERE t.owner = $1 AND t.id = $2 AND coalesce(l.state, o.state) IS NOT NULL`, owner, id)
	if err != nil {
		return Detail{}, unavailable(fmt.Errorf("read todo %s: %w", id, err))
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return Detail{}, errNoTodo
	}
	if err != nil {
		return Detail{}, unavailable(fmt.Errorf("read todo %s: %w", id, err))
	}
	return s.withHistory(ctx, owner, &r)
}

// GetForWorker returns a todo in a queue of a home endpoint with its whole history.
func (s *Store) GetForWorker(ctx context.Context, c endpoint.Caller, id uuid.UUID) (Detail, error) {
	r, err := s.visible(ctx, c, id, func(r *row) bool { return c.May(scope.TodoStatus, r.queue) })
	if err != nil {
		return Detail{}, err
	}
	return s.withHistory(ctx, c.Endpoint.Owner, r)
}

func (s *Store) withHistory(ctx context.Context, owner uuid.UUID, r *row) (Detail, error) {
	all, err := s.details(ctx, owner, []row{*r})
	if err != nil {
		return Detail{}, err
	}
	d, ids := all[0], []uuid.UUID{r.id}
	attempts, err := readAttempts(ctx, s.pool, owner, ids)
	if err != nil {
		return Detail{}, unavailable(err)
	}
	d.Attempts = attempts[r.id]
	if r.state == Leased && r.worker != nil && r.startedAt != nil {
		d.Attempts = append(d.Attempts, PriorAttempt{Attempt: r.attempt, Worker: *r.worker, StartedAt: *r.startedAt, Progress: d.Progress})
	}
	exchanges, err := readExchanges(ctx, s.pool, owner, ids)
	if err != nil {
		return Detail{}, unavailable(err)
	}
	d.Exchanges = exchanges[r.id]
	return d, nil
}
