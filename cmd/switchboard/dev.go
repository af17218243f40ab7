package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"switchboard/internal/devidp"
	"switchboard/internal/human"
	"switchboard/internal/postgres"
	"switchboard/internal/provenance"
	"switchboard/internal/server"
)

type devOptions struct {
	dir, listen, private, issuerListen, issuer, database, logLevel string
	directories                                                    []string
}

func newDevCommand() *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use:   "dev",
		Short: "One instance on loopback to look around in, with its own PostgreSQL and issuer",
		Long: `Runs one instance on loopback with everything that it needs: a private PostgreSQL server, and a development issuer at which
alice, bob and carol sign in without a password. Data is kept under --dir.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runDev(c, o) },
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", ".data", "where data is kept")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "public listener; names the instance")
	f.StringVar(&o.private, "private-listen", "127.0.0.1:8081", "listener of /healthz, /readyz and /metrics")
	f.StringVar(&o.issuerListen, "issuer-listen", "127.0.0.1:8082", "listener of the development issuer; people are known by its address")
	f.StringVar(&o.issuer, "issuer", "", "use this development issuer, of another process, instead of an own one")
	f.StringVar(&o.database, "database-url", "", "use this database instead of a private server")
	f.StringSliceVar(&o.directories, "directory", nil, "public URL of another instance whose listed personas are found here too")
	f.StringVar(&o.logLevel, "log", "warn", "debug, info, warn or error")
	return c
}

func runDev(c *cobra.Command, o devOptions) (err error) {
	ctx := c.Context()
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return usageError{fmt.Errorf("--log: %w", err)}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := o.checkListeners(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	key, err := devSealKey(filepath.Join(dir, "seal.key"))
	if err != nil {
		return err
	}
	database := o.database
	if database == "" {
		db, err := postgres.Start(ctx, filepath.Join(dir, "postgres"), postgres.DevOptions{Database: "switchboard"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Stop()) }()
		database = db.URL("switchboard")
	}
	if err := postgres.Migrate(ctx, database); err != nil {
		return err
	}
	issuer := o.issuer
	if issuer == "" {
		p, err := devidp.Start(context.WithoutCancel(ctx), o.issuerListen, devidp.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		issuer = p.Issuer()
	}
	issuers, err := provenance.ParseIssuers([]byte(devIssuers(issuer)), true)
	if err != nil {
		return err
	}
	residents, err := human.NewResidents([]string{"*"}, true)
	if err != nil {
		return err
	}
	cfg := server.Config{
		PublicURL: "http://" + o.listen, Listen: o.listen, PrivateListen: o.private, DatabaseURL: database,
		Issuers: issuers, SealKeys: [][]byte{key}, Residents: residents, Directories: o.directories, Dev: true,
	}
	return serve(c, cfg, log, func() {
		out := c.OutOrStdout()
		fmt.Fprintln(out, "issuer", issuer) // a line of specs/protocol.md section 8
		fmt.Fprintln(out, "open  ", cfg.PublicURL)
		fmt.Fprintf(out, "\nSign in as alice, bob or carol; there is no password. Data is kept in %s.\n", dir)
		fmt.Fprintln(out, "The first todo from a friend in five minutes: specs/getting-started.md. Ctrl-C ends this.")
	})
}

// checkListeners finds out in the first second, and not after a database was
// made, that an address is taken.
func (o devOptions) checkListeners(ctx context.Context) error {
	wanted := []struct{ flag, address string }{{"--listen", o.listen}, {"--private-listen", o.private}}
	if o.issuer == "" {
		wanted = append(wanted, struct{ flag, address string }{"--issuer-listen", o.issuerListen})
	}
	var errs []error
	for _, w := range wanted {
		if _, _, err := net.SplitHostPort(w.address); err != nil {
			return usageError{fmt.Errorf("%s: %w", w.flag, err)}
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", w.address)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w; choose another address with %s", err, w.flag))
		}
	}
	return errors.Join(errs...)
}

// devIssuers is the issuer entry of development, as an operator would write it.
func devIssuers(issuer string) string {
	return fmt.Sprintf(`
- issuer: %q
  name: Development issuer
  algs: [RS256]
  email_authoritative_for: [example.com]
  login: {client_id: %q}
  provenance:
    max_auth_age: 3600
    published_client:
      client_id: %q
      redirect_uris: ["http://127.0.0.1/callback"]
      scope: openid email
`, issuer, devidp.LoginClient, devidp.FriendClient)
}

// devSealKey reads the sealing key of a development instance, or makes one.
func devSealKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(newSealKey())
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("sealing key: %w", err)
	}
	return provenance.ParseSealKey(string(text))
}

func newSealKey() string {
	key := make([]byte, provenance.SealKeySize)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return base64.StdEncoding.EncodeToString(key)
}

func newDevPostgresCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dev-postgres -- command [argument...]",
		Short: "Run a command with a throwaway PostgreSQL server for tests",
		Long: `Starts a throwaway PostgreSQL server, runs the command with its address in ` + postgres.TestURLVariable + `, stops the server, and
ends with the command's exit status.`,
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			code, err := postgres.Exec(c.Context(), args)
			if err != nil {
				return err
			}
			if code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
}
