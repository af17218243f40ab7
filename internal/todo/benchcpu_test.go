package todo

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// cpu reads the processor time of this process and of the server's, since a busy
// machine distorts rates and not the work that is done.
type cpu struct{ postmaster string }

func statOf(pid string) []string {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	s := string(b)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+2:])
}

func newCPU(t testing.TB, pool *pgxpool.Pool) *cpu {
	var pid int
	require.NoError(t, pool.QueryRow(context.Background(), `SELECT pg_backend_pid()`).Scan(&pid))
	f := statOf(strconv.Itoa(pid))
	if f == nil {
		t.Skip("no /proc")
	}
	return &cpu{postmaster: f[1]}
}

func (c *cpu) used() (server, client time.Duration) {
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range pids {
		f := statOf(filepath.Base(p))
		if f == nil || f[1] != c.postmaster {
			continue
		}
		b, _ := os.ReadFile(p + "/schedstat")
		ns, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		server += time.Duration(n)
	}
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return server, time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
