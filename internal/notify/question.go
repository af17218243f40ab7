package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/friend"
	"switchboard/internal/quote"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

// Todos is what this package needs of package todo: the questions that wait, and
// one todo at the moment when its question is told.
type Todos interface {
	AskedSince(ctx context.Context, moment time.Time, limit int) ([]todo.Asked, error)
	Get(ctx context.Context, owner, id uuid.UUID) (todo.Detail, error)
}

// A worker asks in the queue's fastest path, in batches that must not wait for an
// outbox. An open question is durable by itself and stays for seven days, so it is
// its own outbox: replicas look for new ones, and the id of a notification follows
// from that of the question. What was asked while no replica ran, for up to
// askedBefore, is found when one starts.
const (
	askedBefore  = 24 * time.Hour
	askedOverlap = 2 * time.Minute // longer than any commit takes
	askedAtOnce  = 500
	// askedPerHour bounds what one worker's many questions come to; the inbox has all.
	askedPerHour = 20
)

// questions looks for new questions until ctx ends.
func (s *Store) questions(ctx context.Context) {
	var since time.Time
	tick := time.NewTicker(2 * s.o.PollEvery)
	defer tick.Stop()
	for {
		if next, err := s.lookForQuestions(ctx, since); err == nil {
			since = next
		} else if ctx.Err() == nil {
			s.o.Log.WarnContext(ctx, "notify: look for questions", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lookForQuestions writes a notification for each new question and returns from
// where to look the next time.
func (s *Store) lookForQuestions(ctx context.Context, since time.Time) (time.Time, error) {
	if since.IsZero() {
		if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp() - $1::interval`, askedBefore).Scan(&since); err != nil {
			return since, fmt.Errorf("read the clock: %w", err)
		}
	}
	from := since
	for {
		asked, err := s.o.Todos.AskedSince(ctx, from, askedAtOnce)
		if err != nil {
			return since, err
		}
		fresh, err := s.unwritten(ctx, asked)
		if err != nil {
			return since, err
		}
		for _, a := range fresh {
			if err := s.putQuestion(ctx, a); err != nil {
				return since, err
			}
		}
		if len(asked) == 0 {
			break
		}
		from = asked[len(asked)-1].AskedAt
		if len(asked) < askedAtOnce {
			break
		}
	}
	if next := from.Add(-askedOverlap); next.After(since) {
		return next, nil
	}
	return since, nil
}

func questionID(a todo.Asked) uuid.UUID { return named(kindAsked, a.Question, owner) }

// unwritten are the questions of which there is no notification yet.
func (s *Store) unwritten(ctx context.Context, asked []todo.Asked) ([]todo.Asked, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	owners, ids := make([]uuid.UUID, len(asked)), make([]uuid.UUID, len(asked))
	for i, a := range asked {
		owners[i], ids[i] = a.Owner, questionID(a)
	}
	rows, err := s.pool.Query(ctx, `
		SELECT n.id FROM unnest($1::uuid[], $2::uuid[]) AS i(owner, id) JOIN notification n ON n.owner = i.owner AND n.id = i.id`, owners, ids)
	if err != nil {
		return nil, fmt.Errorf("look for notifications: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for notifications: %w", err)
	}
	written := map[uuid.UUID]bool{}
	for _, id := range list {
		written[id] = true
	}
	var fresh []todo.Asked
	for _, a := range asked {
		if !written[questionID(a)] {
			fresh = append(fresh, a)
		}
	}
	return fresh, nil
}

// putQuestion writes the notification of a question that the human has to answer.
func (s *Store) putQuestion(ctx context.Context, a todo.Asked) error {
	theirs, err := s.friendAnswers(ctx, a)
	if err != nil || theirs {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var lately int
		if err := tx.QueryRow(ctx, `
			SELECT count(*) FROM notification WHERE owner = $1 AND kind = $2 AND created_at > clock_timestamp() - interval '1 hour'`,
			a.Owner, kindAsked).Scan(&lately); err != nil {
			return fmt.Errorf("count the questions: %w", err)
		}
		if lately >= askedPerHour {
			return nil
		}
		return s.put(ctx, tx, notification{Owner: a.Owner, ID: questionID(a), Kind: kindAsked, Side: owner, GrantID: a.GrantID, TodoID: &a.Todo, QuestionID: &a.Question})
	})
}

// friendAnswers reports whether the question is for the friend whose todo it is. A
// friend who may not answer leaves it to the human, or nobody would.
func (s *Store) friendAnswers(ctx context.Context, a todo.Asked) (bool, error) {
	if a.GrantID == nil {
		return false, nil
	}
	g, err := s.o.Friends.Grant(ctx, a.Owner, *a.GrantID)
	if errors.Is(err, refusal.New(refusal.NotFound, "")) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the grant of a question: %w", err)
	}
	return g.State == friend.GrantActive && slices.Contains(g.Scope.Verbs, scope.Answer), nil
}

func (s *Store) composeAsked(ctx context.Context, n notification, m *message) (bool, error) {
	t, err := s.o.Todos.Get(ctx, n.Owner, orZero(n.TodoID))
	if err != nil || t.Question == nil || t.Question.ID != orZero(n.QuestionID) {
		return false, err // answered meanwhile, or another question by now, which has its own
	}
	m.Headline = "A todo in " + t.Queue + " asks a question"
	title := t.Title
	if t.FromFriend != nil {
		title = t.FromFriend.Title
		m.Lead = []string{quote.Visible(t.FromFriend.Identity, maxWho) + " handed it over and may not answer, so it is yours to."}
	}
	if title != "" {
		m.Lead = append([]string{"It is called “" + unlink(quote.Visible(title, maxName)) + "”."}, m.Lead...)
	}
	m.QuotedBy, m.Quoted = "The question, in the worker's words", quote.VisibleLines(t.Question.Text, maxReason, quote.Kept)
	until := t.Question.AskedAt.Add(7 * 24 * time.Hour)
	m.Tail = []string{"The todo waits for the answer until " + date(until) + ", and is given up then."}
	m.Action, m.Link = "Answer it", s.o.PublicURL+"/todos/"+t.TodoID.String()
	m.Data = hookData{Queue: t.Queue, Todo: &t.TodoID, Question: m.Quoted, State: string(t.State), ExpiresAt: moment(until), Grant: n.GrantID}
	return true, nil
}
