package todo

import (
	"context"
	"encoding/json"
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

// Status is what a todo's creator sees of it.
type Status struct {
	TodoID        uuid.UUID       `json:"todo_id"`
	Queue         string          `json:"queue"`
	Title         string          `json:"title"`
	State         State           `json:"state"`
	Version       int64           `json:"version"`
	Attempt       int             `json:"attempt"`
	Progress      *Progress       `json:"progress,omitempty"`
	Question      *Question       `json:"question,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
	Artifacts     []Artifact      `json:"artifacts"`
	PublicMessage string          `json:"public_message,omitempty"`
	CreatedAt     time.Time       `json:"created_at"`
	FinishedAt    *time.Time      `json:"finished_at,omitempty"`
	WorkedBy      json.RawMessage `json:"worked_by,omitempty"` // {attempt, endpoint, trace}
}

func (r *row) status(artifacts []Artifact) Status {
	s := Status{
		TodoID: r.id, Queue: r.queue, Title: r.title, State: r.state, Version: r.version, Attempt: r.attempt,
		Progress: progressOf(r.progress), Question: r.asked(), Result: rawJSON(r.result), Artifacts: artifacts,
		PublicMessage: text(r.publicMessage), CreatedAt: r.createdAt, FinishedAt: r.finishedAt,
	}
	if s.Artifacts == nil {
		s.Artifacts = []Artifact{}
	}
	if r.state == Done && r.worker != nil {
		s.WorkedBy, _ = json.Marshal(struct {
			Attempt  int       `json:"attempt"`
			Endpoint uuid.UUID `json:"endpoint"`
			Trace    string    `json:"trace,omitempty"`
		}{r.attempt, *r.worker, r.trace})
	}
	return s
}

// Status returns a todo of the caller's line in a queue that it may ask about. With
// a wait it returns when the version is above since, the todo has ended, or the
// wait is over; without since, what it sees first is what it waits beyond. Unknown,
// foreign and out-of-scope todos are one refusal.NotFound.
func (s *Store) Status(ctx context.Context, c endpoint.Caller, id uuid.UUID, wait time.Duration, since *int64) (Status, error) {
	if err := checkWait(wait); err != nil {
		return Status{}, err
	}
	if since != nil && *since < 0 {
		return Status{}, refusal.Invalid("since_version", "since_version must not be negative")
	}
	if wait == 0 {
		return s.look(ctx, c, id)
	}
	watch := s.hub.watch(authorityOf(c), c.Endpoint.Line, id)
	defer watch.end()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		now, err := s.look(ctx, c, id)
		if err != nil || now.State.Terminal() {
			return now, err
		}
		if since == nil {
			since = &now.Version
		}
		if now.Version > *since {
			return now, nil
		}
		watch.seen(now.Version)
		select {
		case <-watch.woken:
		case <-timer.C:
			return now, nil
		case <-s.hub.done:
			return now, nil
		case <-ctx.Done():
			return Status{}, ctx.Err()
		}
	}
}

// authorised, in SQL, is one row that tells whether the authority of $1 to $4
// (owner, endpoint, version, until) holds.
const authorised = `(SELECT EXISTS (
		SELECT FROM endpoint_authority a WHERE a.owner = $1 AND a.id = $2 AND a.version = $3 AND $4 > clock_timestamp()
	) AS ok) i`

// look reads a todo for its creator.
func (s *Store) look(ctx context.Context, c endpoint.Caller, id uuid.UUID) (Status, error) {
	r, err := s.visible(ctx, c, id, func(r *row) bool { return r.line == c.Endpoint.Line && c.May(scope.TodoStatus, r.queue) })
	if err != nil {
		return Status{}, err
	}
	var artifacts []Artifact
	if r.artifacts > 0 {
		all, err := readArtifacts(ctx, s.pool, c.Endpoint.Owner, []uuid.UUID{id})
		if err != nil {
			return Status{}, unavailable(err)
		}
		artifacts = all[id]
	}
	return r.status(artifacts), nil
}

// visible reads a todo together with the caller's authority, so that an answer is
// of a moment at which it held. What may not be seen is not found.
func (s *Store) visible(ctx context.Context, c endpoint.Caller, id uuid.UUID, may func(*row) bool) (*row, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT i.ok, t.id IS NOT NULL, x.*
		FROM `+authorised+`
		LEFT JOIN todo t ON t.owner = $1 AND t.id = $5 AND t.kind = 'work'`+ends+`,
		LATERAL (SELECT `+whole+`) x`,
		c.Endpoint.Owner, c.Endpoint.ID, c.Endpoint.Version, c.Until, id)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read todo %s: %w", id, err))
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, unavailable(fmt.Errorf("read todo %s: %w", id, rows.Err()))
	}
	raw := rows.RawValues()
	ok, there := raw[0], raw[1]
	if !truth(ok) {
		return nil, endpoint.ErrStale
	}
	if !truth(there) {
		return nil, errNoTodo
	}
	var r row
	var skip bool
	if err := rows.Scan(append([]any{&skip, &skip}, r.targets()...)...); err != nil {
		return nil, fmt.Errorf("read todo %s: %w", id, err)
	}
	if !may(&r) {
		return nil, errNoTodo
	}
	return &r, nil
}

// truth reads a boolean as it comes over the wire, in binary or in text.
func truth(raw []byte) bool { return len(raw) == 1 && (raw[0] == 1 || raw[0] == 't') }

