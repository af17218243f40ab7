package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"switchboard/internal/requester"
)

// loginWithin is how long a person may take in the browser.
const loginWithin = 10 * time.Minute

type loginFlags struct {
	name                  string
	noBrowser, tokenStdin bool
}

func newLoginCommand() *cobra.Command {
	var f loginFlags
	c := &cobra.Command{
		Use:   "login <URL of your instance>",
		Short: "Sign in in the browser, for the commands that look after your own account",
		Long: `Opens a page of your instance, where you confirm that this program gets an API token, and keeps the token in a private file. It may
read, narrow, pause, revoke and decline. Approving, vending and resuming always happen in the browser.

With a browser on another machine, copy the address there, confirm, and paste here the address at which the browser ended. To undo it: switchboard logout.`,
		Example: "  switchboard login https://todo.example\n  switchboard login https://todo.example --token-stdin <token.txt",
		Args:    oneArgument("the URL of your instance"),
		RunE: func(c *cobra.Command, args []string) error {
			instance, err := instanceURL(args[0])
			if err != nil {
				return usageError{err}
			}
			a := account{URL: instance}
			if f.tokenStdin {
				if _, err := fmt.Fscanln(c.InOrStdin(), &a.Token); err != nil {
					return errors.New("no token on standard input; make one in " + instance + "/settings")
				}
			} else if a, err = f.inBrowser(c, instance); err != nil {
				return err
			}
			name, err := a.keep(c.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "Signed in as %s.\n", plain(name))
			return nil
		},
	}
	c.Flags().StringVar(&f.name, "name", "", "what the token is called in your settings (default: this program on this machine)")
	c.Flags().BoolVar(&f.noBrowser, "no-browser", false, "only print the address of the page")
	c.Flags().BoolVar(&f.tokenStdin, "token-stdin", false, "keep a token that you made in your settings, read from standard input")
	c.MarkFlagsMutuallyExclusive("token-stdin", "no-browser")
	c.MarkFlagsMutuallyExclusive("token-stdin", "name")
	return c
}

// inBrowser has the human confirm on a page of the instance, and redeems the
// code that comes back for the token.
func (f loginFlags) inBrowser(c *cobra.Command, instance string) (account, error) {
	ctx, cancel := context.WithTimeout(c.Context(), loginWithin)
	defer cancel()
	stderr := c.ErrOrStderr()
	name := f.name
	if name == "" {
		host, _ := os.Hostname()
		name = strings.TrimSpace("switchboard on " + host)
	}
	verifier := oauth2.GenerateVerifier()
	page := func(redirect, state string) string {
		return instance + "/program-sign-in?" + url.Values{
			"name": {name}, "redirect_uri": {redirect}, "state": {state},
			"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"},
		}.Encode()
	}
	show := showInBrowser(stderr)
	if f.noBrowser {
		show = func(url string) error {
			_, err := fmt.Fprintf(stderr, "Open this in a browser, and confirm there:\n\n  %s\n\n", url)
			return err
		}
	}
	var typed <-chan string
	if terminalOf(c).human || f.noBrowser {
		typed = lines(c.InOrStdin())
		before := show
		show = func(url string) error {
			err := before(url)
			fmt.Fprintln(stderr, "If that browser is on another machine, paste here the address at which it ends.")
			return err
		}
	}
	code, redirect, err := requester.InBrowser(ctx, instance, page, show, typed, func() { fmt.Fprintln(stderr, "That is not the address of an answer to this sign-in.") })
	switch {
	case errors.Is(err, requester.ErrSaidNo):
		return account{}, errors.New("you said no in the browser; nothing was kept")
	case errors.Is(err, context.DeadlineExceeded):
		return account{}, fmt.Errorf("nobody confirmed within %s; run it again, or make a token at %s/settings and give it with --token-stdin", loginWithin, instance)
	case err != nil:
		return account{}, err
	}
	b, err := account{URL: instance}.do(ctx, http.MethodPost, "/v1/program-sign-in", map[string]any{"code": code, "code_verifier": verifier, "redirect_uri": redirect})
	if err != nil {
		return account{}, err
	}
	var made struct{ Name, Token string }
	if err := json.Unmarshal(b, &made); err != nil || made.Token == "" {
		return account{}, fmt.Errorf("%s gave no token", instance)
	}
	return account{URL: instance, Token: made.Token, Name: made.Name}, nil
}

// lines are what a person types; it is closed at the end of r.
func lines(r io.Reader) <-chan string {
	out := make(chan string)
	go func() { // ends with r, at the latest with the program
		defer close(out)
		for s := bufio.NewScanner(r); s.Scan(); {
			out <- s.Text()
		}
	}()
	return out
}
