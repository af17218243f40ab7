package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"switchboard/internal/refusal"
	"switchboard/internal/requester"
)

func newFriendStatusCommand(shared *friendFlags) *cobra.Command {
	var client string
	var wait bool
	c := &cobra.Command{
		Use:   "status [request, grant or URL]",
		Short: "Ask how a request stands, and whether its grant still works; without an argument, the newest",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkClient(client); err != nil {
				return err
			}
			store, r, err := shared.find(args)
			if err != nil {
				return err
			}
			q := requester.New(0)
			if r.State != requester.Approved && r.State != requester.Ended {
				if err := q.Update(c.Context(), store, r); err != nil {
					return err
				}
			}
			if wait {
				if err := q.Wait(c.Context(), store, r); err != nil {
					return err
				}
			}
			if err := shared.printRequest(c.OutOrStdout(), r, client); err != nil {
				return err
			}
			switch {
			case r.State == requester.Ended:
				if now, err := store.Current(r); err == nil && now != r {
					fmt.Fprintf(c.ErrOrStderr(), "The grant was renewed; its line goes on with: switchboard friend status %s\n", now.ID)
				}
				return nil
			case r.Grant == nil:
				return nil
			}
			return tellUse(c, q, r)
		},
	}
	c.Flags().StringVar(&client, "client", "", "print the configuration of one client: "+strings.Join(clientNames(), ", "))
	c.Flags().BoolVar(&wait, "wait", false, "wait for the decision")
	return c
}

// tellUse asks the endpoint itself: a revoked grant does not show in the request.
func tellUse(c *cobra.Command, q *requester.Requester, r *requester.Request) error {
	endpoint, err := q.Endpoint(r)
	if err != nil {
		return err
	}
	got, err := endpoint.Call(c.Context(), "whoami", nil)
	if err != nil {
		return graspable(err)
	}
	var who struct {
		Used struct {
			Open     int64 `json:"open"`
			ThisHour int64 `json:"this_hour"`
		} `json:"used"`
	}
	if json.Unmarshal(got.Structured, &who) == nil {
		fmt.Fprintf(c.ErrOrStderr(), "The grant works: %d of your todos are open, %d were made this hour.\n", who.Used.Open, who.Used.ThisHour)
	}
	return nil
}

// graspable says what an endpoint's one answer to whoever has no authority may mean.
func graspable(err error) error {
	if refusal.CodeOf(err) == refusal.Forbidden {
		return errors.New("the grant does not work now: it was revoked, paused, has ended or expired")
	}
	return err
}

func newFriendListCommand(shared *friendFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List what is kept here: requests and grants, as they were seen last",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := requester.Open(shared.state)
			if err != nil {
				return err
			}
			all, err := store.List()
			if err != nil {
				return err
			}
			if shared.asJSON {
				shown := make([]requestView, 0, len(all))
				for _, r := range all {
					shown = append(shown, viewOf(r))
				}
				return printJSON(c.OutOrStdout(), shown)
			}
			if len(all) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "Nothing asked for yet. Begin with: switchboard friend request <URL>")
				return nil
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tSTATE\tPERSONA\tQUEUES\tUNTIL")
			for _, r := range all {
				queues, until := r.Scope.Queues, ""
				if r.Grant != nil {
					queues, until = r.Grant.Scope.Queues, r.Grant.ExpiresAt.Format(time.DateOnly)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", plain(r.ID), r.State, plain(r.A2A), plain(strings.Join(queues, ",")), until)
			}
			return t.Flush()
		},
	}
}

