package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
)

// showInBrowser prints the URL and opens it where there is a browser. A machine
// without one is no failure: the human can copy the line.
func showInBrowser(stderr io.Writer) func(url string) error {
	return func(url string) error {
		fmt.Fprintf(stderr, "Sign in here; the browser opens, or copy the line:\n\n  %s\n\n", url)
		_ = openBrowser(url)
		return nil
	}
}

// openBrowser opens url where there is a browser. What is no web page is not
// opened: the system would run it.
func openBrowser(url string) error {
	if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") {
		return fmt.Errorf("%q is no web page", url)
	}
	ctx := context.Background() // the browser lives on when we end
	var open *exec.Cmd
	switch runtime.GOOS {
	case "windows":
		open = exec.CommandContext(ctx, "rundll32", "url.dll,FileProtocolHandler", url)
	case "darwin":
		open = exec.CommandContext(ctx, "open", url)
	default:
		open = exec.CommandContext(ctx, "xdg-open", url)
	}
	if err := open.Start(); err != nil {
		return err
	}
	go func() { _ = open.Wait() }() // ends with the helper, which hands over to the browser
	return nil
}
