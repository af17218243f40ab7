package server

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"

	"switchboard/internal/activity"
	"switchboard/internal/postgres"
)

// VerifyActivity recomputes the record of activity and writes what it found; the
// error says that the record is not as it was made. heads were noted earlier.
func VerifyActivity(ctx context.Context, c Config, heads []string, out io.Writer) error {
	var keys []ed25519.PublicKey
	for _, secret := range c.SealKeys {
		key, err := derivedKey(secret, activityHeads)
		if err != nil {
			return err
		}
		keys = append(keys, ed25519.PublicKey(key[ed25519.SeedSize:])) // a private key ends with its public one (RFC 8032)
	}
	pool, err := postgres.Open(ctx, c.DatabaseURL, postgres.Options{TransactionPooling: c.Pooled})
	if err != nil {
		return fmt.Errorf("verify activity: %w", err)
	}
	defer pool.Close()
	r, err := activity.Verify(ctx, pool, keys, activity.VerifyOptions{Heads: heads})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d events of %d people, %d of them sealed, %d values erased\n", r.Events, r.Owners, r.Sealed, r.Erased)
	if r.Head != "" {
		fmt.Fprintf(out, "head %s\n", r.Head)
	}
	if r.OK() {
		fmt.Fprintln(out, "ok: the record is as it was made")
		return nil
	}
	for _, f := range r.Faults {
		fmt.Fprintf(out, "FAULT %s\n", f)
	}
	return errors.New("the record is not as it was made")
}
