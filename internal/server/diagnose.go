package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"switchboard/internal/postgres"
	"switchboard/internal/provenance"
)

// Diagnose tries what an instance needs from outside and writes a line for
// each; the error says that something must be mended.
func Diagnose(ctx context.Context, c Config, out io.Writer) error {
	bad := 0
	say := func(what string, err error, remedy string) {
		if err == nil {
			fmt.Fprintf(out, "ok    %s\n", what)
			return
		}
		bad++
		fmt.Fprintf(out, "WRONG %s: %v\n      %s\n", what, err, remedy)
	}
	pool, err := postgres.Open(ctx, c.DatabaseURL, postgres.Options{TransactionPooling: c.Pooled})
	say("the database answers", err, "Check database_url, and that the server runs and lets this host in.")
	if err == nil {
		defer pool.Close()
		say("its schema is this program's", postgres.CheckSchema(ctx, pool), "Run `switchboard admin migrate`.")
		var commit, fsync string
		if err := pool.QueryRow(ctx, `SELECT current_setting('synchronous_commit'), current_setting('fsync')`).Scan(&commit, &fsync); err == nil {
			if fsync != "on" || commit == "off" {
				err = fmt.Errorf("fsync=%s, synchronous_commit=%s", fsync, commit)
			}
			say("what it acknowledges is durable", err, "Set fsync=on and synchronous_commit=on, or work that was acknowledged can be lost.")
		}
	}
	keys := provenance.NewKeys(provenance.GuardedClient(c.Dev))
	for i := range c.Issuers {
		_, err := keys.Discover(ctx, &c.Issuers[i])
		say("issuer "+c.Issuers[i].Issuer+" answers", err, "Check the URL, and that this host may connect out over https.")
	}
	if bad > 0 {
		return errors.New("something must be mended")
	}
	return nil
}
