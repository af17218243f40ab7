package requester

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"switchboard/internal/provenance"
	"switchboard/internal/scope"
)

// The states of a request, in the words of specs/protocol.md section 6.
const (
	Unsent    = "unsent"  // the key exists; the target never confirmed
	SigningIn = "sign_in" // method sign-in, not redeemed yet
	Pending   = "pending"
	Approved  = "approved"
	Declined  = "declined"
	Withdrawn = "withdrawn"
	Expired   = "expired"
	Ended     = "ended" // its grant was renewed: another request carries the line on
)

// Request is a friend request of ours: one file, with the key that it and the
// grant that may follow from it stand for.
type Request struct {
	Key        string      `json:"key,omitempty"`     // PEM of the private key
	Keyring    string      `json:"keyring,omitempty"` // the key's thumbprint, under which the system keyring has it in place of the file
	ID         string      `json:"id,omitempty"`
	MessageID  string      `json:"message_id"`
	Card       string      `json:"card"`
	A2A        string      `json:"a2a"`
	Aud        string      `json:"aud"` // also the pinned authorization server
	Persona    string      `json:"persona"`
	Issuer     string      `json:"issuer,omitempty"`
	Supersedes string      `json:"supersedes,omitempty"` // the grant that this one renews
	Name       string      `json:"name"`
	Reason     string      `json:"reason"`
	Scope      scope.Asked `json:"scope"`
	State      string      `json:"state"`
	Note       string      `json:"note,omitempty"` // what the human said when declining
	CreatedAt  time.Time   `json:"created_at"`
	Grant      *Grant      `json:"grant,omitempty"`

	ring Keyring // of the store that it was read from
}

// Grant is the artifact of an approved request. It holds no secret.
type Grant struct {
	ID                  string      `json:"grant_id"`
	Endpoint            string      `json:"mcp_endpoint"`
	ResourceMetadata    string      `json:"resource_metadata"`
	AuthorizationServer string      `json:"authorization_server"`
	Scope               scope.Scope `json:"granted_scope"`
	ExpiresAt           time.Time   `json:"expires_at"`
}

// key returns the private key, of the file or the keyring.
func (r *Request) key() (*provenance.Key, error) {
	if r.Key == "" && r.Keyring != "" && r.ring != nil {
		pem, err := r.ring.Get(r.Keyring)
		if err != nil {
			return nil, fmt.Errorf("the key for %s lies in the system keyring (%s, %s), which cannot be read: %w", r.A2A, keyringService, r.Keyring, err)
		}
		r.Key = pem
	}
	k, err := provenance.ParseKey([]byte(r.Key))
	if err != nil {
		return nil, fmt.Errorf("the key kept for %s cannot be read: %w", r.A2A, err)
	}
	if r.Keyring != "" && k.Thumbprint() != r.Keyring {
		return nil, fmt.Errorf("the system keyring has another key for %s than %s", r.A2A, r.Keyring)
	}
	return k, nil
}

// Thumbprint returns the RFC 7638 thumbprint of the request's key, "" when it cannot be read.
func (r *Request) Thumbprint() string {
	if r.Keyring != "" {
		return r.Keyring
	}
	k, err := r.key()
	if err != nil {
		return ""
	}
	return k.Thumbprint()
}

// Store is the folder that the requests are kept in.
type Store struct {
	dir  string
	ring Keyring
	told io.Writer // who hears that a key stays in its file; nil while all do
}

// Open returns the store in dir, which is made when it is missing; "" is DefaultDir.
func Open(dir string) (*Store, error) {
	if dir == "" {
		var err error
		if dir, err = DefaultDir(); err != nil {
			return nil, err
		}
	}
	dir = filepath.Join(dir, "requests")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder for keys: %w", err)
	}
	return &Store{dir: dir, ring: systemKeyring{sessionBus}}, nil
}

// DefaultDir is $XDG_STATE_HOME/switchboard, or where the system keeps such
// things: ~/.local/state, ~/Library/Application Support, %AppData%.
func DefaultDir() (string, error) {
	if base := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "switchboard"), nil
	}
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		base, err := os.UserConfigDir()
		if err != nil {
			return "", fmt.Errorf("no folder for keys; give one with --state: %w", err)
		}
		return filepath.Join(base, "switchboard"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder for keys; give one with --state: %w", err)
	}
	return filepath.Join(home, ".local", "state", "switchboard"), nil
}

