package main

import (
	"context"
	"encoding/json"
	"fmt"

	"switchboard/internal/endpoint"
	"switchboard/internal/todo"
)

// storeCaller runs lifecycles on todo.Store.
type storeCaller struct {
	todos  *todo.Store
	caller endpoint.Caller
	queue  string
	keys   *keys
}

// storeCallers are n callers spread over the instance's homes.
func (in *instance) storeCallers(ctx context.Context, n int) ([]*storeCaller, error) {
	callers, err := in.callers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*storeCaller, n)
	for i := range out {
		at := i % len(callers)
		out[i] = &storeCaller{todos: in.todos, caller: callers[at], queue: in.homes[at].Queue, keys: newKeys(i)}
	}
	return out, nil
}

// only is the outcome of a batch of one.
func only[T any](out []todo.Outcome[T], err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return out[0].Value, out[0].Err
}

func newTodo(queue, key string) todo.New {
	return todo.New{Queue: queue, Title: title, IdempotencyKey: key, Body: body, Payload: json.RawMessage(payload)}
}

// lifecycle takes one todo through its life.
func (c *storeCaller) lifecycle(ctx context.Context) (int, error) {
	if _, err := only(c.todos.Create(ctx, c.caller, []todo.New{newTodo(c.queue, c.keys.next())})); err != nil {
		return 0, fmt.Errorf("create: %w", err)
	}
	var t todo.Claimed
	for {
		list, err := c.todos.ClaimNext(ctx, c.caller, todo.ClaimNext{Max: 1})
		if err != nil {
			return 0, fmt.Errorf("claim: %w", err)
		}
		if len(list) > 0 { // else another caller of this queue was faster
			t = list[0]
			break
		}
	}
	if _, err := only(c.todos.Heartbeat(ctx, c.caller, []todo.Beat{{TodoID: t.TodoID, LeaseToken: t.LeaseToken}})); err != nil {
		return 0, fmt.Errorf("heartbeat: %w", err)
	}
	return 1, c.complete(ctx, t)
}

func (c *storeCaller) complete(ctx context.Context, t todo.Claimed) error {
	_, err := only(c.todos.Complete(ctx, c.caller, []todo.Completion{{TodoID: t.TodoID, LeaseToken: t.LeaseToken, Result: json.RawMessage(result)}}))
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	return nil
}
