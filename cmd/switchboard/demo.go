package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

func newDemoCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "The whole loop between two fresh instances, over the wire",
		Long: `Starts two instances as processes of their own, each with its own database, and one OpenID issuer that both trust. Bob lives on
one, alice on the other. Everything goes over HTTP; everything is removed at the end.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), 3*time.Minute)
			defer cancel()
			dir, err := os.MkdirTemp("", "switchboard-demo-")
			if err != nil {
				return err
			}
			if !keep {
				defer func() { _ = os.RemoveAll(dir) }()
			}
			if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL may run as another user
				return err
			}
			err = runDemo(ctx, dir, c.OutOrStdout())
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			fmt.Fprintln(c.OutOrStdout(), "demo: ok")
			return nil
		},
	}
	c.Flags().BoolVar(&keep, "keep", false, "keep the temporary directory, with the logs")
	return c
}

// instance is a running `switchboard dev`.
type instance struct {
	url, issuer string
	cmd         *exec.Cmd
	log         *bytes.Buffer
	ended       chan struct{}
}

// startInstance runs this program's dev command in a process of its own and
// waits until it is ready.
func startInstance(ctx context.Context, dir, name, issuer string) (*instance, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	args := []string{"dev", "--dir", home, "--listen", ports[0], "--private-listen", ports[1], "--issuer-listen", ports[2]}
	if issuer != "" {
		args = append(args, "--issuer", issuer)
	} else {
		issuer = "http://" + ports[2]
	}
	i := &instance{url: "http://" + ports[0], issuer: issuer, cmd: exec.CommandContext(context.WithoutCancel(ctx), program, args...), log: &bytes.Buffer{}, ended: make(chan struct{})}
	i.cmd.Stdout, i.cmd.Stderr = io.Discard, i.log
	if err := i.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = i.cmd.Wait(); close(i.ended) }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url+"/readyz", nil)
		if err != nil {
			return nil, err
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return i, nil
			}
		}
		select {
		case <-i.ended:
			return nil, fmt.Errorf("the instance of %s ended: %s", name, i.log)
		case <-ctx.Done():
			i.stop()
			return nil, fmt.Errorf("the instance of %s did not get ready: %s", name, i.log)
		case <-tick.C:
		}
	}
}

// stop ends the process in order.
func (i *instance) stop() {
	_ = i.cmd.Process.Signal(os.Interrupt)
	select {
	case <-i.ended:
	case <-time.After(20 * time.Second):
		_ = i.cmd.Process.Kill()
		<-i.ended
	}
}

// freePorts finds loopback addresses that nobody listens on.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var addrs []string
	var errs []error
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { errs = append(errs, l.Close()) }()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, errors.Join(errs...)
}
