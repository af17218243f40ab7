package requester

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zalando/go-keyring"
)

// The library's mock is one for the whole process, so these do not run beside others.

func keptFile(t *testing.T, dir string, r *Request) string {
	t.Helper()
	path := filepath.Join(dir, "requests", r.Thumbprint()+".json")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	return string(b)
}

func TestAKeyLiesInTheKeyringOrInItsFile(t *testing.T) { //nolint:paralleltest // see above
	keyring.MockInit()
	b := setup(t)
	b.store.ring = systemKeyring{}
	plain := b.approved(t)
	require.Contains(t, keptFile(t, b.dir, plain), "PRIVATE KEY")

	var told bytes.Buffer
	b.store.KeepInKeyring(&told)
	b.set(func() { b.state = "" })
	r := b.approved(t)
	require.Empty(t, told.String())
	require.NotContains(t, keptFile(t, b.dir, r), "PRIVATE KEY")
	pem, err := keyring.Get("switchboard", r.Thumbprint())
	require.NoError(t, err)
	require.Contains(t, pem, "PRIVATE KEY")

	// Another run, which says nothing of keyrings, finds both.
	later, err := Open(b.dir)
	require.NoError(t, err)
	later.ring = systemKeyring{}
	all, err := later.List()
	require.NoError(t, err)
	require.Len(t, all, 2)
	for _, kept := range all {
		_, err := b.q.Endpoint(kept)
		require.NoError(t, err)
		require.NoError(t, later.Save(kept))
	}
	require.NotContains(t, keptFile(t, b.dir, r), "PRIVATE KEY", "a key that was read does not get back into the file")

	// And one that lay in its file goes over.
	later.KeepInKeyring(&told)
	require.NoError(t, later.Save(all[0]))
	require.NotContains(t, keptFile(t, b.dir, plain), "PRIVATE KEY")
	require.NoError(t, later.Remove(all[0]))
	_, err = keyring.Get("switchboard", plain.Thumbprint())
	require.ErrorIs(t, err, keyring.ErrNotFound)
	require.NoFileExists(t, filepath.Join(b.dir, "requests", plain.Thumbprint()+".json"))
}

func TestWhereNoKeyringIsReachable_TheKeyStaysInItsFile(t *testing.T) { //nolint:paralleltest // see above
	keyring.MockInitWithError(errors.New("org.freedesktop.secrets was not provided"))
	b := setup(t)
	b.store.ring = systemKeyring{}
	var told bytes.Buffer
	b.store.KeepInKeyring(&told)
	r := b.pending(t)
	require.Contains(t, keptFile(t, b.dir, r), "PRIVATE KEY")
	require.Contains(t, told.String(), "org.freedesktop.secrets was not provided")
	require.Contains(t, told.String(), "stays in "+filepath.Join(b.dir, "requests", r.Thumbprint()+".json"))
	require.Equal(t, 1, bytes.Count(told.Bytes(), []byte("\n")), "said once")
	require.NotContains(t, told.String(), "PRIVATE")
}

func TestAKeyringThatIsGone_IsNamed(t *testing.T) { //nolint:paralleltest // see above
	keyring.MockInit()
	b := setup(t)
	b.store.ring = systemKeyring{}
	b.store.KeepInKeyring(&bytes.Buffer{})
	r := b.approved(t)
	keyring.MockInitWithError(errors.New("locked"))
	kept, err := b.store.Find(r.ID)
	require.NoError(t, err)
	_, err = b.q.Endpoint(kept)
	require.ErrorContains(t, err, "lies in the system keyring (switchboard, "+r.Thumbprint()+"), which cannot be read: locked")

	keyring.MockInit()
	require.NoError(t, keyring.Set("switchboard", r.Thumbprint(), b.approved(t).Key))
	_, err = b.q.Endpoint(kept)
	require.ErrorContains(t, err, "another key")
}
