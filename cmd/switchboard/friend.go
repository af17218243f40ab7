package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"switchboard/internal/provenance"
	"switchboard/internal/quote"
	"switchboard/internal/refusal"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
)

// friendFlags are the flags that all friend commands share.
type friendFlags struct {
	state  string
	asJSON bool
}

func newFriendCommand() *cobra.Command {
	shared := &friendFlags{}
	c := &cobra.Command{
		Use:   "friend",
		Short: "Ask somebody's persona for friendship, and follow what you asked",
		Long:  "The requester's side, for a human without an instance: asks a persona for friendship, waits for the human there to decide,\nand prints how an MCP client uses what was granted. One key a request, kept in a private file.",
	}
	c.PersistentFlags().StringVar(&shared.state, "state", "", "folder for requests and keys (default $XDG_STATE_HOME/switchboard)")
	c.PersistentFlags().BoolVar(&shared.asJSON, "json", false, "print JSON")
	c.AddCommand(newFriendRequestCommand(shared), newFriendStatusCommand(shared), newFriendListCommand(shared), newFriendLeaveCommand(shared))
	return c
}

type friendRequestFlags struct {
	*friendFlags
	queues, verbs                  []string
	limits                         map[string]int64
	name, card, reason, supersedes string
	method, issuer, headless       string
	client                         string
	wait, yes                      bool
}

func newFriendRequestCommand(shared *friendFlags) *cobra.Command {
	f := &friendRequestFlags{friendFlags: shared}
	c := &cobra.Command{
		Use:   "request <card, persona or instance URL>",
		Short: "Ask for friendship: shows the request, signs you in, sends it",
		Example: `  switchboard friend request https://bob.example/a2a/reviewer --name release-bot \
    --queue reviews --verb create_for --verb todo_status --reason "Hand you pull requests that touch billing." --wait`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.queues, "queue", nil, "queue to ask for (default: the one that is offered)")
	flags.StringSliceVar(&f.verbs, "verb", nil, "verb to ask for (default: all that are offered)")
	flags.StringToInt64Var(&f.limits, "limit", nil, "limit to ask for, say max_open=5,expires_in_days=30 (default: what is offered)")
	flags.StringVar(&f.name, "name", "", "what your agent calls itself")
	flags.StringVar(&f.reason, "reason", "", "why, for the human who decides")
	flags.StringVar(&f.card, "from-card", "", "your agent's own card, shown to the human and never fetched")
	flags.StringVar(&f.supersedes, "supersedes", "", "grant to renew: the new one continues its line")
	flags.StringVar(&f.method, "method", "", "oidc-nonce or sign-in (default: what the card offers)")
	flags.StringVar(&f.issuer, "issuer", "", "where you sign in, when the persona trusts several")
	flags.StringVar(&f.headless, "headless", "", "sign in as this person at a development issuer, without a browser")
	flags.StringVar(&f.client, "client", "", "print the configuration of one client: "+strings.Join(clientNames(), ", "))
	flags.BoolVar(&f.wait, "wait", false, "wait for the decision")
	flags.BoolVarP(&f.yes, "yes", "y", false, "send without asking")
	return c
}

func (f *friendRequestFlags) run(c *cobra.Command, target string) error {
	ctx, stderr := c.Context(), c.ErrOrStderr()
	if err := checkClient(f.client); err != nil {
		return err
	}
	store, err := requester.Open(f.state)
	if err != nil {
		return err
	}
	q := requester.New(0)
	card, err := q.Find(ctx, target)
	if err != nil {
		return err
	}
	limits, err := limitsOf(f.limits)
	if err != nil {
		return err
	}
	ask := requester.Ask{
		Card: card, Name: f.name, FromCard: f.card, Reason: f.reason, Supersedes: f.supersedes, Method: f.method,
		Issuer: requester.Issuer{Issuer: f.issuer}, Scope: scope.Asked{Queues: f.queues, Limits: limits},
	}
	for _, v := range f.verbs {
		ask.Scope.Verbs = append(ask.Scope.Verbs, scope.Verb(v))
	}
	if ask, err = ask.Prepare(); err != nil {
		return err
	}
	showAsk(stderr, ask)
	if !f.yes && f.headless == "" && !confirm(c.InOrStdin(), stderr) {
		return errors.New("not sent")
	}
	r, err := f.send(c, q, store, ask)
	if err != nil {
		return err
	}
	if f.wait {
		fmt.Fprintf(stderr, "Sent as %s. Waiting for the decision…\n", r.ID)
		if err := q.Wait(ctx, store, r); err != nil {
			return fmt.Errorf("%w; it goes on at: switchboard friend status %s", err, r.ID)
		}
	}
	if err := f.printRequest(c.OutOrStdout(), r, f.client); err != nil {
		return err
	}
	if f.wait && r.State != requester.Approved {
		return fmt.Errorf("the request was not approved: %s", r.State)
	}
	return nil
}

