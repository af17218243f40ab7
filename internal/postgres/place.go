package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketDir keeps "<dir>/.s.PGSQL.5432.lock" below the 104 bytes that the
// shortest sockaddr_un (macOS) has for a path.
const maxSocketDir = 80

// place is where a development server lives on disk.
type place struct {
	base    string // holds everything below
	cluster string // PGDATA
	log     string
	run     string // directory of the socket
	tempRun bool   // run is ours to remove
}

// newPlace prepares dir for a server run by owner. When owner cannot reach dir
// (root's home is closed to everybody else) the cluster lies in /var/tmp under
// a name derived from dir, and a note in dir says so.
func newPlace(dir string, owner account) (place, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return place{}, fmt.Errorf("find %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return place{}, fmt.Errorf("make %s: %w", dir, err)
	}
	base := dir
	if !owner.reaches(filepath.Dir(dir)) {
		sum := sha256.Sum256([]byte(dir))
		base = filepath.Join("/var/tmp", "switchboard-"+hex.EncodeToString(sum[:6]))
		if err := os.Mkdir(base, 0o700); err != nil && !os.IsExist(err) {
			return place{}, fmt.Errorf("make %s, because user %s cannot reach %s: %w", base, owner.name, dir, err)
		}
		note := fmt.Sprintf("User %s, who runs PostgreSQL, cannot reach this directory.\nThe cluster is in %s\n", owner.name, base)
		if err := os.WriteFile(filepath.Join(dir, "WHERE"), []byte(note), 0o644); err != nil {
			return place{}, fmt.Errorf("note where the cluster is: %w", err)
		}
	}
	if err := owner.take(base); err != nil {
		return place{}, err
	}
	p := place{
		base:    base,
		cluster: filepath.Join(base, "cluster"),
		log:     filepath.Join(base, "postgres.log"),
		run:     filepath.Join(base, "run"),
	}
	if len(p.run) > maxSocketDir {
		if p.run, err = os.MkdirTemp("/tmp", "sbpg-"); err != nil {
			return place{}, fmt.Errorf("make a directory for the socket: %w", err)
		}
		p.tempRun = true
	} else if err := os.Mkdir(p.run, 0o700); err != nil && !os.IsExist(err) {
		return place{}, fmt.Errorf("make a directory for the socket: %w", err)
	}
	return p, owner.take(p.run)
}
