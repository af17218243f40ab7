package server

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVerifyActivity_KnowsTheInstancesOwnSeals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.signIn(t, "bob").publish("reviewer")
	var out bytes.Buffer
	require.Eventually(t, func() bool {
		out.Reset()
		require.NoError(t, VerifyActivity(t.Context(), w.config, nil, &out))
		return bytes.Contains(out.Bytes(), []byte("head "))
	}, 30*time.Second, 200*time.Millisecond)
	require.Contains(t, out.String(), "ok: the record is as it was made")

	other := w.config
	other.SealKeys = [][]byte{bytes.Repeat([]byte{9}, 32)}
	out.Reset()
	require.Error(t, VerifyActivity(t.Context(), other, nil, &out))
	require.Contains(t, out.String(), "FAULT")
	require.Error(t, VerifyActivity(t.Context(), w.config, []string{"nothing-of-the-kind"}, &out), "a head that is not in the chain")
}
