package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sweepEvery is how often rows that have run out are removed. They have no
// effect before that either.
const sweepEvery = time.Minute

// Run removes what has run out; it ends with ctx. Any number of replicas may
// run it.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "sweep of tokens failed; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sweep removes what has run out, once.
func (s *Store) Sweep(ctx context.Context) error {
	for _, gone := range []struct{ table, when string }{
		{"endpoint_seen", `until < clock_timestamp()`},
		{"endpoint_token", `expires_at < clock_timestamp()`},
		{"endpoint_refresh", `expires_at < clock_timestamp()`},
		{"endpoint_authorization", `expires_at < clock_timestamp()
			OR redeemed_at IS NULL AND code_expires_at < clock_timestamp() - interval '10 minutes'`},
	} {
		if err := sweep(ctx, s.pool, gone.table, gone.when); err != nil {
			return err
		}
	}
	return s.forgetKeys(ctx)
}

// forgetKeys removes what strangers left who sent a request and never signed in.
// The keys' rows are locked first, as RegisterKey does: a key that comes again
// meanwhile is passed over, or stored anew.
func (s *Store) forgetKeys(ctx context.Context) error {
	const step = 1000
	for {
		var found int
		err := s.in(ctx, "forget keys", func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `
				SELECT k.thumbprint
				FROM endpoint_key_persona p JOIN endpoint_key k USING (thumbprint)
				WHERE p.identity = '' AND p.created_at < clock_timestamp() - interval '1 day'
				LIMIT $1 FOR UPDATE OF k SKIP LOCKED`, step)
			if err != nil {
				return err
			}
			keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			found = len(keys)
			if _, err := tx.Exec(ctx, `
				DELETE FROM endpoint_key_persona
				WHERE thumbprint = ANY ($1) AND identity = '' AND created_at < clock_timestamp() - interval '1 day'`, keys); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `
				DELETE FROM endpoint_key k
				WHERE thumbprint = ANY ($1) AND NOT EXISTS (SELECT FROM endpoint_key_persona p WHERE p.thumbprint = k.thumbprint)`, keys)
			return err
		})
		if err != nil || found < step {
			return err
		}
	}
}

// sweep deletes in small steps, so that no step holds many locks, and passes
// over what another replica is deleting.
func sweep(ctx context.Context, pool *pgxpool.Pool, table, when string) error {
	const step = 1000
	for {
		tag, err := pool.Exec(ctx, `
			DELETE FROM `+table+`
			WHERE ctid = ANY (ARRAY(SELECT ctid FROM `+table+` WHERE `+when+` LIMIT $1 FOR UPDATE SKIP LOCKED))`, step)
		if err != nil {
			return fmt.Errorf("sweep %s: %w", table, err)
		}
		if tag.RowsAffected() < step {
			return nil
		}
	}
}
