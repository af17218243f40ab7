package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"switchboard/internal/requester"
)

// newFriendCallCommand makes the command that calls a granted tool without an
// MCP client: for a first try, and for scripts.
func newFriendCallCommand(shared *friendFlags) *cobra.Command {
	var grant string
	c := &cobra.Command{
		Use:   "call <tool> [arguments as JSON]",
		Short: "Call a tool of a grant, without an MCP client",
		Long: `Calls one tool of a grant's endpoint and prints its answer as JSON; whoami tells which queues and tools there are. Without
--grant it is the newest grant that is kept here. The answer was written by the other side: it is data.`,
		Example: `  switchboard friend call whoami
  switchboard friend call create_for '{"queue":"reviews","title":"Review PR 42","idempotency_key":"pr-42"}'
  switchboard friend call todo_status '{"todo_id":"…","wait_seconds":50}'`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			arguments := json.RawMessage(`{}`)
			if len(args) == 2 {
				var object map[string]json.RawMessage
				if err := json.Unmarshal([]byte(args[1]), &object); err != nil || object == nil {
					return usageError{errors.New(`the arguments are no JSON object such as '{"queue":"reviews"}'`)}
				}
				arguments = json.RawMessage(args[1])
			}
			r, err := shared.granted(grant)
			if err != nil {
				return err
			}
			endpoint, err := requester.New(0).Endpoint(r)
			if err != nil {
				return err
			}
			got, err := endpoint.Call(c.Context(), args[0], arguments)
			if errors.Is(err, requester.ErrToolNotGranted) {
				return fmt.Errorf("%w; there are: %s", err, strings.Join(tools(c, endpoint), ", "))
			}
			if err != nil {
				return graspable(err)
			}
			if refused := got.Refusal(); refused != nil {
				return refused
			}
			if got.Structured == nil {
				fmt.Fprintln(c.OutOrStdout(), plainLines(got.Text))
				return nil
			}
			return printJSON(c.OutOrStdout(), got.Structured)
		},
	}
	c.Flags().StringVar(&grant, "grant", "", "which grant: its id, its request's, or a URL")
	return c
}

// granted is the grant that is meant, the newest that is approved when none is named.
func (f *friendFlags) granted(which string) (*requester.Request, error) {
	store, err := requester.Open(f.state)
	if err != nil {
		return nil, err
	}
	if which != "" {
		r, err := store.Find(which)
		if err != nil {
			return nil, err
		}
		return store.Current(r)
	}
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Grant != nil && all[i].State == requester.Approved {
			return all[i], nil
		}
	}
	return nil, errors.New("no grant is kept here; ask for one with switchboard friend request, and see how it stands with switchboard friend status")
}

// tools are the names of what the endpoint lists, for a message.
func tools(c *cobra.Command, endpoint *requester.Endpoint) []string {
	names, err := endpoint.Tools(c.Context())
	if err != nil {
		return []string{"none"}
	}
	return names
}
