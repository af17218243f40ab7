package requester

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/zalando/go-keyring"
)

// Keyring keeps small secrets under names. What it returns for a name that it
// does not have is an error.
type Keyring interface {
	Set(name, secret string) error
	Get(name string) (string, error)
	Delete(name string) error
}

// errKeyringSilent is a keyring that waits for somebody who is not there.
var errKeyringSilent = errors.New("it does not answer; it may be waiting to be unlocked")

// keyringPatience is how long a human may take to unlock the keyring.
const keyringPatience = time.Minute

// systemKeyring is that of the desktop: the Secret Service on Linux and BSD, the
// keychain of macOS, the credential manager of Windows.
type systemKeyring struct {
	reachable func() error // nil: asked and seen
}

// keyringService is what the system shows as whose secrets they are.
const keyringService = "switchboard"

func (k systemKeyring) Set(name, secret string) error {
	return k.patient(func() error { return keyring.Set(keyringService, name, secret) })
}

func (k systemKeyring) Get(name string) (secret string, err error) {
	got := make(chan string, 1)
	err = k.patient(func() error {
		s, err := keyring.Get(keyringService, name)
		got <- s
		return err
	})
	if err != nil {
		return "", err
	}
	return <-got, nil
}

func (k systemKeyring) Delete(name string) error {
	err := k.patient(func() error { return keyring.Delete(keyringService, name) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil
	}
	return err
}

// patient waits for do, and not for ever: the library takes no context. A do that
// never returns ends with the program.
func (k systemKeyring) patient(do func() error) error {
	if k.reachable != nil {
		if err := k.reachable(); err != nil {
			return err
		}
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	t := time.NewTimer(keyringPatience)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return errKeyringSilent
	}
}

// sessionBus refuses where there is no desktop session to ask. The library would
// start a bus of its own then, which outlives us and has no keyring.
func sessionBus() error {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" || os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return nil
	}
	for _, name := range []string{"bus", "dbus-session"} {
		if _, err := os.Stat(fmt.Sprintf("/run/user/%d/%s", os.Getuid(), name)); err == nil {
			return nil
		}
	}
	return errors.New("there is no desktop session")
}

// KeepInKeyring has the keys of requests that are saved from now on lie in the
// system keyring in place of their files. Where that cannot be reached they stay
// in their files, and told says so. Keys are found wherever they lie, with or
// without this.
func (s *Store) KeepInKeyring(told io.Writer) { s.told = told }

// moveKey puts the key of r into the keyring when it is to lie there. What cannot
// be read back is not kept there: some keyrings forget with the session.
func (s *Store) moveKey(r *Request, thumbprint, path string) {
	if s.told == nil || r.Keyring != "" || r.Key == "" {
		return
	}
	err := s.ring.Set(thumbprint, r.Key)
	if err == nil {
		var back string
		if back, err = s.ring.Get(thumbprint); err == nil && back != r.Key {
			err = errors.New("it gives back another secret than it was given")
		}
	}
	if err != nil {
		fmt.Fprintf(s.told, "No system keyring can be used here (%v); the key stays in %s, which only you can read.\n", err, path)
		s.told = nil // once is enough
		return
	}
	r.Keyring = thumbprint
}
