package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// workerJob is what a worker process is told.
type workerJob struct {
	Name     string     `json:"name"` // unlike that of any other process of the run
	Homes    [][]target `json:"homes"`
	Lanes    []string   `json:"lanes"` // of the homes
	Journal  string     `json:"journal"`
	Routines int        `json:"routines"`
	Calm     bool       `json:"calm"` // finish whatever is claimed: the run is ending
}

func newWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker", Short: "One worker process of a soak", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var job workerJob
			ctx, say, err := underParent(c.Context(), &job)
			if err != nil {
				return err
			}
			return runWorker(ctx, job, say)
		},
	}
}

func runWorker(ctx context.Context, job workerJob, say func(any) error) error {
	f, err := os.OpenFile(job.Journal, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := say(armed{job.Routines}); err != nil {
		return err
	}
	j := &journal{out: f}
	return together(ctx, job.Routines, func(ctx context.Context, i int) error {
		at := i % len(job.Homes)
		w := &worker{
			who: fmt.Sprintf("%s.%d", job.Name, i), journal: j, client: newSoakClient(job.Homes[at], nil), lane: job.Lanes[at], calm: job.Calm,
		}
		return w.work(ctx)
	})
}

// worker is one goroutine that claims and works.
type worker struct {
	who     string
	journal *journal
	client  *soakClient
	lane    string
	calm    bool
	n       int // of what it says, so that no two say the same
}

// chance is true in so many of a hundred cases.
func chance(percent int) bool { return rand.IntN(100) < percent }

// say makes a text that nobody else says.
func (w *worker) say() string {
	w.n++
	return fmt.Sprintf("%s-%d", w.who, w.n)
}

func (w *worker) work(ctx context.Context) error {
	for ctx.Err() == nil {
		list, err := w.claim(ctx)
		if err != nil {
			return err
		}
		if len(list) > 1 && chance(40) {
			if err := w.completeAll(ctx, list); err != nil {
				return err
			}
			continue
		}
		for i := range list {
			if err := w.finish(ctx, &list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaseOf is a length that some work outlives.
func leaseOf() time.Duration { return time.Duration(2+rand.IntN(4)) * time.Second }

// claim returns leases, one operation each. A claim under a claim_id that had no
// answer is repeated until it has one; others are given up, and lapse.
func (w *worker) claim(ctx context.Context) ([]operation, error) {
	lease := leaseOf()
	arguments := map[string]any{"max": 1 + rand.IntN(3), "lease_seconds": int(lease.Seconds())}
	wait := time.Duration(rand.IntN(3)) * time.Second
	if wait > 0 {
		arguments["wait_seconds"] = int(wait.Seconds())
	}
	id := ""
	if chance(50) {
		id = w.say()
		arguments["claim_id"] = id
	}
	try := func() ([]operation, error) {
		return w.journal.record([]operation{{Who: w.who, Kind: "claim_next", Lane: w.lane, ClaimID: id, Lease: int64(lease)}}, func(ops []operation) []operation {
			return w.claimed(ops[0], w.client.call(ctx, "claim_next", arguments, wait))
		})
	}
	ops, err := try()
	for n := 0; err == nil && id != "" && ops[0].Outcome == outcomeUnknown && n < 50 && ctx.Err() == nil; n++ {
		ops, err = try()
	}
	if err == nil && id != "" && ops[0].ok() && chance(5) {
		ops, err = try()
	}
	if err != nil || !ops[0].ok() || ops[0].Todo == "" {
		return nil, err
	}
	return ops, nil
}

// claimed makes an operation of each lease, or one that says that there was none.
func (w *worker) claimed(o operation, r reply) []operation {
	var a struct {
		Todos []struct {
			TodoID         string    `json:"todo_id"`
			Version        int64     `json:"version"`
			LeaseToken     string    `json:"lease_token"`
			LeaseExpiresAt time.Time `json:"lease_expires_at"`
			Attempt        int       `json:"attempt"`
			Priority       int       `json:"priority"`
			Title          string    `json:"title"`
			FromFriend     *struct {
				Title string `json:"title"`
			} `json:"from_friend"`
		} `json:"todos"`
	}
	r.into(&a)
	o.Outcome = r.outcome
	if !o.ok() || len(a.Todos) == 0 {
		return []operation{o}
	}
	var out []operation
	for _, t := range a.Todos {
		c := o
		c.Todo, c.Version, c.Token, c.Attempt, c.Priority = t.TodoID, t.Version, t.LeaseToken, t.Attempt, t.Priority
		c.Expires, c.Read = t.LeaseExpiresAt.UnixNano(), t.Title
		if t.FromFriend != nil {
			c.Read = t.FromFriend.Title
		}
		out = append(out, c)
	}
	return out
}

// changed is the answer of what a worker does with a lease, alone or in a batch.
type changed struct {
	TodoID          string     `json:"todo_id"`
	State           string     `json:"state"`
	Version         int64      `json:"version"`
	LeaseExpiresAt  *time.Time `json:"lease_expires_at"`
	CancelRequested bool       `json:"cancel_requested"`
	Deduplicated    bool       `json:"deduplicated"`
	Error           *refused   `json:"error"`
}

// told puts an answer into the operation.
func (o *operation) told(c changed) {
	if c.Error != nil {
		o.Outcome = c.Error.outcome()
		return
	}
	o.Outcome, o.State, o.Version = outcomeOK, c.State, c.Version
	if c.LeaseExpiresAt != nil {
		o.Expires = c.LeaseExpiresAt.UnixNano()
	}
}

// of begins an operation on the lease that claim got.
func (w *worker) of(claim *operation, kind, said string) operation {
	return operation{Who: w.who, Kind: kind, Lane: w.lane, Todo: claim.Todo, Token: claim.Token, Said: said}
}

// act calls a tool about the lease, and again while there is no answer, which is
// a repeat with the same content. It returns the last answer.
func (w *worker) act(ctx context.Context, claim *operation, kind, said string, arguments map[string]any) (operation, changed, error) {
	arguments["todo_id"], arguments["lease_token"] = claim.Todo, claim.Token
	var c changed
	for n := 0; ; n++ {
		ops, err := w.journal.record([]operation{w.of(claim, kind, said)}, func(ops []operation) []operation {
			r := w.client.call(ctx, kind, arguments, 0)
			r.into(&c)
			if ops[0].Outcome = r.outcome; ops[0].ok() {
				ops[0].told(c)
			}
			return ops
		})
		if err != nil {
			return operation{}, c, err
		}
		again := ops[0].Outcome == outcomeUnknown && kind != "heartbeat" && n < 50 || ops[0].ok() && kind != "heartbeat" && chance(3)
		if !again || ctx.Err() != nil {
			return ops[0], c, nil //nolint:nilerr // the end of the run is no failure
		}
	}
}

// finish works on one todo until it is out of hands.
func (w *worker) finish(ctx context.Context, claim *operation) error {
	for range rand.IntN(3) {
		arguments := map[string]any{}
		if chance(50) {
			arguments["progress"] = map[string]any{"percent": rand.IntN(100), "note": w.say()}
		}
		if chance(10) {
			arguments["artifacts"] = []any{map[string]any{"name": "log", "media_type": "text/plain", "text": w.say()}}
		}
		pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
		o, c, err := w.act(ctx, claim, "heartbeat", "", arguments)
		if err != nil || o.Outcome == "lease_lost" {
			return err
		}
		if o.ok() && c.CancelRequested && chance(70) {
			_, _, err := w.act(ctx, claim, "release", "asked to stop", map[string]any{"reason": "asked to stop"})
			return err
		}
	}
	if !w.calm && chance(2) {
		pause(ctx, time.Duration(claim.Lease)+300*time.Millisecond) // it has lapsed, and we do not know
	}
	said := w.say()
	kind, arguments := w.ending(said)
	_, _, err := w.act(ctx, claim, kind, said, arguments)
	return err
}

// ending chooses how an attempt ends.
func (w *worker) ending(said string) (kind string, arguments map[string]any) {
	n := rand.IntN(100)
	switch {
	case w.calm || n < 76:
		return "complete", map[string]any{"result": said}
	case n < 84:
		return "fail", map[string]any{"error": said, "retry_after_seconds": rand.IntN(2)}
	case n < 86:
		return "fail", map[string]any{"error": said, "retry": false, "public_message": said}
	case n < 96:
		return "release", map[string]any{"reason": said}
	default:
		return "ask", map[string]any{"question": said}
	}
}

// completeAll completes several in one call.
func (w *worker) completeAll(ctx context.Context, list []operation) error {
	var ops []operation
	var batch []any
	for i := range list {
		said := w.say()
		ops = append(ops, w.of(&list[i], "complete", said))
		batch = append(batch, map[string]any{"todo_id": list[i].Todo, "lease_token": list[i].Token, "result": said})
	}
	for range 50 {
		again := make([]operation, len(ops))
		copy(again, ops)
		done, err := w.journal.record(again, func(ops []operation) []operation {
			var a struct {
				Results []changed `json:"results"`
			}
			r := w.client.call(ctx, "complete", map[string]any{"items": batch}, 0)
			r.into(&a)
			if r.outcome == outcomeOK && len(a.Results) != len(ops) {
				r.outcome = fmt.Sprintf("%d results for %d items", len(a.Results), len(ops))
			}
			for i := range ops {
				if ops[i].Outcome = r.outcome; ops[i].ok() {
					ops[i].told(a.Results[i])
				}
			}
			return ops
		})
		if err != nil || done[0].Outcome != outcomeUnknown || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// memoryJournal keeps a journal's lines in this process.
type memoryJournal struct {
	mu  sync.Mutex
	buf strings.Builder
}

// Write keeps a line.
func (m *memoryJournal) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.buf.Write(b)
}

func (m *memoryJournal) operations() ([]operation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return readEntries(strings.NewReader(m.buf.String()))
}

// textOf is a JSON string's text.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}
