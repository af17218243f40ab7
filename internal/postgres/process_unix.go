//go:build unix

package postgres

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is whom the server runs as.
type account struct {
	name     string
	uid, gid uint32
	change   bool // we are root and must become this user
}

// serverAccount returns ourselves, or an unprivileged user when we are root,
// as whom PostgreSQL refuses to run.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{name: strconv.Itoa(os.Geteuid()), uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if errors.Join(uidErr, gidErr) == nil && uid != 0 {
			return account{name: name, uid: uint32(uid), gid: uint32(gid), change: true}, nil
		}
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it as: " +
		"create one (useradd --system postgres), run as another user, or set SWITCHBOARD_DATABASE_URL to a running server")
}

// reaches reports whether the account may pass through path and all above it.
func (a account) reaches(path string) bool {
	if !a.change {
		return true
	}
	for {
		info, err := os.Stat(path)
		if err != nil {
			return false
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}
		bit := os.FileMode(0o001)
		switch {
		case stat.Uid == a.uid:
			bit = 0o100
		case stat.Gid == a.gid:
			bit = 0o010
		}
		if info.Mode().Perm()&bit == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}

// take makes the directory the account's own, closed to others. A name that
// somebody else has prepared for us, say in /var/tmp, is refused.
func (a account) take(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || (stat.Uid != a.uid && stat.Uid != uint32(os.Geteuid())) {
		return fmt.Errorf("%s belongs to somebody else: remove it or use another directory", dir)
	}
	if a.change {
		if err := os.Lchown(dir, int(a.uid), int(a.gid)); err != nil {
			return fmt.Errorf("give %s to %s: %w", dir, a.name, err)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("close %s to others: %w", dir, err)
	}
	return nil
}

// dress makes cmd run as the account, in a process group of its own: a Ctrl-C
// at the terminal is for us, who then stop the server in order.
func (a account) dress(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.change {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

const (
	// PostgreSQL's three shutdown modes; see pg_ctl(1).
	signalFast      = syscall.SIGINT
	signalImmediate = syscall.SIGQUIT
)

// watchScript waits for its standard input to end, which happens when the
// process that holds the other end is gone, however it went. It then stops the
// server and removes the directory of a throwaway one.
const watchScript = `
read -r _
kill -INT "$1" 2>/dev/null
n=0
while kill -0 "$1" 2>/dev/null; do
	n=$((n+1))
	if [ "$n" -gt 150 ]; then kill -QUIT "$1" 2>/dev/null; break; fi
	sleep 0.1
done
if [ -n "$2" ]; then rm -rf -- "$2"; fi
if [ -n "$3" ]; then rm -rf -- "$3"; fi
`

// watchdog is a process that ends the server when we are no more. A parent
// death signal would be Linux only and hang on one thread's life.
type watchdog struct {
	cmd  *exec.Cmd
	hold *os.File
}

// watch starts a watchdog for pid; remove names directories to remove then.
func watch(pid int, remove [2]string) (*watchdog, error) {
	read, hold, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the watchdog's pipe: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", watchScript, "switchboard-watchdog", strconv.Itoa(pid), remove[0], remove[1])
	cmd.Stdin = read
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		hold.Close()
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, hold: hold}, nil
}

// dismiss ends the watchdog without letting it act.
func (w *watchdog) dismiss() {
	if w == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.hold.Close()
}

// alive reports whether there is a process pid.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// freePort asks the system for a loopback port that nobody uses.
func freePort() (uint32, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return uint32(l.Addr().(*net.TCPAddr).Port), nil
}
