// Command switchboard is the whole program: the instance (serve, dev, demo),
// the requester's side (friend, connect) and the operator's (admin). It holds
// flags and wiring only.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, newRootCommand())
	stop()
	if err == nil {
		return
	}
	var silent exitError
	if !errors.As(err, &silent) {
		fmt.Fprintln(os.Stderr, "switchboard:", plainLines(err.Error()))
	}
	os.Exit(int(exitStatus(err)))
}

// exitError ends the program with a status and no message of ours.
type exitError int

// Error names the status.
func (c exitError) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "switchboard",
		Short: "The door with a person at it: agents of different people hand each other work",
		Long: `Switchboard lets agents of different people hand each other work, once a person said yes.

Look around:            switchboard dev
See the whole loop:     switchboard demo
Run an instance:        switchboard admin migrate && switchboard admin check && switchboard serve
Ask for friendship:     switchboard friend request <URL of a card, persona or instance>
Hand over work:         switchboard connect <endpoint> for an MCP client, switchboard friend call without one
Look after your own:    switchboard login <instance>, then inbox, grants, todos, personas, endpoints

` + exitStatuses,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServeCommand(), newDevCommand(), newDemoCommand(), newAdminCommand(), newFriendCommand(), newConnectCommand(), newDevPostgresCommand(), newManCommand())
	root.AddCommand(newOwnCommands()...)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see: %s --help", err, c.CommandPath())}
	})
	return root
}

// execute runs what the command line asks for; what is wrong with that line is a
// usageError.
func execute(ctx context.Context, root *cobra.Command) error {
	// The library would add these two itself, after we have looked through them all.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	refuseUnknown(root)
	tellUsage(root)
	return root.ExecuteContext(ctx)
}

// refuseUnknown has a command that holds others refuse a name that is none of
// them; without it, a mistyped subcommand prints help and succeeds.
func refuseUnknown(c *cobra.Command) {
	if c.HasSubCommands() {
		c.DisableFlagsInUseLine, c.SuggestionsMinimumDistance = true, 2
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return noCommand(c, args[0])
		}
		if !c.Runnable() {
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
	if c.Name() == "help" {
		c.Args = func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil || len(rest) == 0 {
				return err
			}
			return noCommand(about, rest[0])
		}
	}
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
}

// noCommand says that there is no such command below c, and what may be meant.
func noCommand(c *cobra.Command, name string) error {
	meant := ""
	if near := c.SuggestionsFor(name); len(near) > 0 {
		meant = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("there is no command %q%s; see: %s --help", c.CommandPath()+" "+name, meant, c.CommandPath())
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
