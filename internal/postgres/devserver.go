package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// devUser is the superuser of a development cluster. The socket's directory is
// open to one user only, so there is no password to keep.
const devUser = "switchboard"

// DevOptions adjusts a [DevServer]; the zero value is a server that lasts.
type DevOptions struct {
	// Throwaway says that the directory is removed with the server, also when
	// this process is killed, and that initdb need not sync it. The running
	// server syncs all the same.
	Throwaway bool
	// Database is created when it is not there yet.
	Database string
	// Settings are given to postgres on top of ours, which they override.
	Settings map[string]string
}

// DevServer is a private PostgreSQL server of this process. It listens on a
// Unix socket only, runs as an unprivileged user when we are root, and is
// stopped by a watchdog if this process ends without [DevServer.Stop].
type DevServer struct {
	programs programs
	owner    account
	place    place
	opts     DevOptions

	mu   sync.Mutex
	proc *process // nil when not running
}

// process is one run of the postmaster.
type process struct {
	cmd  *exec.Cmd
	dog  *watchdog
	done chan struct{} // closed when it has exited
}

// Start makes a cluster in dir unless one is there from an earlier run, and
// starts a server on it. It returns when the server takes connections.
func Start(ctx context.Context, dir string, o DevOptions) (*DevServer, error) {
	owner, err := serverAccount()
	if err != nil {
		return nil, err
	}
	progs, err := findPrograms(ctx)
	if err != nil {
		return nil, err
	}
	p, err := newPlace(dir, owner)
	if err != nil {
		return nil, err
	}
	s := &DevServer{programs: progs, owner: owner, place: p, opts: o}
	if err := s.initialise(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	err = s.launch(ctx)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if o.Database != "" {
		if err := createDatabase(ctx, s.URL("postgres"), o.Database); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return s, nil
}

// URL returns the address of the named database on this server. It stays the
// same over [DevServer.Restart].
func (s *DevServer) URL(db string) string {
	u := url.URL{Scheme: "postgres", User: url.User(devUser), Path: "/" + db,
		RawQuery: url.Values{"host": {s.place.run}, "sslmode": {"disable"}}.Encode()}
	return u.String()
}

// Log returns the path of the server's log.
func (s *DevServer) Log() string { return s.place.log }

// Stop ends the server in order (fast shutdown) and, when it is a throwaway
// one, removes its directory. Stopping a stopped server does nothing.
func (s *DevServer) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.end(signalFast)
	if s.place.tempRun {
		err = errors.Join(err, os.RemoveAll(s.place.run))
	}
	if s.opts.Throwaway {
		err = errors.Join(err, os.RemoveAll(s.place.base))
	}
	return err
}

// Kill ends the server at once, without a checkpoint and with all connections
// cut: what PostgreSQL finds on [DevServer.Restart] is what a crash leaves.
func (s *DevServer) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(signalImmediate)
}

// Restart stops the server if it runs and starts it again on the same data and
// the same URL. After [DevServer.Kill] it starts through crash recovery.
func (s *DevServer) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.end(signalFast); err != nil {
		return err
	}
	return s.launch(ctx)
}

// initialise runs initdb unless an earlier run has finished it.
func (s *DevServer) initialise(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.place.cluster, "PG_VERSION")); err == nil {
		return nil
	}
	// initdb does not resume: what an interrupted one left is in its way. It works
	// beside the final name, so that PG_VERSION there means a whole cluster.
	unfinished := s.place.cluster + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("clear an unfinished cluster: %w", err)
	}
	args := []string{"--pgdata", unfinished, "--username", devUser, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"}
	if s.opts.Throwaway {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, s.programs.initdb, args...)
	s.dress(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb in %s: %w: %s", s.place.base, err, bytes.TrimSpace(out))
	}
	if err := os.Rename(unfinished, s.place.cluster); err != nil {
		return fmt.Errorf("put the new cluster in place: %w", err)
	}
	return nil
}