func newFriendLeaveCommand(shared *friendFlags) *cobra.Command {
	var headless string
	var forget bool
	c := &cobra.Command{
		Use:   "leave <request, grant or URL>",
		Short: "Withdraw a pending request, or leave a grant and delete its key",
		Args:  oneArgument("which request or grant: its id or its URL (switchboard friend list)"),
		RunE: func(c *cobra.Command, args []string) error {
			store, r, err := shared.find(args)
			if err != nil {
				return err
			}
			q := requester.New(0)
			out := c.OutOrStdout()
			switch {
			case r.State == requester.Pending || r.State == requester.SigningIn:
				if err := q.Withdraw(c.Context(), store, r); err != nil {
					return err
				}
				fmt.Fprintf(out, "%s is %s.\n", r.ID, r.State)
				return nil
			case r.State == requester.Approved && headless != "":
				if err := q.LeaveHeadless(c.Context(), r, headless); err != nil {
					return err
				}
			case r.State == requester.Approved && !forget:
				if err := showInBrowser(c.ErrOrStderr())(r.FriendsPage()); err != nil {
					return err
				}
				if t := terminalOf(c); !t.human || !t.confirm(fmt.Sprintf("Leave grant %s on that page, signed in. Done? Then its key is deleted here.", r.Grant.ID)) {
					return fmt.Errorf("leave grant %s on that page, signed in; then delete the key here with --forget", r.Grant.ID)
				}
			}
			if err := store.Remove(r); err != nil {
				return err
			}
			fmt.Fprintf(out, "The key for %s is deleted.\n", plain(r.A2A))
			return nil
		},
	}
	c.Flags().StringVar(&headless, "headless", "", "leave as this person of a development issuer, without a browser")
	c.Flags().BoolVar(&forget, "forget", false, "delete the key here, whatever the other side knows")
	return c
}

// find opens the store and returns the request that the argument means, the newest without one.
func (f *friendFlags) find(args []string) (*requester.Store, *requester.Request, error) {
	store, err := requester.Open(f.state)
	if err != nil {
		return nil, nil, err
	}
	if len(args) > 0 {
		r, err := store.Find(args[0])
		return store, r, err
	}
	all, err := store.List()
	if err != nil {
		return nil, nil, err
	}
	if len(all) == 0 {
		return nil, nil, errors.New("nothing asked for yet; begin with: switchboard friend request <URL>")
	}
	return store, all[len(all)-1], nil
}

// requestView is what of a request may be shown: everything but the key.
type requestView struct {
	*requester.Request
	Key string `json:"key,omitempty"` // always empty: hides the private key of the embedded request
	JKT string `json:"jkt"`
}

func viewOf(r *requester.Request) requestView { return requestView{Request: r, JKT: r.Thumbprint()} }

// printRequest prints how the request stands and, once it is granted, how a client uses it.
func (f *friendFlags) printRequest(w io.Writer, r *requester.Request, client string) error {
	if f.asJSON {
		return printJSON(w, viewOf(r))
	}
	fmt.Fprintf(w, "request %s to %s: %s\n", plain(r.ID), plain(r.A2A), r.State)
	if r.Note != "" {
		fmt.Fprintf(w, "they say: %s\n", plain(r.Note))
	}
	if r.Grant == nil {
		return nil
	}
	verbs := make([]string, 0, len(r.Grant.Scope.Verbs))
	for _, v := range r.Grant.Scope.Verbs {
		verbs = append(verbs, string(v))
	}
	fmt.Fprintf(w, "granted: %s on %s, until %s\n", plain(strings.Join(verbs, ", ")), plain(strings.Join(r.Grant.Scope.Queues, ", ")), r.Grant.ExpiresAt.Format(time.DateOnly))
	fmt.Fprintf(w, "limits: %s\n", limitWords(r.Grant.Scope.Limits))
	fmt.Fprintf(w, "endpoint: %s\n", plain(r.Grant.Endpoint))
	for i, config := range f.configs(r) {
		if config.Client == client || client == "" && i == 0 {
			fmt.Fprintf(w, "\n%s, %s:\n\n%s", config.Title, config.File, config.Text)
		}
	}
	if client == "" {
		fmt.Fprintf(w, "\nFor other clients: switchboard friend status %s --client %s\n", r.ID, strings.Join(clientNames()[1:], "|"))
	}
	return nil
}

func (f *friendFlags) configs(r *requester.Request) []requester.ClientConfig {
	args := []string{"connect", r.Grant.Endpoint}
	if f.state != "" {
		args = append(args, "--state", f.state)
	}
	return requester.ClientConfigs("switchboard-"+r.Persona, ownCommand(), args...)
}

// ownCommand is how a client starts this program: by name when PATH has it.
func ownCommand() string {
	if _, err := exec.LookPath("switchboard"); err == nil {
		return "switchboard"
	}
	if path, err := os.Executable(); err == nil {
		return path
	}
	return "switchboard"
}

func clientNames() []string {
	var names []string
	for _, c := range requester.ClientConfigs("", "") {
		names = append(names, c.Client)
	}
	return names
}

func checkClient(name string) error {
	for _, known := range clientNames() {
		if name == "" || name == known {
			return nil
		}
	}
	return usageError{fmt.Errorf("--client %q is unknown; there are %s", name, strings.Join(clientNames(), ", "))}
}
