package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"switchboard/internal/human"
	"switchboard/internal/provenance"
	"switchboard/internal/server"
)

// serveJob is what a server process is told.
type serveJob struct {
	Database  string `json:"database"`
	PublicURL string `json:"public_url"`
	Listen    string `json:"listen"`
}

// serving is what it says once it serves.
type serving struct {
	Control string `json:"control"` // address of its profiles and memory
}

// memory is what a process holds after everything unused was collected and
// returned to the system.
type memory struct {
	Resident int64 `json:"resident"` // VmRSS
	InUse    int64 `json:"in_use"`   // heap and stacks
	Routines int   `json:"routines"`
}

func newServeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "One server process under a benchmark", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var job serveJob
			ctx, say, err := underParent(c.Context(), &job)
			if err != nil {
				return err
			}
			return runServe(ctx, job, say)
		},
	}
}

// noIssuer stands where an instance must name an issuer: nobody signs in here.
const noIssuer = `
- issuer: https://issuer.invalid
  algs: [ES256]
  login: {client_id: nobody}
  provenance:
    published_client: {client_id: nobody-either, redirect_uris: ["http://127.0.0.1/callback"], scope: openid}
`

// runServe is what `switchboard serve` does, and a second listener for us.
func runServe(ctx context.Context, job serveJob, say func(any) error) error {
	issuers, err := provenance.ParseIssuers([]byte(noIssuer), true)
	if err != nil {
		return err
	}
	residents, err := human.NewResidents([]string{"*"}, true)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := server.New(ctx, server.Config{
		PublicURL: job.PublicURL, Listen: job.Listen, DatabaseURL: job.Database,
		Issuers: issuers, SealKeys: [][]byte{sealKey()}, Residents: residents, Dev: true,
	}, "bench", log)
	if err != nil {
		return err
	}
	if err := s.Listen(); err != nil {
		s.Close()
		return err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		s.Close()
		return fmt.Errorf("control: %w", err)
	}
	hs := &http.Server{Handler: controlMux(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = hs.Serve(control) }()
	defer hs.Close()
	if err := say(serving{Control: control.Addr().String()}); err != nil {
		s.Close()
		return err
	}
	if err := s.Run(ctx); err != nil && !errors.Is(context.Cause(ctx), errStopped) {
		return err
	}
	return nil
}

func controlMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /memory", func(w http.ResponseWriter, _ *http.Request) {
		m, err := measureMemory()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, `{"resident":%d,"in_use":%d,"routines":%d}`, m.Resident, m.InUse, m.Routines)
	})
	return mux
}

func measureMemory() (memory, error) {
	// Twice: pools are emptied by the second collection.
	runtime.GC()
	debug.FreeOSMemory()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	m := memory{InUse: int64(ms.HeapInuse + ms.StackInuse), Routines: runtime.NumGoroutine()}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return memory{}, fmt.Errorf("read the resident size: %w", err)
	}
	_, rest, ok := strings.Cut(string(status), "VmRSS:")
	if !ok {
		return memory{}, errors.New("no VmRSS in /proc/self/status")
	}
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest[:strings.IndexByte(rest, '\n')]), "kB")), 10, 64)
	if err != nil {
		return memory{}, fmt.Errorf("read the resident size: %w", err)
	}
	m.Resident = kib << 10
	return m, nil
}

// replica is a server process of an instance, seen from the parent.
type replica struct {
	*process
	addr    string // where it listens
	host    string // what it answers for
	control string
}

// serveInstance starts a server process of the instance named publicHost, which
// may be the address of another one.
func serveInstance(ctx context.Context, database, publicHost, listen string) (*replica, error) {
	p, err := start("serve", serveJob{Database: database, PublicURL: "http://" + publicHost, Listen: listen})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var s serving
	if err := p.receive(ctx, &s); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return &replica{process: p, addr: listen, host: publicHost, control: s.Control}, nil
}
