package postgres_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

// TestBatcher_DeadlockedBatchesAreRunSingly lets two batches lock two rows in
// opposite order, which PostgreSQL ends by failing one of them.
func TestBatcher_DeadlockedBatchesAreRunSingly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(ctx, "CREATE TABLE account (id int PRIMARY KEY, n int); INSERT INTO account VALUES (1, 0), (2, 0)")
	require.NoError(t, err)

	// Each batch of two waits, with its first row locked, for the other one.
	var locked sync.WaitGroup
	locked.Add(2)
	exec := func(ctx context.Context, ids []int) ([]postgres.Result[int], error) {
		results := make([]postgres.Result[int], len(ids))
		return results, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			for i, id := range ids {
				if err := tx.QueryRow(ctx, "UPDATE account SET n = n + 1 WHERE id = $1 RETURNING n", id).Scan(&results[i].Value); err != nil {
					return err
				}
				if len(ids) == 2 && i == 0 {
					locked.Done()
					locked.Wait()
				}
			}
			return nil
		})
	}
	var gathered sync.WaitGroup
	gathered.Add(2)
	hold := make(chan struct{})
	run := func(first, second int) func() error {
		held := make(chan struct{}, 1)
		b := postgres.NewBatcher(func(ctx context.Context, ids []int) ([]postgres.Result[int], error) {
			if ids[0] == 0 { // keeps the batcher busy while the two gather
				held <- struct{}{}
				<-hold
				return make([]postgres.Result[int], 1), nil
			}
			return exec(ctx, ids)
		}, postgres.BatchOptions[int]{Workers: 1, Direct: 1})
		return func() error {
			var g errgroup.Group
			g.Go(func() error { _, err := b.Do(ctx, 0); return err })
			<-held
			for n, id := range []int{first, second} {
				g.Go(func() error { _, err := b.Do(ctx, id); return err })
				for b.Waiting() <= n {
					runtime.Gosched()
				}
			}
			gathered.Done()
			err := g.Wait()
			if cerr := b.Close(ctx); cerr != nil {
				return cerr
			}
			return err
		}
	}
	var g errgroup.Group
	g.Go(run(1, 2))
	g.Go(run(2, 1))
	gathered.Wait()
	close(hold)
	require.NoError(t, g.Wait())
	var sum int
	require.NoError(t, pool.QueryRow(ctx, "SELECT sum(n) FROM account").Scan(&sum))
	require.Equal(t, 4, sum, "each item took effect once")
}

// TestBatcher_PoisonInOneStatement shows why items are run singly: one value
// that PostgreSQL cannot store fails the statement for all.
func TestBatcher_PoisonInOneStatement(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(ctx, "CREATE TABLE note (body jsonb)")
	require.NoError(t, err)
	b := postgres.NewBatcher(func(ctx context.Context, bodies []string) ([]postgres.Result[int], error) {
		_, err := pool.Exec(ctx, "INSERT INTO note SELECT unnest($1::text[])::jsonb", bodies)
		return make([]postgres.Result[int], len(bodies)), err
	}, postgres.BatchOptions[string]{Workers: 1, Direct: 1})

	const n = 60
	errs := make([]error, n)
	var done sync.WaitGroup
	for i := range n {
		body := fmt.Sprintf(`{"i": %d}`, i)
		if i%20 == 7 {
			body = `{"i": "\u0000"}`
		}
		done.Go(func() { _, errs[i] = b.Do(ctx, body) })
	}
	done.Wait()
	require.NoError(t, b.Close(ctx))
	for i, err := range errs {
		if i%20 == 7 {
			require.Equal(t, "22P05", postgres.SQLState(err), i)
		} else {
			require.NoError(t, err, i)
		}
	}
	var stored int
	require.NoError(t, pool.QueryRow(ctx, "SELECT count(*) FROM note").Scan(&stored))
	require.Equal(t, n-3, stored)
}

// BenchmarkBatcher compares one-row commits through the batcher with the same
// ones raw, at several numbers of callers.
func BenchmarkBatcher(b *testing.B) {
	ctx := context.Background()
	pool, err := postgres.Open(ctx, pgtest.URL(b), postgres.Options{MaxConns: 80})
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, "CREATE TABLE row (n int)")
	require.NoError(b, err)
	raw := func(pool *pgxpool.Pool) func(int) error {
		return func(n int) error {
			_, err := pool.Exec(ctx, "INSERT INTO row VALUES ($1)", n)
			return err
		}
	}(pool)
	batcher := postgres.NewBatcher(func(ctx context.Context, ns []int) ([]postgres.Result[int], error) {
		_, err := pool.Exec(ctx, "INSERT INTO row SELECT unnest($1::int[])", ns)
		return make([]postgres.Result[int], len(ns)), err
	}, postgres.BatchOptions[int]{})
	for _, callers := range []int{1, 4, 16, 64} {
		for name, do := range map[string]func(int) error{"raw": raw, "batcher": func(n int) error { _, err := batcher.Do(ctx, n); return err }} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				var g errgroup.Group
				for c := range callers {
					g.Go(func() error {
						for i := c; i < b.N; i += callers {
							if err := do(i); err != nil {
								return err
							}
						}
						return nil
					})
				}
				require.NoError(b, g.Wait())
			})
		}
	}
}
