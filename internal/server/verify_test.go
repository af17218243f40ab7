package server_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
)

func TestVerifyActivity_KnowsTheInstancesOwnSeals(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	w.SignIn(t, "bob").Publish("reviewer")
	var out bytes.Buffer
	require.Eventually(t, func() bool {
		out.Reset()
		require.NoError(t, server.VerifyActivity(t.Context(), w.Config, nil, &out))
		return bytes.Contains(out.Bytes(), []byte("head "))
	}, 30*time.Second, 200*time.Millisecond)
	require.Contains(t, out.String(), "ok: the record is as it was made")

	other := w.Config
	other.SealKeys = [][]byte{bytes.Repeat([]byte{9}, 32)}
	out.Reset()
	require.Error(t, server.VerifyActivity(t.Context(), other, nil, &out))
	require.Contains(t, out.String(), "FAULT")
	require.Error(t, server.VerifyActivity(t.Context(), w.Config, []string{"nothing-of-the-kind"}, &out), "a head that is not in the chain")
}
