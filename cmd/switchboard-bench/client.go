package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
)

// clientJob is what a client process is told.
type clientJob struct {
	Kind    string        `json:"kind"` // lifecycle, hold, wake
	Lean    bool          `json:"lean"`
	Batch   int           `json:"batch"` // todos a call; 1 is one MCP call a step and todo
	Callers int           `json:"callers"`
	Targets []target      `json:"targets"`
	Warm    time.Duration `json:"warm"`
	Length  time.Duration `json:"length"`

	Creator  target `json:"creator"`  // wake: where todos are created
	Samples  int    `json:"samples"`  // wake
	Database string `json:"database"` // wake: where single commits are measured
}

func newClientCommand() *cobra.Command {
	return &cobra.Command{
		Use: "client", Short: "One client process of a benchmark", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var job clientJob
			ctx, say, err := underParent(c.Context(), &job)
			if err != nil {
				return err
			}
			switch job.Kind {
			case "lifecycle":
				m, err := runLifecycles(ctx, job)
				if err != nil {
					return err
				}
				return say(m)
			case "hold":
				return runHold(ctx, job, say)
			case "wake":
				w, err := runWake(ctx, job)
				if err != nil {
					return err
				}
				return say(w)
			}
			return fmt.Errorf("no such kind of client: %q", job.Kind)
		},
	}
}

// inClient runs a job in a client process and reads what it says in the end.
func inClient[T any](ctx context.Context, job clientJob) (T, error) {
	var out T
	p, err := start("client", job)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, job.Warm+job.Length+2*time.Minute)
	defer cancel()
	if err := p.receive(ctx, &out); err != nil {
		p.kill()
		return out, err
	}
	return out, p.stop()
}

// runLifecycles lets callers run lifecycles, each over a connection of its own.
func runLifecycles(ctx context.Context, job clientJob) (measured, error) {
	client := newHTTPClient(job.Callers)
	callers := make([]*mcpCaller, job.Callers)
	for i := range callers {
		t := job.Targets[i%len(job.Targets)]
		c := &mcpCaller{queue: t.Queue, keys: newKeys(i), batch: job.Batch}
		if job.Lean {
			l, err := dialLean(ctx, t)
			if err != nil {
				return measured{}, err
			}
			defer l.close()
			c.conn = l
		} else {
			c.conn, c.decode = newStandard(client, t), true
		}
		callers[i] = c
	}
	return drive(ctx, job.Callers, job.Warm, job.Length, func(ctx context.Context, i int) (int, error) {
		return callers[i].lifecycle(ctx)
	})
}

// keys makes idempotency keys that nobody else makes.
type keys struct {
	prefix string
	n      int64
	buf    []byte
}

func newKeys(caller int) *keys {
	return &keys{prefix: rand.Text()[:10] + "-" + strconv.Itoa(caller) + "-"}
}

func (k *keys) next() string {
	k.n++
	k.buf = strconv.AppendInt(append(k.buf[:0], k.prefix...), k.n, 10)
	return string(k.buf)
}

// mcpCaller runs lifecycles over one connection.
type mcpCaller struct {
	conn   connection
	decode bool // answers are decoded as JSON, as clients do, and not searched
	queue  string
	keys   *keys
	batch  int

	buf     []byte
	created []string
	held    []held
	answer  decoded
}

// decoded is what a client reads of an answer.
type decoded struct {
	Result struct {
		IsError           bool `json:"isError"`
		StructuredContent struct {
			TodoID  string `json:"todo_id"`
			State   string `json:"state"`
			Version int64  `json:"version"`
			Todos   []struct {
				TodoID     string `json:"todo_id"`
				LeaseToken string `json:"lease_token"`
				Title      string `json:"title"`
				Body       string `json:"body"`
			} `json:"todos"`
			Results []struct {
				TodoID string         `json:"todo_id"`
				State  string         `json:"state"`
				Error  map[string]any `json:"error"`
			} `json:"results"`
		} `json:"structuredContent"`
	} `json:"result"`
}

// call sends the tool's call, whose arguments f appends.
func (c *mcpCaller) call(ctx context.Context, tool string, f func([]byte) []byte) ([]byte, error) {
	c.buf = append(f(appendCall(c.buf[:0], tool)), "}}"...)
	b, err := c.conn.call(ctx, c.buf)
	if err == nil {
		err = sound(b)
	}
	if err == nil && c.decode {
		c.answer = decoded{}
		err = json.Unmarshal(b, &c.answer)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tool, err)
	}
	return b, nil
}

// lifecycle takes as many todos as the batch through their life, and returns how
// many.
func (c *mcpCaller) lifecycle(ctx context.Context) (int, error) {
	c.created = c.created[:0]
	for range c.batch {
		c.created = append(c.created, c.keys.next())
	}
	create := func(b []byte, key string) []byte { return appendCreate(b, c.queue, key) }
	if err := items(ctx, c, "create", c.created, create); err != nil {
		return 0, err
	}
	c.held = c.held[:0]
	for len(c.held) == 0 { // another caller of this queue may have been faster
		b, err := c.call(ctx, "claim_next", func(b []byte) []byte { return appendClaim(b, c.batch, 0) })
		if err != nil {
			return 0, err
		}
		if !c.decode {
			c.held = claimed(b, c.held)
			continue
		}
		for _, t := range c.answer.Result.StructuredContent.Todos {
			c.held = append(c.held, held{t.TodoID, t.LeaseToken})
		}
	}
	if err := items(ctx, c, "heartbeat", c.held, appendHeld); err != nil {
		return 0, err
	}
	if err := items(ctx, c, "complete", c.held, appendComplete); err != nil {
		return 0, err
	}
	return len(c.held), nil
}

// items calls a tool with one item, or with a batch of them.
func items[T any](ctx context.Context, c *mcpCaller, tool string, list []T, f func([]byte, T) []byte) error {
	_, err := c.call(ctx, tool, func(b []byte) []byte {
		if c.batch == 1 {
			return f(b, list[0])
		}
		return appendItems(b, list, f)
	})
	return err
}
