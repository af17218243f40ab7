package postgres

import (
	"context"
	"io/fs"
)

// For the tests of this package that need a database and therefore pgtest,
// which imports this package.

var CheckVersions = checkVersions

func MigrateFS(ctx context.Context, url string, files fs.FS) error {
	return migrateFS(ctx, url, files)
}

// Pid returns the number of the postmaster.
func (s *DevServer) Pid() int { return s.proc.cmd.Process.Pid }

// Alone reports whether the process takes it that it is the only one.
func (w *Wake) Alone() bool { return w.alone() }
