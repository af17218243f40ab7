package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// creator is one goroutine of a friend's agent: it hands over work, answers
// questions, and now and then changes its mind.
type creator struct {
	who     string
	line    string
	lane    string
	queue   string
	journal *journal
	client  *soakClient
	pace    time.Duration // between creations

	n     int
	known []operation // acknowledged creations, the last few
}

func (c *creator) work(ctx context.Context) error {
	for ctx.Err() == nil {
		var err error
		switch n := rand.IntN(100); {
		case n < 84:
			err = c.create(ctx, 1)
		case n < 90:
			err = c.create(ctx, 2+rand.IntN(4))
		case n < 94:
			err = c.repeat(ctx)
		case n < 96:
			err = c.cancel(ctx)
		default:
			err = c.answerAll(ctx)
		}
		if err != nil {
			return err
		}
		pause(ctx, time.Duration(rand.Int64N(int64(2*c.pace)+1)))
	}
	return nil
}

// create hands over new todos until they are acknowledged or refused, now and
// then giving up, as a client that crashed would.
func (c *creator) create(ctx context.Context, n int) error {
	var ops []operation
	var items []any
	for range n {
		c.n++
		key := fmt.Sprintf("%s-%d", c.who, c.n)
		o := operation{Who: c.who, Kind: "create_for", Line: c.line, Lane: c.lane, Key: key, Said: "todo " + key, Priority: []int{3, 5, 5, 5, 7}[rand.IntN(5)]}
		item := map[string]any{"queue": c.queue, "title": o.Said, "idempotency_key": key, "priority": o.Priority, "body": "Look at it.", "payload": map[string]any{"key": key}}
		if chance(4) {
			o.Later = true
			item["not_before"] = time.Now().Add(time.Duration(rand.IntN(2000)) * time.Millisecond).UTC().Format(time.RFC3339Nano)
		}
		ops, items = append(ops, o), append(items, item)
	}
	for {
		done, err := c.try(ctx, ops, items)
		if err != nil {
			return err
		}
		unknown := false
		for _, o := range done {
			if o.ok() {
				c.remember(o)
			}
			unknown = unknown || o.Outcome == outcomeUnknown
			if o.Outcome == "quota_exceeded" {
				pause(ctx, 200*time.Millisecond)
			}
		}
		if !unknown || ctx.Err() != nil || chance(5) {
			return nil //nolint:nilerr // the end of the run is no failure
		}
	}
}

func (c *creator) try(ctx context.Context, ops []operation, items []any) ([]operation, error) {
	again := make([]operation, len(ops))
	copy(again, ops)
	return c.journal.record(again, func(ops []operation) []operation {
		var r reply
		var list []changed
		if len(items) == 1 {
			list = make([]changed, 1)
			r = c.client.call(ctx, "create_for", items[0], 0)
			r.into(&list[0])
		} else {
			var a struct {
				Results []changed `json:"results"`
			}
			r = c.client.call(ctx, "create_for", map[string]any{"items": items}, 0)
			r.into(&a)
			list = a.Results
			if r.outcome == outcomeOK && len(list) != len(ops) {
				r.outcome = fmt.Sprintf("%d results for %d items", len(list), len(ops))
			}
		}
		for i := range ops {
			if ops[i].Outcome = r.outcome; ops[i].ok() {
				ops[i].told(list[i])
				ops[i].Todo, ops[i].Deduplicated = list[i].TodoID, list[i].Deduplicated
			}
		}
		return ops
	})
}

func (c *creator) remember(o operation) {
	const few = 50
	c.known = append(c.known, o)
	if len(c.known) > few {
		c.known = c.known[1:]
	}
}

func (c *creator) any() (operation, bool) {
	if len(c.known) == 0 {
		return operation{}, false
	}
	return c.known[rand.IntN(len(c.known))], true
}

// repeat creates what is known once more, as it was or with another content.
func (c *creator) repeat(ctx context.Context) error {
	o, ok := c.any()
	if !ok || o.Later { // not_before is part of the content, and is not kept
		return nil
	}
	o = operation{Who: c.who, Kind: o.Kind, Line: o.Line, Lane: o.Lane, Key: o.Key, Said: o.Said, Priority: o.Priority}
	if chance(30) {
		o.Said += " otherwise"
	}
	_, err := c.try(ctx, []operation{o}, []any{map[string]any{
		"queue": c.queue, "title": o.Said, "idempotency_key": o.Key, "priority": o.Priority, "body": "Look at it.", "payload": map[string]any{"key": o.Key},
	}})
	return err
}

func (c *creator) cancel(ctx context.Context) error {
	o, ok := c.any()
	if !ok {
		return nil
	}
	return c.change(ctx, "cancel_todo", o.Todo, "", map[string]any{"todo_id": o.Todo, "reason": "changed my mind"})
}

// change calls a tool about a todo of the line.
func (c *creator) change(ctx context.Context, tool, todo, said string, arguments map[string]any) error {
	_, err := c.journal.record([]operation{{Who: c.who, Kind: tool, Line: c.line, Lane: c.lane, Todo: todo, Said: said}}, func(ops []operation) []operation {
		var a changed
		r := c.client.call(ctx, tool, arguments, 0)
		r.into(&a)
		if ops[0].Outcome = r.outcome; ops[0].ok() {
			ops[0].told(a)
		}
		return ops
	})
	return err
}

// answerAll answers the questions that wait.
func (c *creator) answerAll(ctx context.Context) error {
	r := c.client.call(ctx, "list_created", map[string]any{"state": "input_required", "limit": 20}, 0)
	var a struct {
		Todos []struct {
			TodoID   string `json:"todo_id"`
			Question *struct {
				ID string `json:"id"`
			} `json:"question"`
		} `json:"todos"`
	}
	r.into(&a)
	for _, t := range a.Todos {
		if t.Question == nil {
			continue
		}
		key := fmt.Sprintf("answer to %s", t.Question.ID)
		arguments := map[string]any{"todo_id": t.TodoID, "text": "Yes.", "question_id": t.Question.ID, "idempotency_key": key}
		if err := c.change(ctx, "answer", t.TodoID, key, arguments); err != nil {
			return err
		}
	}
	return nil
}
