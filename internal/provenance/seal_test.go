package provenance_test

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
)

func TestSealedValuesOpenWithTheirKeyAndContextOnly(t *testing.T) {
	t.Parallel()
	old, current := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	before, err := provenance.NewSealer(old)
	require.NoError(t, err)
	sealed, err := before.Seal([]byte("secret"), "evidence:1")
	require.NoError(t, err)
	require.NotContains(t, string(sealed), "secret")

	after, err := provenance.NewSealer(current, old)
	require.NoError(t, err)
	plain, err := after.Open(sealed, "evidence:1")
	require.NoError(t, err)
	require.Equal(t, "secret", string(plain))

	_, err = after.Open(sealed, "evidence:2")
	require.ErrorIs(t, err, provenance.ErrSealed, "a value cannot be moved to another row")
	without, err := provenance.NewSealer(current)
	require.NoError(t, err)
	_, err = without.Open(sealed, "evidence:1")
	require.ErrorIs(t, err, provenance.ErrSealed)
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		_, err := after.Open(changed, "evidence:1")
		require.ErrorIs(t, err, provenance.ErrSealed)
	}
	for n := range sealed {
		_, err := after.Open(sealed[:n], "evidence:1")
		require.ErrorIs(t, err, provenance.ErrSealed)
	}
	again, err := before.Seal([]byte("secret"), "evidence:1")
	require.NoError(t, err)
	require.NotEqual(t, sealed, again)

	_, err = provenance.NewSealer(old[:16])
	require.Error(t, err)
	for _, text := range []string{base64.StdEncoding.EncodeToString(old), base64.RawURLEncoding.EncodeToString(old) + "\n"} {
		key, err := provenance.ParseSealKey(text)
		require.NoError(t, err)
		require.Equal(t, old, key)
	}
	_, err = provenance.ParseSealKey("short")
	require.Error(t, err)
}
