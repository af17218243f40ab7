package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"switchboard/internal/postgres"
	"switchboard/internal/server"
)

func newAdminCommand() *cobra.Command {
	c := &cobra.Command{Use: "admin", Short: "What the operator of an instance does"}
	c.AddCommand(newMigrateCommand(), newSealKeyCommand(), newCheckCommand(), newActivityCommand())
	return c
}

func newMigrateCommand() *cobra.Command {
	var database, config string
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to this program's schema",
		Long:  "Brings the database to this program's schema, under an advisory lock. Needs a direct connection, past any pooler, and a role that may create tables.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if database == "" && config != "" {
				cfg, err := server.Load(config, os.Environ())
				if cfg.DatabaseURL == "" {
					return err
				}
				database = cmp.Or(cfg.DirectDatabaseURL, cfg.DatabaseURL)
			}
			for _, name := range []string{"SWITCHBOARD_DIRECT_DATABASE_URL", "SWITCHBOARD_DATABASE_URL"} {
				if database == "" {
					database = os.Getenv(name)
				}
			}
			if database == "" {
				return usageError{errors.New("give --database-url or --config, or set SWITCHBOARD_DATABASE_URL")}
			}
			if err := postgres.Migrate(c.Context(), database); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "the database is up to date")
			return nil
		},
	}
	c.Flags().StringVar(&database, "database-url", "", "postgres://…, of a role that may create tables")
	c.Flags().StringVar(&config, "config", os.Getenv("SWITCHBOARD_CONFIG"), "configuration file, whose database is meant without --database-url")
	return c
}

func newSealKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "seal-key",
		Short: "Make a sealing key for the setting seal_key",
		Args:  cobra.NoArgs,
		Run:   func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), newSealKey()) },
	}
}

func newActivityCommand() *cobra.Command {
	var config string
	var heads []string
	verify := &cobra.Command{
		Use:   "verify",
		Short: "Find any change to the record of activity",
		Long: `Recomputes the chain and its signatures, and prints the newest head. Note that head outside the database and give it to a later
verification: only so it can be found that the end of the record was cut off.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := server.Load(config, os.Environ())
			if err != nil {
				return err
			}
			return server.VerifyActivity(c.Context(), cfg, heads, c.OutOrStdout())
		},
	}
	verify.Flags().StringVar(&config, "config", os.Getenv("SWITCHBOARD_CONFIG"), "configuration file")
	verify.Flags().StringSliceVar(&heads, "head", nil, "head that was noted earlier and must still be there")
	c := &cobra.Command{Use: "activity", Short: "The record of what happened"}
	c.AddCommand(verify)
	return c
}

func newCheckCommand() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "check",
		Short: "Tell what is wrong with the configuration, and how to mend it",
		Long: `Checks every setting, and tries what an instance needs: the database, its schema, the rights of its role, what is sealed there, the issuers,
the mail server. Prints a line for each, ok or WRONG with what mends it; ends with 1 when something must be mended. Changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := server.Load(config, os.Environ())
			return server.Diagnose(c.Context(), cfg, err, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&config, "config", os.Getenv("SWITCHBOARD_CONFIG"), "configuration file")
	return c
}