// send sends, and does once more what a first refusal asks for: a fresh
// sign-in, or the other method when the issuer refuses the native client.
func (f *friendRequestFlags) send(c *cobra.Command, q *requester.Requester, store *requester.Store, ask requester.Ask) (*requester.Request, error) {
	ctx, stderr := c.Context(), c.ErrOrStderr()
	how := requester.SignIn{Show: showInBrowser(stderr), Headless: f.headless}
	r, err := q.Send(ctx, store, ask, how)
	switch {
	case refusal.CodeOf(err) == refusal.IDTokenExpired && f.headless == "":
		fmt.Fprintln(stderr, "Your sign-in is too old for this persona; please sign in again.")
		how.Again = true
		return q.Send(ctx, store, ask, how)
	case errors.Is(err, requester.ErrSignIn) && f.method == "" && f.headless == "" &&
		ask.Method == provenance.MethodOIDCNonce && slices.Contains(ask.Card.Methods, provenance.MethodSignIn):
		fmt.Fprintf(stderr, "%s\nSigning in at %s instead.\n", plain(err.Error()), plain(ask.Card.Aud))
		ask.Method, ask.Issuer = provenance.MethodSignIn, requester.Issuer{}
		return q.Send(ctx, store, ask, how)
	}
	return r, err
}

// limitsOf reads --limit by the wire's own names.
func limitsOf(given map[string]int64) (scope.Partial, error) {
	var p scope.Partial
	b, err := json.Marshal(given)
	if err != nil {
		return p, fmt.Errorf("--limit: %w", err)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("--limit: %w", err)
	}
	return p, nil
}

func showAsk(w io.Writer, a requester.Ask) {
	verbs := make([]string, 0, len(a.Scope.Verbs))
	for _, v := range a.Scope.Verbs {
		verbs = append(verbs, string(v))
	}
	asked, err := scope.Resolve(a.Scope, a.Card.Offers)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "Friend request to\t%s (%s)\n", plain(a.Card.Name), plain(a.Card.A2A))
	fmt.Fprintf(t, "from\t%s\n", plain(a.Name))
	fmt.Fprintf(t, "why\t%s\n", plain(a.Reason))
	fmt.Fprintf(t, "queues\t%s\n", strings.Join(a.Scope.Queues, ", "))
	fmt.Fprintf(t, "verbs\t%s\n", strings.Join(verbs, ", "))
	if l := asked.Limits; err == nil {
		fmt.Fprintf(t, "limits\t%d open at once, %d an hour, payload up to %d bytes, priority up to %d, %d days ahead, for %d days\n",
			l.MaxOpen, l.PerHour, l.MaxPayloadBytes, l.MaxPriority, l.MaxDelayDays, l.ExpiresInDays)
	}
	if a.Supersedes != "" {
		fmt.Fprintf(t, "renews\t%s\n", plain(a.Supersedes))
	}
	if a.Issuer.Issuer != "" {
		fmt.Fprintf(t, "signed by\t%s\n", plain(a.Issuer.Issuer))
	} else {
		fmt.Fprintf(t, "signed by\tyour sign-in at %s\n", plain(a.Card.Aud))
	}
	_ = t.Flush()
}

// confirm asks on a terminal. Elsewhere the sign-in that follows is the human's yes.
func confirm(in io.Reader, out io.Writer) bool {
	if f, ok := in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return true
	}
	fmt.Fprint(out, "Send it? [y/N] ")
	line, _ := bufio.NewReader(in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// plain makes strangers' text safe for a terminal; a URL fits.
func plain(text string) string { return quote.Visible(text, 2000) }
