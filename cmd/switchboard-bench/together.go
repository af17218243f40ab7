package main

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// together runs f n times at once and returns the first failure, which ends the
// others' context.
func together(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}
