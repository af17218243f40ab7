package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"switchboard/internal/server"
)

func settingsTable() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, s := range server.Settings() {
		def := s.Default
		switch {
		case s.Required:
			def = "required"
		case def == "":
			def = "-"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", s.Name, def, s.About)
	}
	_ = t.Flush()
	return b.String()
}

func newServeCommand() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve an instance",
		Long: `Serves an instance until it is told to end. Settings stand in the file given by --config (YAML), or in the environment as
SWITCHBOARD_ and the name in capitals, which wins:

` + settingsTable(),
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := server.Load(config, os.Environ())
			if err != nil {
				return fmt.Errorf("the instance is not configured completely:\n%w", err)
			}
			return serve(c, cfg, slog.New(slog.NewJSONHandler(os.Stderr, nil)), nil)
		},
	}
	c.Flags().StringVar(&config, "config", os.Getenv("SWITCHBOARD_CONFIG"), "configuration file")
	return c
}

// serve runs an instance; ready is called once its listeners are open.
func serve(c *cobra.Command, cfg server.Config, log *slog.Logger, ready func()) error {
	if os.Getenv("GOGC") == "" {
		// The live heap is small beside what calls allocate; collecting less often
		// is worth a fifth of the throughput (adr/0011).
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if most := containerMemory(); most > 0 {
			// Near the container's limit collecting often is better than being ended.
			debug.SetMemoryLimit(most / 4 * 3)
		}
	}
	s, err := server.New(c.Context(), cfg, c.Root().Version, log)
	if err != nil {
		return err
	}
	if err := s.Listen(); err != nil {
		s.Close()
		return err
	}
	log.Info("serving", "public_url", cfg.PublicURL, "listen", cfg.Listen)
	if ready != nil {
		ready()
	}
	return s.Run(c.Context())
}

// containerMemory is the memory in bytes that the container may use, 0 where
// there is no such limit (cgroup v2).
func containerMemory() int64 {
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0
	}
	most, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return most
}
