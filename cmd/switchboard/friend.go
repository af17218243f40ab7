package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"switchboard/internal/provenance"
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
		Long:  "The requester's side, for a human without an instance: asks a persona for friendship, waits for the human there to decide,\nand prints how an MCP client uses what was granted. One key a request, kept in a private file\nor the system keyring.",
	}
	c.PersistentFlags().StringVar(&shared.state, "state", "", "folder for requests and keys (default $XDG_STATE_HOME/switchboard)")
	c.PersistentFlags().BoolVar(&shared.asJSON, "json", false, "print JSON")
	c.AddCommand(newFriendRequestCommand(shared), newFriendStatusCommand(shared), newFriendListCommand(shared), newFriendCallCommand(shared), newFriendLeaveCommand(shared))
	return c
}

type friendRequestFlags struct {
	*friendFlags
	queues, verbs                  []string
	limits                         map[string]int64
	name, card, reason, supersedes string
	method, issuer, headless       string
	client                         string
	wait, yes, keyring             bool
}

func newFriendRequestCommand(shared *friendFlags) *cobra.Command {
	f := &friendRequestFlags{friendFlags: shared}
	c := &cobra.Command{
		Use:   "request <card, persona or instance URL>",
		Short: "Ask for friendship: shows the request, signs you in, sends it",
		Example: `  switchboard friend request https://bob.example/a2a/reviewer --name release-bot \
    --queue reviews --verb create_for --verb todo_status --reason "Hand you pull requests that touch billing." --wait`,
		Args: oneArgument("whom to ask: the URL of a card, of a persona, or of an instance that lists one"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.queues, "queue", nil, "queue to ask for (default: the one that is offered)")
	flags.StringSliceVar(&f.verbs, "verb", nil, "verb to ask for (default: all that are offered)")
	flags.StringToInt64Var(&f.limits, "limit", nil, "`limits` to ask for, say max_open=5,expires_in_days=30 (default: what is offered)")
	flags.Lookup("limit").DefValue = "" // the library would print its own empty value
	flags.StringVar(&f.name, "name", "", "what your agent calls itself")
	flags.StringVar(&f.reason, "reason", "", "why, for the human who decides")
	flags.StringVar(&f.card, "from-card", "", "your agent's own card, shown to the human and never fetched")
	flags.StringVar(&f.supersedes, "supersedes", "", "grant to renew, its id or URL: the new one continues its line, and asks for the same where nothing else is given")
	flags.StringVar(&f.method, "method", "", "oidc-nonce or sign-in (default: what the card offers)")
	flags.StringVar(&f.issuer, "issuer", "", "where you sign in, when the persona trusts several")
	flags.StringVar(&f.headless, "headless", "", "sign in as this person at a development issuer, without a browser")
	flags.StringVar(&f.client, "client", "", "print the configuration of one client: "+strings.Join(clientNames(), ", "))
	flags.BoolVar(&f.keyring, "keyring", false, "keep the key in the system keyring, not in a file")
	flags.BoolVar(&f.wait, "wait", false, "wait for the decision")
	flags.BoolVarP(&f.yes, "yes", "y", false, "send without asking")
	return c
}

func (f *friendRequestFlags) run(c *cobra.Command, target string) error {
	ctx, stderr := c.Context(), c.ErrOrStderr()
	if err := checkClient(f.client); err != nil {
		return err
	}
	if f.method != "" && f.method != provenance.MethodOIDCNonce && f.method != provenance.MethodSignIn {
		return usageError{fmt.Errorf("--method %q is unknown; there are %s and %s", f.method, provenance.MethodOIDCNonce, provenance.MethodSignIn)}
	}
	limits, err := limitsOf(f.limits)
	if err != nil {
		return err
	}
	store, err := requester.Open(f.state)
	if err != nil {
		return err
	}
	if f.keyring {
		store.KeepInKeyring(stderr)
	}
	q := requester.New(0)
	card, err := q.Find(ctx, target)
	if err != nil {
		return err
	}
	if err := f.renew(stderr, store, card, &limits); err != nil {
		return err
	}
	t := terminalOf(c)
	t.fill(&f.name, "What does your agent call itself?")
	t.fill(&f.reason, "Why do you ask? A human reads this:")
	ask := requester.Ask{
		Card: card, Name: f.name, FromCard: f.card, Reason: f.reason, Supersedes: f.supersedes, Method: f.method,
		Issuer: requester.Issuer{Issuer: f.issuer}, Scope: scope.Asked{Queues: f.queues, Limits: limits},
	}
	for _, v := range f.verbs {
		ask.Scope.Verbs = append(ask.Scope.Verbs, scope.Verb(v))
	}
	if ask, err = ask.Prepare(); err != nil {
		if errors.Is(err, requester.ErrUnsaid) {
			return usageError{err}
		}
		return err
	}
	showAsk(stderr, ask)
	// Elsewhere than on a terminal, the sign-in that follows is the human's yes.
	if t.human && !f.yes && f.headless == "" && !t.confirm("Send it?") {
		return errors.New("not sent")
	}
	r, err := f.send(c, q, store, ask)
	if err != nil {
		return hinted(err, store, card)
	}
	switch {
	case r.State != requester.Pending:
	case !f.wait:
		fmt.Fprintf(stderr, "Sent. A human decides; wait for it with: switchboard friend status %s --wait\n", r.ID)
	default:
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
	if f.other(ask) && f.headless == "" {
		fmt.Fprintf(stderr, "Should your provider show an error in place of its sign-in, interrupt this and add --method %s.\n", provenance.MethodSignIn)
	}
	how := requester.SignIn{Show: showInBrowser(stderr), Headless: f.headless, AtTarget: func(r *requester.Request) {
		fmt.Fprintf(stderr, "You sign in at %s. Its page shows this request and its key, %s; go on only if they are the same.\n", plain(r.Aud), r.Thumbprint())
	}}
	r, err := q.Send(ctx, store, ask, how)
	switch {
	case refusal.CodeOf(err) == refusal.IDTokenExpired && f.headless == "":
		fmt.Fprintln(stderr, "Your sign-in is too old for this persona; please sign in again.")
		how.Again = true
		return q.Send(ctx, store, ask, how)
	case errors.Is(err, requester.ErrSignIn) && !errors.Is(err, requester.ErrSaidNo) && f.headless == "" && f.other(ask):
		fmt.Fprintf(stderr, "%s\nSigning in at %s instead.\n", plain(err.Error()), plain(ask.Card.Aud))
		ask.Method, ask.Issuer = provenance.MethodSignIn, requester.Issuer{}
		return q.Send(ctx, store, ask, how)
	}
	return r, err
}

// other reports whether method sign-in is left to try.
func (f *friendRequestFlags) other(ask requester.Ask) bool {
	return f.method == "" && ask.Method == provenance.MethodOIDCNonce && slices.Contains(ask.Card.Methods, provenance.MethodSignIn)
}

// renew fills in what the grant to renew says, or tells of a grant that could be.
func (f *friendRequestFlags) renew(stderr io.Writer, store *requester.Store, card *requester.Card, limits *scope.Partial) error {
	all, err := store.List()
	if err != nil {
		return err
	}
	var old *requester.Request
	for _, r := range all {
		if r.A2A != card.A2A || r.Grant == nil || r.State != requester.Approved {
			continue
		}
		if f.supersedes == "" {
			fmt.Fprintf(stderr, "You have a grant there, %s, until %s. This asks for another one; to renew that one and keep its todos, add --supersedes %s\n",
				plain(r.Grant.ID), r.Grant.ExpiresAt.Format(time.DateOnly), plain(r.Grant.ID))
			return nil
		}
		if f.supersedes == r.Grant.ID || f.supersedes == r.ID || f.supersedes == r.Grant.Endpoint || f.supersedes == r.A2A {
			old = r
		}
	}
	if old == nil {
		return nil // a grant that is not kept here; the other side knows
	}
	f.supersedes = old.Grant.ID
	f.name = cmp.Or(f.name, old.Name)
	f.reason = cmp.Or(f.reason, old.Reason)
	if len(f.queues) == 0 {
		f.queues = old.Scope.Queues
	}
	if len(f.verbs) == 0 {
		for _, v := range old.Scope.Verbs {
			f.verbs = append(f.verbs, string(v))
		}
	}
	if len(f.limits) == 0 {
		*limits = old.Scope.Limits
	}
	return nil
}

// hinted adds the next step to a refusal that has one.
func hinted(err error, store *requester.Store, card *requester.Card) error {
	if refusal.CodeOf(err) != refusal.Conflict {
		return err
	}
	all, _ := store.List()
	for _, r := range all {
		if r.A2A == card.A2A && r.State == requester.Pending {
			return fmt.Errorf("%w; it is %s: wait for it with switchboard friend status, or withdraw it with switchboard friend leave", err, r.ID)
		}
	}
	return err
}

// oneArgument refuses anything but one argument and says what it is.
func oneArgument(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("one argument is needed, %s; see: %s --help", what, c.CommandPath())
		}
		return nil
	}
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
		return p, usageError{fmt.Errorf("--limit: %w", err)}
	}
	return p, nil
}

func limitWords(l scope.Limits) string {
	return fmt.Sprintf("%d open at once, %d an hour, payload up to %d bytes, priority up to %d, %d days ahead, for %d days",
		l.MaxOpen, l.PerHour, l.MaxPayloadBytes, l.MaxPriority, l.MaxDelayDays, l.ExpiresInDays)
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
	if err == nil {
		fmt.Fprintf(t, "limits\t%s\n", limitWords(asked.Limits))
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
