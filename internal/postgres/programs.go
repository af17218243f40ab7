package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// oldestMajor is the oldest PostgreSQL that Switchboard runs on.
const oldestMajor = 15

// programs are the two of PostgreSQL's that a server needs.
type programs struct {
	postgres, initdb string
}

// findPrograms looks in PATH, then in Debian's directories, newest first, and
// downloads a copy as the last resort.
func findPrograms(ctx context.Context) (programs, error) {
	var tried []error
	for _, dir := range programDirs() {
		p, err := programsIn(ctx, dir)
		if err == nil {
			return p, nil
		}
		tried = append(tried, err)
	}
	p, err := downloadPrograms(ctx)
	if err == nil {
		return p, nil
	}
	tried = append(tried, err)
	return programs{}, fmt.Errorf("no PostgreSQL %d or newer to start: install it (Debian and Ubuntu: apt-get install postgresql; "+
		"macOS: brew install postgresql), or put its bin directory into PATH, or set SWITCHBOARD_DATABASE_URL to a running server, "+
		"or allow the download of its programs: %w", oldestMajor, errors.Join(tried...))
}

// programDirs lists where PostgreSQL's programs may be, best first.
func programDirs() []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// The link's target matters: initdb looks for its siblings beside itself.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(debian, func(a, b string) int { return majorOf(b) - majorOf(a) })
	return append(dirs, debian...)
}

// majorOf reads 15 out of /usr/lib/postgresql/15/bin.
func majorOf(bin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return n
}

// programsIn checks that dir holds both programs in a version that will do.
func programsIn(ctx context.Context, dir string) (programs, error) {
	p := programs{postgres: filepath.Join(dir, "postgres"), initdb: filepath.Join(dir, "initdb")}
	if _, err := os.Stat(p.initdb); err != nil {
		return programs{}, err
	}
	out, err := exec.CommandContext(ctx, p.postgres, "--version").Output()
	if err != nil {
		return programs{}, fmt.Errorf("ask %s for its version: %w", p.postgres, err)
	}
	// "postgres (PostgreSQL) 15.18 (Debian …)"
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return programs{}, fmt.Errorf("%s says %q, not its version", p.postgres, out)
	}
	major, _, _ := strings.Cut(fields[2], ".")
	if n, _ := strconv.Atoi(major); n < oldestMajor {
		return programs{}, fmt.Errorf("%s is version %s, older than %d", p.postgres, fields[2], oldestMajor)
	}
	return p, nil
}

// MirrorVariable names the environment variable with another Maven repository
// to download PostgreSQL's programs from.
const MirrorVariable = "SWITCHBOARD_POSTGRES_MIRROR"

// downloadPrograms brings the programs once into a cache directory that the
// unprivileged user can read, and finds them there from then on.
func downloadPrograms(ctx context.Context) (programs, error) {
	cache, err := programCache()
	if err != nil {
		return programs{}, err
	}
	mirror := os.Getenv(MirrorVariable)
	if mirror == "" {
		mirror = "https://repo1.maven.org/maven2"
	}
	return downloadInto(ctx, cache, mirror)
}

func downloadInto(ctx context.Context, cache, mirror string) (programs, error) {
	version := embedded.V17
	dir := filepath.Join(cache, "postgres-"+string(version))
	if p, err := programsIn(ctx, filepath.Join(dir, "bin")); err == nil {
		return p, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return programs{}, fmt.Errorf("make room for PostgreSQL's programs: %w", err)
	}
	scratch, err := os.MkdirTemp("", "switchboard-download-")
	if err != nil {
		return programs{}, fmt.Errorf("make room for the download: %w", err)
	}
	defer os.RemoveAll(scratch)
	port, err := freePort()
	if err != nil {
		return programs{}, err
	}
	// The library downloads and unpacks only on its way to a running server. Its
	// server is of no use to us (it cannot run as root, nor survive a restart),
	// so what counts is whether the programs are there afterwards.
	server := embedded.NewDatabase(embedded.DefaultConfig().
		Version(version).
		Port(port).
		BinaryRepositoryURL(mirror).
		CachePath(filepath.Join(dir, "archive")).
		BinariesPath(dir).
		RuntimePath(filepath.Join(scratch, "run")).
		DataPath(filepath.Join(scratch, "data")).
		Logger(io.Discard))
	started := make(chan error, 1)
	go func() {
		err := server.Start()
		if err == nil {
			err = server.Stop()
		}
		started <- err
	}()
	// The library's requests have no timeout of their own.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	select {
	case err = <-started:
	case <-ctx.Done():
		return programs{}, fmt.Errorf("download PostgreSQL %s from %s: %w", version, mirror, ctx.Err())
	}
	p, missing := programsIn(ctx, filepath.Join(dir, "bin"))
	if missing != nil {
		_ = os.Remove(dir) // only when nothing came
		return programs{}, fmt.Errorf("download PostgreSQL %s for %s/%s from %s: %w",
			version, runtime.GOOS, runtime.GOARCH, mirror, errors.Join(err, missing))
	}
	return p, nil
}

// programCache names a directory that outlives runs. Root's own cache is closed
// to the user whom the server runs as, hence the system's.
func programCache() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/switchboard", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory: %w", err)
	}
	return filepath.Join(dir, "switchboard"), nil
}
