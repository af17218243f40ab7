package todo

import (
	"context"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// Failure reports that an attempt failed. Error is for the owner, PublicMessage
// for the friend. RetryAfter takes the place of the backoff.
type Failure struct {
	TodoID        uuid.UUID
	LeaseToken    string
	Error         string
	PublicMessage string
	NoRetry       bool
	RetryAfter    *time.Duration
}

// Return gives a todo back.
type Return struct {
	TodoID     uuid.UUID
	LeaseToken string
	Reason     string
}

// ending is an attempt's end by its worker, other than completion.
type ending struct {
	verdict
	auth     *authority
	id       uuid.UUID
	token    uuid.UUID
	act      string
	hash     []byte
	error    *string
	message  *string
	reason   *string
	noRetry  bool
	retry    *int32 // seconds
	askingID *uuid.UUID
	asking   *string

	acted bool
	move  move
	after Changed
}

// Fail ends attempts as failed. With attempts left the todo is ready again after a
// backoff of 30 s, doubling to 15 min, with jitter; else it is failed.
func (s *Store) Fail(ctx context.Context, c endpoint.Caller, items []Failure) ([]Outcome[Changed], error) {
	return s.end(ctx, c, len(items), func(i int) (*ending, error) {
		f := items[i]
		if f.Error == "" {
			return nil, refusal.Invalid("error", "error must not be empty")
		}
		if err := long("error", f.Error, maxText); err != nil {
			return nil, err
		}
		if err := long("public_message", f.PublicMessage, maxText); err != nil {
			return nil, err
		}
		e := &ending{id: f.TodoID, act: actFailed, error: &f.Error, noRetry: f.NoRetry}
		if f.PublicMessage != "" {
			e.message = &f.PublicMessage
		}
		after := ""
		if f.RetryAfter != nil {
			if *f.RetryAfter < 0 || *f.RetryAfter > maxRetry {
				return nil, refusal.Invalid("retry_after_seconds", "retry_after_seconds must be from 0 to %d", int(maxRetry.Seconds()))
			}
			seconds := int32(f.RetryAfter.Seconds())
			e.retry, after = &seconds, strconv.Itoa(int(seconds))
		}
		e.hash = digest([]byte(actFailed), []byte(f.Error), []byte(f.PublicMessage), []byte(strconv.FormatBool(f.NoRetry)), []byte(after))
		return e, e.setToken(f.LeaseToken)
	})
}

// Release ends attempts without charging them: the todo is ready again at once, or
// canceled if that was asked for.
func (s *Store) Release(ctx context.Context, c endpoint.Caller, items []Return) ([]Outcome[Changed], error) {
	return s.end(ctx, c, len(items), func(i int) (*ending, error) {
		r := items[i]
		if err := long("reason", r.Reason, maxText); err != nil {
			return nil, err
		}
		e := &ending{id: r.TodoID, act: actReleased, hash: digest([]byte(actReleased), []byte(r.Reason))}
		if r.Reason != "" {
			e.reason = &r.Reason
		}
		return e, e.setToken(r.LeaseToken)
	})
}

// Ask ends the attempt with a question to the todo's creator, without charging it.
// The todo waits, for seven days at most, and is ready again once answered.
func (s *Store) Ask(ctx context.Context, c endpoint.Caller, id uuid.UUID, leaseToken, question string) (Changed, error) {
	out, err := s.end(ctx, c, 1, func(int) (*ending, error) {
		if question == "" {
			return nil, refusal.Invalid("question", "question must not be empty")
		}
		if err := long("question", question, maxText); err != nil {
			return nil, err
		}
		asking := newID()
		e := &ending{id: id, act: actAsked, asking: &question, askingID: &asking, hash: digest([]byte(actAsked), []byte(question))}
		return e, e.setToken(leaseToken)
	})
	if err != nil {
		return Changed{}, err
	}
	return out[0].Value, out[0].Err
}

// setToken reads a lease token. What was never one is as good as one that is lost.
func (e *ending) setToken(token string) (err error) {
	e.token, err = parseToken(token)
	return err
}

func parseToken(token string) (uuid.UUID, error) {
	if token == "" {
		return uuid.Nil, refusal.Invalid("lease_token", "lease_token must not be empty")
	}
	t, err := uuid.Parse(token)
	if err != nil || len(token) != 36 {
		return uuid.Nil, errLeaseLost
	}
	return t, nil
}

func (s *Store) end(ctx context.Context, c endpoint.Caller, n int, item func(int) (*ending, error)) ([]Outcome[Changed], error) {
	if err := checkItems(n); err != nil {
		return nil, err
	}
	w := &work{auth: authorityOf(c)}
	out := make([]Outcome[Changed], n)
	made := make([]*ending, n)
	for i := range out {
		e, err := item(i)
		if err != nil {
			out[i].Err = err
			continue
		}
		e.auth = &w.auth
		made[i] = e
		w.endings = append(w.endings, e)
		w.size += itemSize + textSize(e.error, e.message, e.reason, e.asking)
	}
	if len(w.endings) > 0 {
		if err := s.do(ctx, w); err != nil {
			return nil, err
		}
	}
	for i, e := range made {
		if e != nil {
			out[i].Value, out[i].Err = e.after, e.err
		}
	}
	return out, nil
}

func textSize(parts ...*string) (n int) {
	for _, p := range parts {
		if p != nil {
			n += len(*p)
		}
	}
	return n
}

// holds is the lateral look-up, in SQL, of the row that item i holds the lease of.
// LIMIT 1 keeps it a look-up by key whatever the statistics say; the row is then
// changed where it lies (ctid).
const holds = `LATERAL (
		SELECT l.ctid AS at FROM todo_live l
		WHERE l.owner = i.owner AND l.id = i.id AND ` + current + `
		LIMIT 1 FOR UPDATE
	) x`

// found is holds without the lock: what is then changed where it lies is compared again,
// by stillHeld, should it have changed in between.
const found = `LATERAL (
		SELECT l.ctid AS at FROM todo_live l
		WHERE l.owner = i.owner AND l.id = i.id AND ` + current + `
		LIMIT 1
	) x`

const stillHeld = `l.ctid = k.at AND l.state = 'leased' AND l.token = k.token`

// current is the condition, in SQL, that row l is leased under the token of item i,
// in one of its caller's queues.
const current = `l.state = 'leased' AND l.token = i.token AND l.queue = ANY (string_to_array(i.queues, ','))`

// endAttempts settles the attempts whose tokens are current. A row that changed
// between this statement's snapshot and its lock is not seen by its place, so
// nothing happens to it, and the item is tried again.
var endAttempts = `
WITH item AS MATERIALIZED (
	` + each(1, "owner uuid", "id uuid", "token uuid", "queues text", "act text", "digest bytea",
	"error text", "message text", "reason text", "no_retry bool", "retry_after int", "asking_id uuid", "asking text") + `
), locked AS MATERIALIZED (
	SELECT i.ord, i.act, i.digest, i.error, i.message, i.reason, i.no_retry, i.retry_after, i.asking_id, i.asking, x.at AS place
	FROM item i, ` + holds + `
), held AS MATERIALIZED (
	SELECT k.ord, k.act, k.digest, k.error, k.message, k.reason, k.no_retry, k.retry_after, k.asking_id, k.asking, ` + heldColumns + `
	FROM locked k, todo_live l WHERE l.ctid = k.place
)` + settle

func (r *round) queueEndings(b *script) {
	if len(r.endings) == 0 {
		return
	}
	items := inOrder(r.endings)
	n := len(items)
	owners, ids, tokens := make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
	queues, acts := make([]string, n), make([]string, n)
	hashes := make([][]byte, n)
	errs, messages, reasons, askings := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	noRetry, retry := make([]bool, n), make([]*int32, n)
	askingIDs := make([]*[16]byte, n)
	for i, e := range items {
		owners[i], ids[i], tokens[i], queues[i], acts[i], hashes[i] = e.auth.owner, e.id, e.token, e.auth.queues, e.act, e.hash
		errs[i], messages[i], reasons[i], askings[i] = e.error, e.message, e.reason, e.asking
		noRetry[i], retry[i], askingIDs[i] = e.noRetry, e.retry, (*[16]byte)(e.askingID)
	}
	b.add(endAttempts, owners, ids, tokens, queues, acts, hashes,
		errs, messages, reasons, noRetry, retry, askingIDs, askings).rows(func(rows pgx.Rows) error {
		return scanMoves(rows, func(ord int, m move) error {
			if ord < 1 || ord > n {
				return errUnexpected
			}
			e := items[ord-1]
			e.acted, e.move = true, m
			e.after = Changed{TodoID: m.id, State: m.state, Version: m.version}
			return nil
		})
	})
}
