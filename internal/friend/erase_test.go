package friend_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
)

// TestErase_AGrantThatIsJustBeingApproved: the requester's account is erased while
// somebody approves what they asked for. Whichever is first, nothing stays open.
func TestErase_AGrantThatIsJustBeingApproved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.pending(from{})
	held, err := b.pool.Begin(t.Context()) // the approval waits for this
	require.NoError(t, err)
	defer held.Rollback(context.WithoutCancel(t.Context()))
	_, err = held.Exec(t.Context(), `SELECT FROM persona WHERE id = $1 FOR UPDATE`, b.persona.ID)
	require.NoError(t, err)
	approved, erased := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
		approved <- err
	}()
	b.waiting(1)
	go func() {
		erased <- pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := b.store.Erase(t.Context(), tx, uuid.Must(uuid.NewV7()), r.Identity.Hash)
			return err
		})
	}()
	b.waiting(2)
	require.NoError(t, held.Rollback(t.Context()))
	require.NoError(t, <-approved)
	require.NoError(t, <-erased)
	var grant, endpoint string
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT g.state, e.state FROM friend_grant g JOIN test_endpoint e ON e.id = g.endpoint_id`).Scan(&grant, &endpoint))
	require.Equal(t, "ended", grant)
	require.Equal(t, "ended", endpoint)
}

// waiting waits until so many transactions wait for locks.
func (b *bundle) waiting(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var waiting int
		err := b.pool.QueryRow(context.Background(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == n
	}, 20*time.Second, 5*time.Millisecond)
}
