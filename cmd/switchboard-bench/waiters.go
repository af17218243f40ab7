package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// fetch reads a path of the server's control listener.
func (r *replica) fetch(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.control+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%w: %s: %.300s", errStatus, resp.Status, b)
	}
	return b, err
}

func (r *replica) memory() (memory, error) {
	var m memory
	b, err := r.fetch("/memory")
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// armed is what a holding client says once its calls are sent.
type armed struct{ Waiting int }

// runHold is the client: so many calls that wait until the parent lets go.
func runHold(ctx context.Context, job clientJob, say func(any) error) error {
	waiters, end, err := newWaiters(ctx, job.Targets, job.Callers)
	if err != nil {
		return err
	}
	defer end()
	for _, w := range waiters {
		w.buf = append(appendClaim(appendCall(w.buf[:0], "claim_next"), 1, longestWait), "}}"...)
		if err := w.conn.sendCall(w.buf); err != nil {
			return err
		}
	}
	if err := say(armed{len(waiters)}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// runWaiters measures the memory of waiting calls. Each round has a server process
// of its own, which has answered calls before, but holds none when it is measured.
func runWaiters(ctx context.Context, b *bench) error {
	in, err := newInstance(ctx, b.dev, "waiters", owners, 1)
	if err != nil {
		return err
	}
	defer in.close()
	for range b.rounds {
		if err := b.weighWaiters(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) weighWaiters(ctx context.Context, in *instance) error {
	addr, err := freeAddress()
	if err != nil {
		return err
	}
	srv, err := serveInstance(ctx, in.url, addr, addr)
	if err != nil {
		return err
	}
	defer srv.kill()
	list := targets(in.homes, addr, addr)
	if _, err := inClient[measured](ctx, clientJob{Kind: "lifecycle", Lean: true, Batch: 1, Callers: 16, Targets: list, Warm: warm, Length: time.Second}); err != nil {
		return err
	}
	pause(ctx, time.Second) // its connections are gone
	before, err := srv.memory()
	if err != nil {
		return err
	}
	p, err := start("client", clientJob{Kind: "hold", Callers: b.waiters, Targets: list})
	if err != nil {
		return err
	}
	defer p.kill()
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var a armed
	if err := p.receive(limited, &a); err != nil {
		return err
	}
	pause(ctx, arming(b.waiters))
	after, err := srv.memory()
	if err != nil {
		return err
	}
	if b.profile != "" {
		if content, err := srv.fetch("/debug/pprof/heap"); err == nil {
			_ = os.WriteFile(b.profile+"/waiters-heap.pprof", content, 0o600)
		}
	}
	if after.Routines-before.Routines < a.Waiting {
		return fmt.Errorf("only %d of %d calls wait", after.Routines-before.Routines, a.Waiting)
	}
	n := float64(a.Waiting)
	resident, inUse := float64(after.Resident-before.Resident)/n, float64(after.InUse-before.InUse)/n
	b.number("bytes_per_waiter_heap_and_stacks", inUse)
	b.number("goroutines_per_waiter", float64(after.Routines-before.Routines)/n)
	b.sayf("  %d waiting: %.0f bytes resident each, of which heap and stacks %.0f; %.1f goroutines", a.Waiting, resident, inUse, float64(after.Routines-before.Routines)/n)
	b.figure("bytes_per_waiter", resident)
	return nil
}
