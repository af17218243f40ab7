//go:build unix

package postgres_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

// reachableDir returns a directory that an unprivileged user may enter, which
// t.TempDir() below root's TMPDIR need not be.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sbpg-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func TestDevServer_SurvivesKillAndRestart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := pgtest.Server(t)
	url := s.URL("switchboard")
	require.Equal(t, "on", query[string](t, url, "SHOW fsync"))
	require.Equal(t, "on", query[string](t, url, "SHOW synchronous_commit"))

	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
	require.NoError(t, err)

	require.NoError(t, s.Kill())
	require.Error(t, conn.Ping(ctx), "an open connection is cut")
	require.NoError(t, s.Restart(ctx))
	require.Equal(t, 7, query[int](t, url, "SELECT n FROM kept"), "what was committed is there after a crash")
	require.NoError(t, s.Restart(ctx), "restart of a running server")
	require.Equal(t, 7, query[int](t, url, "SELECT n FROM kept"))
	require.NoError(t, s.Stop())
	require.NoError(t, s.Stop(), "a second stop does nothing")
}

func TestDevServer_ReusesItsDirectory(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := filepath.Join(reachableDir(t), "postgres")
	for run := range 2 {
		s, err := postgres.Start(ctx, dir, postgres.DevOptions{Database: "switchboard"})
		require.NoError(t, err)
		n := query[int](t, s.URL("switchboard"), "SELECT count(*)::int FROM pg_tables WHERE tablename = 'kept'")
		require.Equal(t, run, n)
		if run == 0 {
			conn, err := pgx.Connect(ctx, s.URL("switchboard"))
			require.NoError(t, err)
			_, err = conn.Exec(ctx, "CREATE TABLE kept (n int)")
			require.NoError(t, err)
			require.NoError(t, conn.Close(ctx))
		}
		require.NoError(t, s.Stop())
	}
	require.NoDirExists(t, filepath.Join(dir, "cluster.new"))
}

// startOwner runs this binary as the owner of a server on dir and returns the
// owner and the postmaster's number.
func startOwner(t *testing.T, dir string, throwaway bool) (*exec.Cmd, int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	owner := exec.Command(self)
	owner.Env = append(os.Environ(), ownerVariable+"="+dir)
	if throwaway {
		owner.Env = append(owner.Env, ownerVariable+"_THROWAWAY=1")
	}
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	return owner, pid
}

func TestDevServer_DoesNotOutliveItsOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachableDir(t), "postgres")
	owner, pid := startOwner(t, dir, false)
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()

	// At once, while the watchdog may still be stopping the old server.
	s, err := postgres.Start(context.Background(), dir, postgres.DevOptions{})
	require.NoError(t, err)
	require.NotEqual(t, pid, s.Pid())
	// Gone but for its exit status, which it may take init a moment to collect.
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, 10*time.Second, 10*time.Millisecond, "the old server is gone")
	require.NoError(t, s.Stop())
}

func TestDevServer_ThrowawayDirectoryGoesWithItsKilledOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachableDir(t), "postgres")
	owner, pid := startOwner(t, dir, true)
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && syscall.Kill(pid, 0) != nil
	}, 20*time.Second, 20*time.Millisecond)
}

func TestDevServer_ReplacesStalePidFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := filepath.Join(reachableDir(t), "postgres")
	s, err := postgres.Start(ctx, dir, postgres.DevOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Stop())
	// After a crash of the machine the number may be another process's: ours.
	pidFile := filepath.Join(dir, "cluster", "postmaster.pid")
	require.NoError(t, os.WriteFile(pidFile, []byte("999999999\n"+dir+"/cluster\n1700000000\n5432\n\n\n  5432001         0\n"), 0o600))
	require.NoError(t, os.Chmod(pidFile, 0o666)) // root wrote it, and another user runs the server
	s, err = postgres.Start(ctx, dir, postgres.DevOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Stop())
}

func TestDevServer_RootsClosedHome(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs PostgreSQL as somebody else")
	}
	t.Parallel()
	closed := reachableDir(t)
	require.NoError(t, os.Chmod(closed, 0o700))
	dir := filepath.Join(closed, "data")
	s, err := postgres.Start(context.Background(), dir, postgres.DevOptions{Database: "switchboard"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(filepath.Dir(s.Log()))) })
	require.Equal(t, 1, query[int](t, s.URL("switchboard"), "SELECT 1"))
	require.NoError(t, s.Stop())
	note, err := os.ReadFile(filepath.Join(dir, "WHERE"))
	require.NoError(t, err)
	require.Contains(t, string(note), filepath.Dir(s.Log()))
}

func TestDevServer_RefusesForeignDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of somebody else's")
	}
	t.Parallel()
	dir := reachableDir(t)
	require.NoError(t, os.Chown(dir, 12345, 12345))
	_, err := postgres.Start(context.Background(), dir, postgres.DevOptions{})
	require.ErrorContains(t, err, "belongs to somebody else")
}

func TestExec_GivesServerAndReturnsCode(t *testing.T) {
	t.Parallel()
	code, err := postgres.Exec(context.Background(), []string{"sh", "-c", `test -n "$` + postgres.TestURLVariable + `" && exit 7`})
	require.NoError(t, err)
	require.Equal(t, 7, code)

	_, err = postgres.Exec(context.Background(), nil)
	require.Error(t, err)
}

func TestRunWith_StopsServer(t *testing.T) {
	t.Parallel()
	var at string
	require.NoError(t, postgres.RunWith(context.Background(), "", func(url string) error {
		at = url
		require.Equal(t, "switchboard", query[string](t, url, "SELECT current_database()::text"))
		return nil
	}))
	_, err := pgx.Connect(context.Background(), at)
	require.Error(t, err)
}
