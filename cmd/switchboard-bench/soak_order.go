package main

import (
	"context"
	"fmt"
)

// checkOrder looks at order and fairness where nothing disturbs: two friends fill
// a queue of its own, one of them with a flood, and one worker claims one todo
// after another.
func (s *soak) checkOrder(ctx context.Context) error {
	w := s.world
	flood := s.creator(w.quietLines[0], "quiet-flood")
	other := s.creator(w.quietLines[1], "quiet-other")
	plan := []struct {
		by       *creator
		n        int
		priority int
	}{{flood, 20, 5}, {other, 6, 5}, {flood, 3, 8}, {other, 3, 2}, {flood, 3, 2}}
	var created []placed
	for _, p := range plan {
		for range p.n {
			id, err := p.by.createPlain(ctx, p.priority)
			if err != nil {
				return err
			}
			created = append(created, placed{id: id, line: p.by.line, priority: p.priority})
		}
	}
	client := newSoakClient(w.quiet[0], nil)
	var taken []placed
	for range created {
		p, err := takeOne(ctx, client, created)
		if err != nil {
			return err
		}
		taken = append(taken, p)
	}
	if err := checkOrder(created, taken); err != nil {
		return err
	}
	s.sayf("order and fairness: ok, %d todos of two lines", len(created))
	return nil
}

// placed is a todo in the order of creation or of claims.
type placed struct {
	id, line string
	priority int
}

// checkOrder says what is wrong with the order in which todos, all of them there
// before the first claim, were taken: the more urgent first; within a priority the
// lines in turn, as long as both have some; within a line first come, first served.
func checkOrder(created, taken []placed) error {
	next := map[placed]int{} // by line and priority, within created
	left := map[placed]int{}
	class := func(p placed) placed { return placed{line: p.line, priority: p.priority} }
	for _, p := range created {
		left[class(p)]++
	}
	var turns []string // of the present priority
	for i, p := range taken {
		if i > 0 && p.priority > taken[i-1].priority {
			return fmt.Errorf("order: a todo of priority %d was claimed after one of %d", p.priority, taken[i-1].priority)
		}
		if i > 0 && p.priority != taken[i-1].priority {
			turns = nil
		}
		n := 0
		for _, c := range created {
			if class(c) != class(p) {
				continue
			}
			if n == next[class(p)] {
				if c.id != p.id {
					return fmt.Errorf("order: line %s, priority %d: todo %d was not claimed in its turn", p.line, p.priority, n)
				}
				break
			}
			n++
		}
		next[class(p)]++
		left[class(p)]--
		others := 0
		for c, n := range left {
			if c.priority == p.priority && c.line != p.line {
				others += n
			}
		}
		turns = append(turns, p.line)
		if n := len(turns); others > 0 && n >= 3 && turns[n-1] == turns[n-2] && turns[n-2] == turns[n-3] {
			return fmt.Errorf("fairness: line %s was served three times in a row while another waited", p.line)
		}
	}
	return nil
}

// createPlain creates one todo and returns its id.
func (c *creator) createPlain(ctx context.Context, priority int) (string, error) {
	key := newKeys(0).next()
	for n := 0; ; n++ {
		var a changed
		r := c.client.call(ctx, "create_for", map[string]any{"queue": c.queue, "title": key, "idempotency_key": key, "priority": priority}, 0)
		r.into(&a)
		if r.outcome == outcomeOK {
			return a.TodoID, nil
		}
		if r.outcome != outcomeUnknown || n > 100 || ctx.Err() != nil {
			return "", fmt.Errorf("create a todo of the quiet queue: %s", r.outcome)
		}
	}
}

// takeOne claims and completes the next todo.
func takeOne(ctx context.Context, client *soakClient, created []placed) (placed, error) {
	var a struct {
		Todos []struct {
			TodoID     string `json:"todo_id"`
			LeaseToken string `json:"lease_token"`
		} `json:"todos"`
	}
	r := client.call(ctx, "claim_next", map[string]any{"max": 1}, 0)
	r.into(&a)
	if r.outcome != outcomeOK || len(a.Todos) != 1 {
		return placed{}, fmt.Errorf("claim of the quiet queue: %s, %d todos", r.outcome, len(a.Todos))
	}
	t := a.Todos[0]
	if r := client.call(ctx, "complete", map[string]any{"todo_id": t.TodoID, "lease_token": t.LeaseToken}, 0); r.outcome != outcomeOK {
		return placed{}, fmt.Errorf("complete of the quiet queue: %s", r.outcome)
	}
	for _, c := range created {
		if c.id == t.TodoID {
			return c, nil
		}
	}
	return placed{}, fmt.Errorf("claim of the quiet queue: todo %s was never created", t.TodoID)
}
