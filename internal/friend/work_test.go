package friend_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/postgres"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

// desk is a bundle whose endpoints and todos are real.
type desk struct {
	*bundle
	endpoints *endpoint.Store
	todos     *todo.Store
}

func working(t *testing.T) *desk {
	t.Helper()
	b, endpoints := vending(t)
	wake := postgres.NewWake(b.pool.Config().ConnString(), postgres.WakeOptions{})
	t.Cleanup(wake.Close)
	todos, err := todo.Open(t.Context(), b.pool, wake, todo.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, todos.Close(context.Background())) })
	require.NoError(t, b.inTx(func(ctx context.Context, tx txn) error { return todos.HumanCreated(ctx, tx, b.bob) }))
	for _, q := range []string{"reviews", "triage"} {
		_, err := todos.CreateQueue(t.Context(), b.bob, q, "")
		require.NoError(t, err)
	}
	b.options.Todos, b.options.Wake = todos, wake
	b.store = friend.New(b.pool, b.options)
	return &desk{bundle: b, endpoints: endpoints, todos: todos}
}

// caller is the agent of the grant, with a token of its key.
func (d *desk) caller(key *provenance.Key, g friend.Grant) endpoint.Caller {
	d.t.Helper()
	assertion, err := provenance.ClientAssertion(key, publicURL, time.Now())
	require.NoError(d.t, err)
	tok, err := d.endpoints.IssueForKey(d.t.Context(), endpoint.KeyGrant{Assertion: assertion, Resource: g.EndpointURL})
	require.NoError(d.t, err)
	c, err := d.endpoints.Authenticate(d.t.Context(), g.EndpointID, tok.Access)
	require.NoError(d.t, err)
	return c
}

func (d *desk) create(c endpoint.Caller, key string) (todo.Created, error) {
	out, err := d.todos.Create(d.t.Context(), c, []todo.New{{Queue: "reviews", Title: "Review", IdempotencyKey: key}})
	if err != nil {
		return todo.Created{}, err
	}
	return out[0].Value, out[0].Err
}

func TestWork_ARenewedGrantForgetsNothing(t *testing.T) {
	t.Parallel()
	d := working(t)
	first, second := newKey(t), newKey(t)
	g := d.granted(from{key: first})
	made, err := d.create(d.caller(first, g), "pr-7")
	require.NoError(t, err)

	renewed := d.granted(from{key: second, supersedes: g.ID})
	again, err := d.create(d.caller(second, renewed), "pr-7")
	require.NoError(t, err)
	require.Equal(t, made.TodoID, again.TodoID)
	require.True(t, again.Deduplicated)

	// Another agent of the same person has a line of its own.
	third := newKey(t)
	other, err := d.create(d.caller(third, d.granted(from{key: third})), "pr-7")
	require.NoError(t, err)
	require.NotEqual(t, made.TodoID, other.TodoID)
}

func TestWork_OnceRevokeHasAnsweredNothingMoreTakesEffect(t *testing.T) {
	t.Parallel()
	d := working(t)
	for _, finish := range []bool{true, false} {
		key := newKey(t)
		g := d.granted(from{key: key})
		c := d.caller(key, g)
		var answered atomic.Bool
		var late, made atomic.Int64
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			together(6, func(i int) {
				for n := 0; ; n++ {
					over := answered.Load()
					_, err := d.create(c, fmt.Sprintf("%d-%d", i, n))
					switch {
					case err == nil && over:
						late.Add(1)
					case err == nil:
						if made.Add(1) == 10 {
							close(stop)
						}
					case errors.Is(err, endpoint.ErrStale):
						return
					case refusal.CodeOf(err) == refusal.QuotaExceeded, refusal.CodeOf(err) == refusal.RateLimited:
					}
				}
			})
		}()
		<-stop
		_, err := d.store.Revoke(t.Context(), d.bob, g.ID, finish)
		require.NoError(t, err)
		answered.Store(true)
		open := d.count(`SELECT count(*) FROM todo_live l WHERE l.line = $1`, g.Line)
		<-done
		require.Zero(t, late.Load(), "acknowledged after revoke had answered")
		require.Equal(t, open, d.count(`SELECT count(*) FROM todo_live l WHERE l.line = $1`, g.Line))
		if !finish {
			require.Zero(t, open)
		} else {
			require.NotZero(t, open)
		}
	}
}

func TestWork_TheConsentTodoIsBobsAlone(t *testing.T) {
	t.Parallel()
	d := working(t)
	r := d.pending(from{})
	items, _, err := d.todos.Inbox(t.Context(), d.bob, "", 0)
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Equal(t, r.ID, *items[0].FriendRequestID)
	for name, touch := range map[string]func() error{
		"cancel":  func() error { _, err := d.todos.CancelOwn(t.Context(), d.bob, r.TodoID, "x"); return err },
		"retry":   func() error { _, err := d.todos.Retry(t.Context(), d.bob, r.TodoID); return err },
		"release": func() error { _, err := d.todos.ReleaseOwn(t.Context(), d.bob, r.TodoID); return err },
	} {
		t.Run(name, func(t *testing.T) { require.Error(t, touch()) })
	}
	_, err = d.store.Approve(t.Context(), d.bob, r.ID, friend.Approval{})
	require.NoError(t, err)
	items, _, err = d.todos.Inbox(t.Context(), d.bob, "", 0)
	require.NoError(t, err)
	require.Empty(t, items)
}
