package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "switchboard-bench:", err)
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	// As in the program, which links nothing that reads it; here net/http/pprof does.
	runtime.MemProfileRate = 0
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as the program serves, for every contender
	}
	root := &cobra.Command{
		Use:           "switchboard-bench",
		Short:         "Measure the todo queue, and try to break it",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newBenchCommand(), newSoakCommand(), newServeCommand(), newClientCommand(), newWorkerCommand())
	return root
}
