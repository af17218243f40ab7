package endpoint_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
)

// What is written while an endpoint is held was written before a revocation
// that comes meanwhile answers; and afterwards nothing is.
func TestHold_ARevocationWaitsForWhatIsBeingWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e, credential := b.home(t)
	caller, err := b.store.Authenticate(t.Context(), e.ID, credential)
	require.NoError(t, err)

	var written atomic.Bool
	sawWritten := make(chan bool, 1)
	require.NoError(t, b.store.Hold(t.Context(), caller, func(ctx context.Context) error {
		go func() {
			if _, err := b.store.RevokeHome(t.Context(), b.owner(), e.ID); err == nil {
				sawWritten <- written.Load()
			}
			close(sawWritten)
		}()
		require.Eventually(t, func() bool {
			var waits bool
			err := b.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database d ON d.oid = database OR database IS NULL WHERE NOT granted AND datname = current_database())`).Scan(&waits)
			return err == nil && waits
		}, 10*time.Second, 5*time.Millisecond, "the revocation waits")
		written.Store(true)
		return nil
	}))
	require.True(t, <-sawWritten)

	for what, c := range map[string]endpoint.Caller{"revoked": caller, "over": {Endpoint: e, TokenID: caller.TokenID}} {
		require.ErrorIs(t, b.store.Hold(t.Context(), c, func(context.Context) error {
			t.Error(what)
			return nil
		}), endpoint.ErrStale, what)
	}
}
