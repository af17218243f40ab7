package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// ticks a second of /proc/*/stat; a constant of Linux for user space.
const ticks = 100

// spent is the processor time that the processes of a run have used. It says what
// a lifecycle costs whatever else the machine is doing.
type spent struct{ database, ours time.Duration }

func (s spent) minus(t spent) spent { return spent{s.database - t.database, s.ours - t.ours} }

// stat reads the parent and the processor time of a process, and of its children
// that have ended.
func stat(pid int) (parent int, own, ended time.Duration, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0, err
	}
	// The name stands in parentheses and may hold anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 15 {
		return 0, 0, 0, fmt.Errorf("process %d: /proc shows %q", pid, b)
	}
	number := func(i int) time.Duration {
		n, e := strconv.ParseInt(f[i], 10, 64)
		err = errors.Join(err, e)
		return time.Duration(n) * time.Second / ticks
	}
	parent, e := strconv.Atoi(f[1])
	own, ended = number(11)+number(12), number(13)+number(14)
	return parent, own, ended, errors.Join(err, e)
}

// meter reads the processor time of the database server, of this process, and of
// the children named to it.
type meter struct{ postmaster int }

func newMeter(ctx context.Context, url string) (*meter, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	m := &meter{}
	m.postmaster, _, _, err = stat(int(conn.PgConn().PID()))
	return m, err
}

func (m *meter) read(children ...int) (spent, error) {
	var s spent
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return s, err
	}
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		parent, own, ended, err := stat(pid)
		if err != nil {
			continue // it has just ended
		}
		switch {
		case pid == m.postmaster:
			s.database += own + ended
		case parent == m.postmaster:
			s.database += own
		}
	}
	for _, pid := range append(children, os.Getpid()) {
		_, own, _, err := stat(pid)
		if err != nil {
			return s, err
		}
		s.ours += own
	}
	return s, nil
}