// path is where the request is kept; its name is the key's thumbprint.
func (s *Store) path(r *Request) (path, thumbprint string, err error) {
	if r.Keyring != "" {
		if !thumbprinted.MatchString(r.Keyring) {
			return "", "", fmt.Errorf("the request kept for %s names no key of the keyring", r.A2A)
		}
		return filepath.Join(s.dir, r.Keyring+".json"), r.Keyring, nil
	}
	k, err := r.key()
	if err != nil {
		return "", "", err
	}
	return filepath.Join(s.dir, k.Thumbprint()+".json"), k.Thumbprint(), nil
}

// thumbprinted is what RFC 7638 thumbprints look like.
var thumbprinted = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// Save writes the request so that a crash leaves the old file or the new one,
// and only this user can read it.
func (s *Store) Save(r *Request) (err error) {
	path, thumbprint, err := s.path(r)
	if err != nil {
		return err
	}
	s.moveKey(r, thumbprint, path)
	r.ring = s.ring
	kept := *r
	if kept.Keyring != "" {
		kept.Key = ""
	}
	b, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return fmt.Errorf("keep request: %w", err)
	}
	// CreateTemp makes the file 0600.
	f, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return fmt.Errorf("keep request: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("keep request: %w", err)
		}
	}()
	if _, err = f.Write(append(b, '\n')); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	if d, derr := os.Open(s.dir); derr == nil { // the rename is kept when its folder is; not every system can
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}

// Remove deletes the request and its key.
func (s *Store) Remove(r *Request) error {
	path, _, err := s.path(r)
	if err != nil {
		return err
	}
	if r.Keyring != "" {
		if err := s.ring.Delete(r.Keyring); err != nil {
			return fmt.Errorf("remove the key from the system keyring: %w", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove key: %w", err)
	}
	return nil
}

// List returns all requests, oldest first. A file that others can read is an
// error: its key may be known.
func (s *Store) List() ([]*Request, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read requests: %w", err)
	}
	var all []*Request
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".json") || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		path := filepath.Join(s.dir, entry.Name())
		info, err := entry.Info()
		if err != nil {
			return nil, fmt.Errorf("read requests: %w", err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			return nil, fmt.Errorf("%s can be read by others; if nobody did, run: chmod 600 %s", path, path)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read requests: %w", err)
		}
		r := &Request{ring: s.ring}
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *Request) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

// retire marks the request whose grant r, approved, has renewed.
func (s *Store) retire(r *Request) error {
	if r.Grant == nil || r.Supersedes == "" {
		return nil
	}
	all, err := s.List()
	if err != nil {
		return err
	}
	for _, old := range all {
		if old.Grant != nil && old.Grant.ID == r.Supersedes && old.Aud == r.Aud && old.State == Approved {
			old.State = Ended
			return s.Save(old)
		}
	}
	return nil
}

// Current returns the request that carries on the line of r: the newest kept
// renewal of its grant, at the same persona, or r itself.
func (s *Store) Current(r *Request) (*Request, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	for _, next := range all { // oldest first, so that one pass follows the whole line
		if next.Grant != nil && r.Grant != nil && next.Supersedes == r.Grant.ID && next.A2A == r.A2A {
			r = next
		}
	}
	return r, nil
}

// Find returns the one request that name means: its id or the start of it, its
// grant's id, its endpoint, or the URL of its persona or instance. For a persona
// that was asked several times, the newest grant stands, or the newest request
// when there is none.
func (s *Store) Find(name string) (*Request, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	name = strings.TrimSuffix(name, "/")
	place := withScheme(name)
	var asked *Request
	var begun []*Request
	for _, r := range slices.Backward(all) {
		switch {
		case name == r.ID, r.Grant != nil && (name == r.Grant.ID || place == r.Grant.Endpoint):
			return r, nil
		case place == r.A2A || place == r.Card || place == r.Aud:
			if asked == nil || asked.State != Approved && r.State == Approved {
				asked = r
			}
		case len(name) >= 4 && strings.HasPrefix(r.ID, name):
			begun = append(begun, r)
		}
	}
	switch {
	case asked != nil:
		return asked, nil
	case len(begun) == 1:
		return begun[0], nil
	case len(begun) > 1:
		return nil, fmt.Errorf("%q begins the ids of %d requests; give more of it", name, len(begun))
	}
	return nil, fmt.Errorf("no friend request or grant %q is kept here; see: switchboard friend list", name)
}
