package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/persona"
	"switchboard/internal/postgres"
	"switchboard/internal/provenance"
)

// reachWithin is how long anything outside may take to answer a diagnosis.
const reachWithin = 10 * time.Second

// diagnosis writes a line for each thing that was tried.
type diagnosis struct {
	out io.Writer
	bad int
}

func (d *diagnosis) say(what string, err error, remedy string) {
	if err == nil {
		fmt.Fprintf(d.out, "ok    %s\n", what)
		return
	}
	d.bad++
	fmt.Fprintf(d.out, "WRONG %s: %s\n      %s\n", what, oneLine(err), remedy)
}

// oneLine is an error in a line, each part once: pgx tells every address that it
// tried, and the same one with TLS and without.
func oneLine(err error) string {
	var parts []string
	seen := map[string]bool{}
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" && !seen[line] {
			seen[line] = true
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, " ")
}

// Diagnose tells what of a configuration is wrong, tries what an instance needs
// from outside, and writes a line for each; the error says that something must
// be mended. wrong is what Load found: what is right is tried all the same.
func Diagnose(ctx context.Context, c Config, wrong error, out io.Writer) error {
	d := &diagnosis{out: out}
	if wrong == nil {
		d.say("the configuration is complete", nil, "")
	} else {
		for _, err := range all(wrong) {
			d.bad++
			fmt.Fprintf(out, "WRONG %s\n", oneLine(err))
		}
	}
	if c.DatabaseURL != "" {
		d.database(ctx, c)
	}
	keys := provenance.NewKeys(provenance.GuardedClient(c.Dev))
	for i := range c.Issuers {
		_, err := keys.Discover(ctx, &c.Issuers[i])
		d.say("issuer "+c.Issuers[i].Issuer+" answers", err, issuerRemedy(err))
	}
	if u, err := url.Parse(c.SMTP); c.SMTP != "" && err == nil && u.Host != "" {
		d.say("the mail server answers", reach(ctx, u), "Check smtp_url, and that this host may connect to it; without it there is no e-mail.")
	}
	if d.bad > 0 {
		return fmt.Errorf("%d of these must be mended; then run it again", d.bad)
	}
	return nil
}

// all takes joined errors apart.
func all(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return []error{err}
}

func (d *diagnosis) database(ctx context.Context, c Config) {
	ctx, cancel := context.WithTimeout(ctx, 3*reachWithin)
	defer cancel()
	pool, err := postgres.Open(ctx, c.DatabaseURL, postgres.Options{TransactionPooling: c.Pooled})
	d.say("the database answers", err, databaseRemedy("database_url", err))
	if err != nil {
		return
	}
	defer pool.Close()
	if c.DirectDatabaseURL != "" && c.DirectDatabaseURL != c.DatabaseURL {
		direct, err := postgres.Open(ctx, c.DirectDatabaseURL, postgres.Options{MaxConns: 1})
		if err == nil {
			direct.Close()
		}
		d.say("it answers without the pooler", err, databaseRemedy("direct_database_url", err))
	}
	schema := postgres.CheckSchema(ctx, pool)
	const grant = "GRANT the role that serves what specs/operating.md says, or migrate as that role."
	remedy := "Run `switchboard admin migrate`, with a role that may create tables."
	var told *pgconn.PgError
	if errors.As(schema, &told) && told.Code == "42501" {
		remedy = grant
	}
	d.say("its schema is this program's", schema, remedy)
	if schema == nil {
		d.say("this role may use it", mayUse(ctx, pool), grant)
	}
	var commit, fsync string
	if err := pool.QueryRow(ctx, `SELECT current_setting('synchronous_commit'), current_setting('fsync')`).Scan(&commit, &fsync); err == nil {
		if fsync != "on" || commit == "off" {
			err = fmt.Errorf("fsync=%s, synchronous_commit=%s", fsync, commit)
		}
		d.say("what it acknowledges is durable", err, "Set fsync=on and synchronous_commit=on, or work that was acknowledged can be lost.")
	}
	if schema == nil && len(c.SealKeys) > 0 {
		sealer, err := provenance.NewSealer(c.SealKeys[0], c.SealKeys[1:]...)
		if err == nil {
			err = persona.NewCardKeys(pool, sealer).Openable(ctx)
		}
		d.say("seal_key opens what is sealed there", err, "Put the key that was used before after the current one, separated by a comma.")
	}
}

// mayUse finds a table that the role cannot write to, or a sequence that it
// cannot draw from. goose's own are not written to by serving, and partitions by
// way of their parents.
func mayUse(ctx context.Context, pool *pgxpool.Pool) error {
	var name string
	err := pool.QueryRow(ctx, `
		SELECT coalesce(min(c.relname::text), '')
		FROM pg_class c
		WHERE c.relnamespace = current_schema()::regnamespace AND NOT c.relispartition AND c.relname NOT LIKE 'goose%'
		  AND (c.relkind IN ('r', 'p') AND NOT has_table_privilege(c.oid, 'INSERT')
		    OR c.relkind = 'S' AND NOT has_sequence_privilege(c.oid, 'USAGE'))`).Scan(&name)
	if err == nil && name != "" {
		err = fmt.Errorf("it has no right to write to %s", name)
	}
	return err
}

// databaseRemedy says what mends a connection that did not come about.
func databaseRemedy(setting string, err error) string {
	var told *pgconn.PgError
	var parse *pgconn.ParseConfigError
	var name *net.DNSError
	switch {
	case errors.As(err, &told):
		switch told.Code {
		case "28P01":
			return "The password in " + setting + " is not this role's: correct it there, or set it anew with ALTER ROLE … PASSWORD."
		case "28000":
			return "The role or this host is not let in: look at pg_hba.conf, and at the user in " + setting + "."
		case "3D000":
			return "There is no such database: make it with CREATE DATABASE, or correct the name in " + setting + "."
		case "53300":
			return "The server has no connection left: raise max_connections, or put a pooler between."
		}
		return "PostgreSQL itself refuses; its log says more. Check " + setting + "."
	case errors.As(err, &parse):
		return setting + " must look like postgres://user:password@host:5432/database; characters such as @ : / in a password are written as %40 %3A %2F."
	case errors.As(err, &name):
		return "The host in " + setting + " has no address: correct its name, or this machine's name service."
	}
	return "No server answers at the host and port in " + setting + ": start it, correct them, or open the firewall between."
}

func issuerRemedy(err error) string {
	var name *net.DNSError
	if errors.As(err, &name) {
		return "Its host has no address from here: correct the issuer's URL in issuers_file, or this machine's name service."
	}
	return "Check the URL in issuers_file, and that this host may connect out over https; only public addresses are connected to."
}

// reach connects and hangs up.
func reach(ctx context.Context, u *url.URL) error {
	port := u.Port()
	if port == "" {
		port = map[string]string{"smtp": "587", "smtps": "465"}[u.Scheme]
	}
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}
