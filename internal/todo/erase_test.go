package todo

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
)

// TestErase_LeavesNothingThatIsJustBeingMade: the human, in another tab, makes things
// while the account is being erased.
func TestErase_LeavesNothingThatIsJustBeingMade(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*kit, Created) error{
		"todo": func(k *kit, _ Created) error {
			_, err := k.store.CreateOwn(context.Background(), k.owner, New{Queue: "reviews", Title: "t", IdempotencyKey: "k"})
			return err
		},
		"queue": func(k *kit, _ Created) error {
			_, err := k.store.CreateQueue(context.Background(), k.owner, "more", "")
			return err
		},
		"retry": func(k *kit, c Created) error {
			_, err := k.store.Retry(context.Background(), k.owner, c.TodoID)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			k := newKit(t)
			failed := k.create("failed")
			out, err := k.store.Fail(ctx, k.work, []Failure{{TodoID: failed.TodoID, LeaseToken: k.next().LeaseToken, Error: "e", NoRetry: true}})
			require.NoError(t, err)
			require.NoError(t, out[0].Err)
			erasing, err := k.pool.Begin(ctx)
			require.NoError(t, err)
			defer erasing.Rollback(ctx)
			require.NoError(t, k.store.Erase(ctx, erasing, k.owner))
			done := make(chan error, 1)
			go func() { done <- do(k, failed) }()
			k.waitingOn(1)
			require.NoError(t, erasing.Commit(ctx))
			requireCode(t, refusal.NotFound, <-done)
			for _, table := range []string{"queue", "todo", "todo_live", "todo_key", "todo_outcome"} {
				var n int
				require.NoError(t, k.pool.QueryRow(ctx, `SELECT count(*) FROM `+table+` WHERE owner = $1`, k.owner).Scan(&n))
				require.Zero(t, n, table)
			}
		})
	}
}