// dress gives cmd the server's user, a directory that this user can enter, and
// an environment in which no PGHOST or PGDATA of ours leads it astray.
func (s *DevServer) dress(cmd *exec.Cmd) {
	s.owner.dress(cmd)
	cmd.Dir = s.place.base
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// settings are the server's, as a developer's machine should behave like
// production where durability is concerned.
func (s *DevServer) settings() []string {
	all := map[string]string{
		"listen_addresses":                    "",
		"unix_socket_directories":             s.place.run,
		"unix_socket_permissions":             "0700",
		"fsync":                               "on",
		"synchronous_commit":                  "on",
		"full_page_writes":                    "on",
		"autovacuum":                          "on",
		"shared_buffers":                      "256MB",
		"max_connections":                     "300",
		"max_wal_size":                        "2GB",
		"timezone":                            "UTC",
		"log_timezone":                        "UTC",
		"logging_collector":                   "off",
		"log_line_prefix":                     "%m [%p] %a ",
		"log_lock_waits":                      "on",
		"idle_in_transaction_session_timeout": "10min",
	}
	for k, v := range s.opts.Settings {
		all[k] = v
	}
	var args []string
	for k, v := range all {
		args = append(args, "-c", k+"="+v)
	}
	return args
}

// launch starts the postmaster and waits until it takes connections.
func (s *DevServer) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.awaitPredecessor(ctx); err != nil {
		return err
	}
	logFile, err := os.OpenFile(s.place.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer logFile.Close()
	before, _ := logFile.Seek(0, 2)

	// Not CommandContext: the server outlives the context that started it.
	cmd := exec.Command(s.programs.postgres, append([]string{"-D", s.place.cluster}, s.settings()...)...)
	s.dress(cmd)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	s.proc = p
	if p.dog, err = watch(cmd.Process.Pid, s.remains()); err != nil {
		return errors.Join(err, s.end(signalFast))
	}
	if err := s.awaitReady(ctx, p); err != nil {
		return errors.Join(fmt.Errorf("%w; its log ends: %s", err, tail(s.place.log, before)), s.end(signalFast))
	}
	return nil
}

// remains names what the watchdog removes.
func (s *DevServer) remains() [2]string {
	var r [2]string
	if s.opts.Throwaway {
		r[0] = s.place.base
	}
	if s.place.tempRun {
		r[1] = s.place.run
	}
	return r
}

// awaitPredecessor waits for a server of an earlier process on the same
// cluster, which its watchdog is stopping. A pid file of a process that is gone
// is PostgreSQL's own to judge.
func (s *DevServer) awaitPredecessor(ctx context.Context) error {
	pidFile := filepath.Join(s.place.cluster, "postmaster.pid")
	deadline := time.Now().Add(20 * time.Second)
	for {
		content, err := os.ReadFile(pidFile)
		if err != nil {
			return nil //nolint:nilerr // no pid file, no predecessor
		}
		first, _, _ := strings.Cut(string(content), "\n")
		pid, err := strconv.Atoi(strings.TrimSpace(first))
		if err != nil || !alive(pid) || !servesCluster(pid, s.place.cluster) {
			return nil //nolint:nilerr // a stale file, no predecessor
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d is running a PostgreSQL on %s: use its owner, or stop it with kill -INT %d", pid, s.place.cluster, pid)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the earlier server on %s: %w", s.place.cluster, err)
		}
	}
}

// servesCluster tells a postmaster from another process that was given the
// same number after a crash. Where there is no /proc it errs towards yes.
func servesCluster(pid int, cluster string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return true
	}
	return bytes.Contains(line, []byte(cluster))
}

// awaitReady polls until a connection works or the process has exited.
func (s *DevServer) awaitReady(ctx context.Context, p *process) error {
	for wait := 5 * time.Millisecond; ; wait = min(wait*2, 100*time.Millisecond) {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.done:
			return fmt.Errorf("postgres exited at once: %v", p.cmd.ProcessState)
		default:
		}
		if pauseErr := pause(ctx, wait); pauseErr != nil {
			return fmt.Errorf("postgres takes no connections: %w", err)
		}
	}
}

// end stops the postmaster with a signal and waits for it.
func (s *DevServer) end(sig os.Signal) error {
	p := s.proc
	if p == nil {
		return nil
	}
	s.proc = nil
	defer p.dog.dismiss()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop postgres: %w", err)
	}
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-timeout.C:
		_ = p.cmd.Process.Signal(signalImmediate)
		<-p.done
	}
	return nil
}

// createDatabase makes the database unless it is there.
func createDatabase(ctx context.Context, maintenance, name string) error {
	conn, err := pgx.Connect(ctx, maintenance)
	if err != nil {
		return fmt.Errorf("connect to create database %s: %w", name, err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	if SQLState(err) == "42P04" { // duplicate_database
		return nil
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// tail returns what was appended to the file after offset, its end at most.
func tail(path string, offset int64) string {
	content, err := os.ReadFile(path)
	if err != nil || int64(len(content)) < offset {
		return ""
	}
	content = content[offset:]
	if len(content) > 2000 {
		content = content[len(content)-2000:]
	}
	return string(bytes.TrimSpace(content))
}

// pause waits for d unless ctx ends first, whose error it then returns.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