// ListCreated lists the line's todos in the queues that the caller may list, newest
// first.
func (s *Store) ListCreated(ctx context.Context, c endpoint.Caller, queue string, state State, cursor string, limit int) ([]Status, string, error) {
	limit, err := pageSize(limit)
	if err != nil {
		return nil, "", err
	}
	if state != "" && !state.known() {
		return nil, "", refusal.Invalid("state", "there is no such state")
	}
	if queue != "" && !c.May(scope.ListCreated, queue) {
		return nil, "", errNoQueue
	}
	var queues []string
	for _, q := range c.Endpoint.Scope.Queues {
		if (queue == "" || q == queue) && c.May(scope.ListCreated, q) {
			queues = append(queues, q)
		}
	}
	bind := postgres.BindCursor("list_created", c.Endpoint.ID.String(), queue, string(state))
	var before *time.Time
	var beforeID uuid.UUID
	if cursor != "" {
		at, id, err := postgres.DecodeCursorAt(bind, cursor)
		if err != nil {
			return nil, "", err
		}
		before, beforeID = &at, id
	}
	if err := s.check(ctx, c); err != nil {
		return nil, "", err
	}
	rows, err := s.pool.Query(ctx, `
		SELECT t.id, k.created_at, `+weight+`
		FROM todo_key k JOIN todo t ON t.owner = k.owner AND t.id = k.id`+ends+`
		WHERE k.owner = $1 AND k.line = $2 AND k.ordinal >= 0 AND t.queue = ANY ($3::text[])
			AND coalesce(l.state, o.state) IS NOT NULL
			AND ($4::text = '' OR coalesce(l.state, o.state) = $4)
			AND ($5::timestamptz IS NULL OR (k.created_at, k.id) < ($5, $6::uuid))
		ORDER BY k.created_at DESC, k.id DESC LIMIT $7`,
		c.Endpoint.Owner, c.Endpoint.Line, queues, string(state), before, beforeID, limit+1)
	if err != nil {
		return nil, "", unavailable(fmt.Errorf("list the line's todos: %w", err))
	}
	all, err := pgx.CollectRows(rows, scanWeighed)
	if err != nil {
		return nil, "", unavailable(fmt.Errorf("list the line's todos: %w", err))
	}
	shown, next := page(all, limit), ""
	if len(shown) < len(all) {
		last := shown[len(shown)-1]
		next = postgres.EncodeCursorAt(bind, last.at, last.id)
	}
	found, err := s.read(ctx, c.Endpoint.Owner, shown)
	if err != nil {
		return nil, "", err
	}
	found = slices.DeleteFunc(found, func(r row) bool { return state != "" && r.state != state }) // moved meanwhile
	artifacts, err := readArtifacts(ctx, s.pool, c.Endpoint.Owner, withArtifacts(found))
	if err != nil {
		return nil, "", unavailable(err)
	}
	out := make([]Status, len(found))
	for i := range found {
		out[i] = found[i].status(artifacts[found[i].id])
	}
	return out, next, nil
}

func withArtifacts(rows []row) []uuid.UUID {
	var ids []uuid.UUID
	for i := range rows {
		if rows[i].artifacts > 0 {
			ids = append(ids, rows[i].id)
		}
	}
	return ids
}

// check compares the caller's authority without locking; for reading.
func (s *Store) check(ctx context.Context, c endpoint.Caller) error {
	var ok bool
	err := s.pool.QueryRow(ctx, `SELECT i.ok FROM `+authorised, c.Endpoint.Owner, c.Endpoint.ID, c.Endpoint.Version, c.Until).Scan(&ok)
	if err != nil {
		return unavailable(fmt.Errorf("check endpoint %s: %w", c.Endpoint.ID, err))
	}
	if !ok {
		return endpoint.ErrStale
	}
	return nil
}

// Used is how much of its limits a line uses.
type Used struct {
	Open     int64 `json:"open"`
	ThisHour int64 `json:"this_hour"`
}

// Used counts the line's open todos and those that it created in the last hour, each
// to 100000 at most.
func (s *Store) Used(ctx context.Context, c endpoint.Caller) (Used, error) {
	if err := s.check(ctx, c); err != nil {
		return Used{}, err
	}
	var u Used
	if c.Endpoint.Kind == endpoint.Home {
		// Nothing of it is limited, so no index counts it.
		err := s.pool.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM (SELECT l.line FROM todo_live l WHERE l.owner = $1 LIMIT 100000) open WHERE open.line = $2),
				(SELECT count(*) FROM (
					SELECT t.line FROM todo t
					WHERE t.owner = $1 AND t.id >= (SELECT todo_first_id(clock_timestamp() - interval '1 hour')) LIMIT 100000
				) recent WHERE recent.line = $2)`, c.Endpoint.Owner, c.Endpoint.Line).Scan(&u.Open, &u.ThisHour)
		if err != nil {
			return Used{}, unavailable(fmt.Errorf("count what the line uses: %w", err))
		}
		return u, nil
	}
	err := s.pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM (SELECT FROM todo_live l WHERE l.line = $1 AND l.limited LIMIT 100000) open),
			(SELECT count(*) FROM (SELECT FROM todo_key k WHERE k.line = $1 AND k.ordinal >= 0
				AND k.created_at > (SELECT clock_timestamp() - interval '1 hour') LIMIT 100000) recent)`, c.Endpoint.Line).Scan(&u.Open, &u.ThisHour)
	if err != nil {
		return Used{}, unavailable(fmt.Errorf("count what the line uses: %w", err))
	}
	return u, nil
}
