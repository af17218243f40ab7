package todo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestScript_ATimeOnTheConnectionEndsIt: a batch is bounded by a time on its connection.
// When that is over, what the server still sends must reach nobody else.
func TestScript_ATimeOnTheConnectionEndsIt(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	held := k.changing(k.peer) // nobody who waits for this row is answered
	for _, statements := range []int{1, 3} {
		conn, err := k.store.writers.Acquire(t.Context())
		require.NoError(t, err)
		b := &script{}
		for range statements {
			b.add(`SELECT FROM stand_in WHERE id = $1 FOR UPDATE`, k.peer.Endpoint.ID)
		}
		wire := conn.Conn().PgConn().Conn()
		require.NoError(t, wire.SetDeadline(time.Now().Add(50*time.Millisecond)))
		require.Error(t, b.run(t.Context(), conn))
		_ = wire.SetDeadline(time.Time{})
		require.True(t, conn.Conn().IsClosed(), "with %d statements", statements)
		conn.Release()
	}
	require.NoError(t, held.Rollback(t.Context()))
	k.create("afterwards")
	k.next()
}
