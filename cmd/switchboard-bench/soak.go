package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"switchboard/internal/postgres"
)

// soakOptions are the flags of soak, and what tests make smaller.
type soakOptions struct {
	length  time.Duration
	workers int
	dir     string // where journals are kept
	keep    bool

	killWorker, killServer, restartDatabase time.Duration // between two
}

func newSoakCommand() *cobra.Command {
	o := soakOptions{workers: 5}
	c := &cobra.Command{
		Use: "soak", Short: "Kill workers, servers and the database under load, and check the history", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.pace()
			return runSoak(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.DurationVar(&o.length, "length", 15*time.Minute, "how long to disturb")
	f.IntVar(&o.workers, "workers", o.workers, "worker processes")
	f.StringVar(&o.dir, "dir", "", "directory for the journals, which are kept there; a temporary one otherwise")
	return c
}

// pace sets how often what is killed: in 15 minutes some 300 workers, 25 servers,
// and the database 6 times.
func (o *soakOptions) pace() {
	o.killWorker = min(3*time.Second, o.length/5)
	o.killServer = min(35*time.Second, o.length/3)
	o.restartDatabase = min(140*time.Second, o.length/2)
	o.keep = o.dir != ""
}

// soak is one run.
type soak struct {
	soakOptions
	out    io.Writer
	dev    *postgres.DevServer
	world  *soakWorld
	memory *memoryJournal // of the creators

	servers []*soakServer

	mu           sync.Mutex
	disturbances []disturbance

	workerKills, serverKills, restarts atomic.Int64
}

// maxOpen is how many todos of a line may be open at once.
const maxOpen = 150

func runSoak(ctx context.Context, o soakOptions, out io.Writer) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "switchboard-soak-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	s := &soak{soakOptions: o, out: out, memory: &memoryJournal{}}
	if s.dev, err = postgres.StartThrowaway(ctx, postgres.DevOptions{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.dev.Stop()) }()
	if s.world, err = newSoakWorld(ctx, s.dev); err != nil {
		return err
	}
	for i := range s.world.addresses {
		srv := &soakServer{s: s, listen: s.world.addresses[i]}
		s.servers = append(s.servers, srv)
		if err := srv.start(ctx); err != nil {
			return err
		}
		defer srv.stop()
	}
	if err := s.checkOrder(ctx); err != nil {
		return err
	}
	if err := s.disturb(ctx); err != nil {
		return fmt.Errorf("%w (journals in %s)", err, o.dir)
	}
	if err := s.drain(ctx); err != nil {
		return fmt.Errorf("%w (journals in %s)", err, o.dir)
	}
	if err := s.checkOrder(ctx); err != nil {
		return err
	}
	return s.judge(ctx)
}

func (s *soak) sayf(format string, args ...any) {
	fmt.Fprintf(s.out, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// disturbed notes a time in which something was going down or coming up.
func (s *soak) disturbed(from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What died with its connection is noticed by the database a little later.
	s.disturbances = append(s.disturbances, disturbance{from.UnixNano(), time.Now().Add(2 * time.Second).UnixNano()})
}

// disturb runs creators and workers, and kills, until the time is over.
func (s *soak) disturb(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.length)
	defer cancel()
	return together(ctx, s.workers+3+len(s.world.lines), func(ctx context.Context, i int) error {
		switch {
		case i < s.workers:
			return s.runWorkers(ctx, i)
		case i == s.workers:
			return s.killServers(ctx)
		case i == s.workers+1:
			return s.restartDatabases(ctx)
		case i == s.workers+2:
			return s.progress(ctx)
		}
		line := s.world.lines[i-s.workers-3]
		return together(ctx, line.creators, func(ctx context.Context, n int) error {
			return s.creator(line, fmt.Sprintf("%s.%d", line.name, n)).work(ctx)
		})
	})
}

func (s *soak) creator(line *soakLine, who string) *creator {
	return &creator{
		who: who, line: line.name, lane: line.lane, queue: queueName, pace: line.pace,
		journal: &journal{out: s.memory}, client: newSoakClient(line.targets, line.tokens),
	}
}

// worker starts a worker process.
func (s *soak) worker(ctx context.Context, name string, calm bool) (*process, error) {
	p, err := start("worker", workerJob{
		Name: name, Homes: s.world.homes, Lanes: s.world.lanes, Journal: filepath.Join(s.dir, name+".jsonl"), Routines: 6, Calm: calm,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var a armed
	if err := p.receive(ctx, &a); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// runWorkers keeps one worker process, killing it again and again.
func (s *soak) runWorkers(ctx context.Context, i int) error {
	for generation := 0; ; generation++ {
		p, err := s.worker(ctx, fmt.Sprintf("w%d.%d", i, generation), false)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		// Each worker is killed once in a round of all, at a time of its own.
		lives := s.killWorker * time.Duration(s.workers)
		if generation == 0 {
			lives = lives * time.Duration(i+1) / time.Duration(s.workers)
		}
		alive, cancel := context.WithTimeout(ctx, lives)
		select {
		case <-p.done:
			cancel()
			return ignoreEnd(ctx, fmt.Errorf("a worker ended by itself: %s", p.said()))
		case <-alive.Done():
		}
		cancel()
		if ctx.Err() != nil {
			return p.stop()
		}
		p.kill()
		s.workerKills.Add(1)
	}
}

// soakServer is a server process that is started again on the same address.
type soakServer struct {
	s       *soak
	listen  string
	replica *replica
}

// start tries until the server serves: the database may be away.
func (srv *soakServer) start(ctx context.Context) error {
	limit := time.Now().Add(time.Minute)
	for {
		r, err := serveInstance(ctx, srv.s.world.database, srv.s.world.host(), srv.listen)
		if err == nil {
			srv.replica = r
			return nil
		}
		if ctx.Err() != nil || time.Now().After(limit) {
			return fmt.Errorf("start a server: %w", err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func (srv *soakServer) stop() {
	if srv.replica != nil {
		srv.replica.kill()
	}
}

// killServers kills one server process after another; each is started again at
// once.
func (s *soak) killServers(ctx context.Context) error {
	for n := 0; ; n++ {
		pause(ctx, s.killServer)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the time is over
		}
		srv := s.servers[n%len(s.servers)]
		from := time.Now()
		srv.replica.kill()
		s.serverKills.Add(1)
		// Not ctx: a server that is down when the time is over must come back.
		err := srv.start(context.WithoutCancel(ctx))
		s.disturbed(from)
		if err != nil {
			return err
		}
	}
}

// restartDatabases ends the database server again and again, in turn as a crash
// does and in order.
func (s *soak) restartDatabases(ctx context.Context) error {
	for n := 0; ; n++ {
		pause(ctx, s.restartDatabase)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the time is over
		}
		from := time.Now()
		var err error
		if n%2 == 0 {
			err = s.dev.Kill()
		}
		err = errors.Join(err, s.dev.Restart(context.WithoutCancel(ctx)))
		s.restarts.Add(1)
		s.disturbed(from)
		if err != nil {
			return err
		}
	}
}

func (s *soak) progress(ctx context.Context) error {
	began := time.Now()
	for ctx.Err() == nil {
		pause(ctx, min(30*time.Second, s.length/3))
		s.sayf("%v: %d worker kills, %d server kills, %d restarts of PostgreSQL", time.Since(began).Round(time.Second),
			s.workerKills.Load(), s.serverKills.Load(), s.restarts.Load())
	}
	return nil
}

// drain lets calm workers finish what is left.
func (s *soak) drain(ctx context.Context) error {
	s.sayf("draining")
	var workers []*process
	for i := range s.workers {
		p, err := s.worker(ctx, fmt.Sprintf("calm%d", i), true)
		if err != nil {
			return err
		}
		workers = append(workers, p)
		defer p.kill()
	}
	limit := time.Now().Add(3 * time.Minute)
	for {
		for _, line := range s.world.lines {
			if err := s.creator(line, line.name+".calm").answerAll(ctx); err != nil {
				return err
			}
		}
		left, err := s.world.open(ctx)
		if err != nil {
			return err
		}
		if left == 0 {
			break
		}
		if time.Now().After(limit) {
			s.sayf("some todos do not end")
			break // the check says which
		}
		pause(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for _, p := range workers {
		if err := p.stop(); err != nil {
			return err
		}
	}
	return nil
}

// judge reads everything back and checks it.
func (s *soak) judge(ctx context.Context) error {
	h := history{Disturbances: s.disturbances, MaxOpen: maxOpen, MaxAttempts: 5}
	var err error
	if h.Operations, err = s.memory.operations(); err != nil {
		return err
	}
	journals, err := filepath.Glob(filepath.Join(s.dir, "*.jsonl"))
	if err != nil {
		return err
	}
	for _, path := range journals {
		ops, err := readJournal(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		h.Operations = append(h.Operations, ops...)
	}
	if h.Finals, err = s.world.finals(ctx); err != nil {
		return err
	}
	out := check(&h)
	for _, kind := range slices.Sorted(mapKeys(out.byKind)) {
		s.sayf("%-12s %8d", kind, out.byKind[kind])
	}
	counts := fmt.Sprintf("%d operations (%d acknowledged) on %d todos under %d leases; %d worker kills, %d server kills, %d Postgres restarts",
		out.operations, out.acknowledged, out.todos, out.leases, s.workerKills.Load(), s.serverKills.Load(), s.restarts.Load())
	if len(out.violations) == 0 {
		if !s.keep {
			_ = os.RemoveAll(s.dir)
		}
		fmt.Fprintf(s.out, "history: ok: %s\n", counts)
		return nil
	}
	const few = 30
	for _, v := range out.violations[:min(few, len(out.violations))] {
		s.sayf("%s", v)
	}
	return fmt.Errorf("history: broken in %d places: %s (journals in %s)", len(out.violations), counts, s.dir)
}
