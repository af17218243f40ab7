package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"switchboard/internal/requester"
)

func newConnectCommand() *cobra.Command {
	var state string
	var keyring bool
	c := &cobra.Command{
		Use:   "connect <endpoint or persona URL>",
		Short: "Serve a granted endpoint to an MCP client over stdio",
		Long: `For any MCP client that speaks stdio. Keeps the grant's key here, in a private file or the system keyring, fetches tokens with it, and serves this program's own
definitions of the tools, restricted to what the endpoint lists. Tokens go only to the endpoint and the authorization server
that were stored at approval. Messages are on stderr.`,
		Args: oneArgument("what to serve: the URL of an endpoint or a persona (switchboard friend list)"),
		RunE: func(c *cobra.Command, args []string) error {
			store, err := requester.Open(state)
			if err != nil {
				return err
			}
			r, err := store.Find(args[0])
			if err != nil {
				return err
			}
			// A client's configuration names the endpoint of its day; renewals go on under another.
			if r, err = store.Current(r); err != nil {
				return err
			}
			if keyring && r.Keyring == "" {
				store.KeepInKeyring(c.ErrOrStderr())
				if err := store.Save(r); err != nil {
					return err
				}
			}
			q := requester.New(0)
			if r.Grant == nil {
				if err := q.Update(c.Context(), store, r); err != nil {
					return err
				}
				if r.Grant == nil {
					return fmt.Errorf("request %s is %s; connect when it is approved", r.ID, r.State)
				}
			}
			bridge, err := q.NewBridge(r, c.Root().Version, c.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := bridge.Serve(c.Context(), c.InOrStdin(), c.OutOrStdout()); err != nil {
				return errors.New("stdio ended: " + err.Error())
			}
			return nil
		},
	}
	c.Flags().StringVar(&state, "state", "", "folder for requests and keys (default $XDG_STATE_HOME/switchboard)")
	c.Flags().BoolVar(&keyring, "keyring", false, "from now on keep the grant's key in the system keyring, not in its file")
	return c
}
