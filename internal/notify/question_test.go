package notify_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/human"
	"switchboard/internal/notify"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

// asking stands for package todo.
type asking struct {
	mu    sync.Mutex
	open  []todo.Asked
	todos map[uuid.UUID]todo.Detail
	looks int
}

func (a *asking) AskedSince(_ context.Context, moment time.Time, limit int) ([]todo.Asked, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	var out []todo.Asked
	for _, q := range a.open {
		if q.AskedAt.After(moment) && len(out) < limit {
			out = append(out, q)
		}
	}
	return out, nil
}

func (a *asking) Get(_ context.Context, owner, id uuid.UUID) (todo.Detail, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d, ok := a.todos[id]; ok {
		return d, nil
	}
	return todo.Detail{}, refusal.New(refusal.NotFound, "there is no such todo")
}

// ask opens a question on a new todo.
func (a *asking) ask(t *testing.T, owner uuid.UUID, grant *uuid.UUID, text string) todo.Asked {
	t.Helper()
	q := todo.Asked{Owner: owner, Todo: newID(t), Question: newID(t), GrantID: grant, AskedAt: time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = append(a.open, q)
	d := todo.Detail{TodoID: q.Todo, Queue: "reviews", State: todo.InputRequired, Title: "Review PR 7", GrantID: grant, Question: &todo.Question{ID: q.Question, Text: text, AskedAt: q.AskedAt}}
	if grant != nil {
		d.FromFriend, d.Title = &todo.FromFriend{Identity: "alice@example.com", Title: "Review\u202E PR 7"}, ""
	}
	a.todos[q.Todo] = d
	return q
}

// looked waits until questions that are there now have been looked for.
func (a *asking) looked(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	from := a.looks
	a.mu.Unlock()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.looks >= from+2
	}, patience, time.Millisecond)
}

func TestQuestions_ReachWhoHasToAnswer(t *testing.T) {
	t.Parallel()
	a := &asking{todos: map[uuid.UUID]todo.Detail{}}
	i := newInstance(t, func(o *notify.Options) { o.Todos = a })
	q := a.ask(t, i.bob.ID, nil, "Which index may go?\nSee https://evil.example")
	stop := run(t, i.store)
	second := i.replica(t, i.pool)
	stopSecond := run(t, second)
	require.Eventually(t, func() bool { return len(i.sink.received()) > 0 && len(i.hook.received()) > 0 }, patience, tick)
	a.looked(t)
	i.settled(t)
	require.Len(t, i.sink.received(), 1, "once, whatever the replicas")
	mail := i.sink.received()[0].Text
	require.Contains(t, mail, "A todo in reviews asks a question")
	require.Contains(t, mail, "> Which index may go?")
	require.Contains(t, mail, publicURL+"/todos/"+q.Todo.String())
	require.NotContains(t, mail, "https://evil.example", "a worker's words cannot be clicked")
	require.Contains(t, mail, "/settings#h-notify", "how to turn it off")
	require.Len(t, i.hook.received(), 1)
	require.Contains(t, string(i.hook.received()[0].Body), `"type":"todo.asked"`)
	require.Contains(t, string(i.hook.received()[0].Body), q.Todo.String())

	// A friend who may answer is asked by their own agent; one who may not leaves it to the human.
	g := i.grant(t)
	g.Scope.Verbs = append(g.Scope.Verbs, scope.Answer)
	i.friends.setGrant(g)
	a.ask(t, i.bob.ID, &g.ID, "For the friend.")
	a.looked(t)
	i.settled(t)
	require.Len(t, i.sink.received(), 1)
	g.Scope.Verbs = []scope.Verb{scope.CreateFor}
	i.friends.setGrant(g)
	a.ask(t, i.bob.ID, &g.ID, "For the owner.")
	a.looked(t)
	i.settled(t)
	require.Eventually(t, func() bool { return len(i.sink.received()) >= 2 }, patience, tick)
	texts := i.sink.received()[1].Text + i.sink.received()[len(i.sink.received())-1].Text
	require.Contains(t, texts, "alice@example.com handed it over")
	require.NotContains(t, texts, "\u202E")
	stop()
	stopSecond()

	// What was answered before anybody was told is told to nobody, and one who wants no mail gets none.
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications = human.Notifications{} })
	had := len(i.sink.received())
	gone := a.ask(t, i.bob.ID, nil, "Too late.")
	a.mu.Lock()
	delete(a.todos, gone.Todo)
	a.mu.Unlock()
	a.ask(t, i.bob.ID, nil, "Not by mail.")
	run(t, i.replica(t, i.pool))
	a.looked(t)
	i.settled(t)
	require.Len(t, i.sink.received(), had)
}

func TestQuestions_AreBoundedAndGoIntoTheDigest(t *testing.T) {
	t.Parallel()
	a := &asking{todos: map[uuid.UUID]todo.Detail{}}
	i := newInstance(t, func(o *notify.Options) { o.Todos = a })
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications = human.Notifications{Email: true, Digest: "daily"} })
	for range 25 {
		a.ask(t, i.bob.ID, nil, strings.Repeat("?", 10))
	}
	run(t, i.store)
	waiting := func() int {
		return i.count(t, `SELECT count(*) FROM notification_delivery WHERE channel = 'digest' AND outcome = 'waiting'`)
	}
	require.Eventually(t, func() bool { return waiting() >= 20 }, patience, tick)
	a.looked(t)
	i.settled(t)
	require.Empty(t, i.sink.received())
	require.Equal(t, 20, waiting())
}
