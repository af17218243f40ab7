package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// TestURLVariable names the environment variable through which tests find a
// server that is already running. See package pgtest.
const TestURLVariable = "SWITCHBOARD_TEST_POSTGRES"

// RunWith starts a server on dir, or a throwaway one when dir is empty, calls f
// with the URL of its database "switchboard", and stops the server.
func RunWith(ctx context.Context, dir string, f func(url string) error) error {
	s, err := startIn(ctx, dir, DevOptions{Database: "switchboard"})
	if err != nil {
		return err
	}
	return errors.Join(f(s.URL("switchboard")), s.Stop())
}

// StartThrowaway starts a server in a new temporary directory that goes with it.
func StartThrowaway(ctx context.Context, o DevOptions) (*DevServer, error) {
	return startIn(ctx, "", o)
}

func startIn(ctx context.Context, dir string, o DevOptions) (*DevServer, error) {
	if dir != "" {
		return Start(ctx, dir, o)
	}
	temp, err := os.MkdirTemp("", "sbpg-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the server: %w", err)
	}
	o.Throwaway = true
	s, err := Start(ctx, temp, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	return s, nil
}

// Exec runs a command with the URL of a throwaway server in its environment
// ([TestURLVariable]) and returns its exit code. When ctx ends, the command is
// interrupted first. An error means that the command did not run to its end.
func Exec(ctx context.Context, args []string) (exitCode int, err error) {
	if len(args) == 0 {
		return 0, errors.New("no command to run")
	}
	s, err := StartThrowaway(ctx, DevOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()

	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), TestURLVariable+"="+s.URL("postgres"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	runErr := cmd.Run()
	var exit *exec.ExitError
	if errors.As(runErr, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if runErr != nil {
		return 0, fmt.Errorf("run %s: %w", args[0], runErr)
	}
	return 0, nil
}
