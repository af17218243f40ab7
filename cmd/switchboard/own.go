package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"switchboard/internal/quote"
)

// column is one column of a list: its head, and where in the object it stands.
type column struct{ head, path string }

// at reads a member by its dotted path, as text made plain: it may be a
// stranger's.
func at(object map[string]any, path string) string {
	var v any = object
	for part := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[part]
	}
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return quote.Visible(v, 80)
	case []any:
		words := make([]string, 0, len(v))
		for _, w := range v {
			words = append(words, fmt.Sprint(w))
		}
		return quote.Visible(strings.Join(words, ","), 80)
	case float64:
		return fmt.Sprintf("%g", v)
	default:
		return fmt.Sprint(v)
	}
}

// listCommand makes a command that shows a list as a table, or as JSON.
func listCommand(use, short, path string, columns ...column) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := loadAccount()
			if err != nil {
				return err
			}
			items, err := a.all(c.Context(), path)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if asJSON {
				enc := json.NewEncoder(out)
				enc.SetIndent("", "  ")
				if items == nil {
					items = []json.RawMessage{}
				}
				return enc.Encode(items)
			}
			if len(items) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "nothing")
				return nil
			}
			t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			heads := make([]string, 0, len(columns))
			for _, col := range columns {
				heads = append(heads, col.head)
			}
			fmt.Fprintln(t, strings.Join(heads, "\t"))
			for _, item := range items {
				var object map[string]any
				if err := json.Unmarshal(item, &object); err != nil {
					return err
				}
				cells := make([]string, 0, len(columns))
				for _, col := range columns {
					cells = append(cells, at(object, col.path))
				}
				fmt.Fprintln(t, strings.Join(cells, "\t"))
			}
			return t.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the objects as JSON")
	return c
}

// actCommand makes a command that does one thing to one object and prints what
// it became.
func actCommand(use, short, path string, body func() any) *cobra.Command {
	return &cobra.Command{
		Use: use + " <id>", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := loadAccount()
			if err != nil {
				return err
			}
			b, err := a.do(c.Context(), http.MethodPost, strings.ReplaceAll(path, "{id}", url.PathEscape(args[0])), body())
			if err != nil {
				return err
			}
			var object map[string]any
			if err := json.Unmarshal(b, &object); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), at(object, "id"), at(object, "state"))
			return nil
		},
	}
}

func nothing() any { return map[string]any{} }

// showCommand makes a command that prints one object whole.
func showCommand(use, short, path string) *cobra.Command {
	return &cobra.Command{
		Use: use + " <id>", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := loadAccount()
			if err != nil {
				return err
			}
			var object any
			if err := a.get(c.Context(), path+url.PathEscape(args[0]), &object); err != nil {
				return err
			}
			enc := json.NewEncoder(c.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(object)
		},
	}
}

// newOwnCommands are what a person scripts about their own account.
func newOwnCommands() []*cobra.Command {
	inbox := listCommand("inbox", "What waits for me, approvals first", "/v1/inbox",
		column{"KIND", "kind"}, column{"TITLE", "title"}, column{"REQUEST", "friend_request_id"}, column{"ID", "id"})

	approve := &cobra.Command{
		Use: "approve <friend request id>", Short: "Open a friend request in the browser, where it is approved", Args: cobra.ExactArgs(1),
		Long: "Approving takes a person in a browser session; no token can do it. This opens the page.",
		RunE: func(c *cobra.Command, args []string) error {
			a, err := loadAccount()
			if err != nil {
				return err
			}
			page := a.URL + "/inbox/requests/" + url.PathEscape(args[0])
			fmt.Fprintln(c.OutOrStdout(), page)
			_ = openBrowser(page) // the line above can be copied
			return nil
		},
	}
	var note string
	var block bool
	decline := actCommand("decline", "Decline a friend request", "/v1/friend-requests/{id}/decline", func() any {
		return map[string]any{"note": note, "block": block}
	})
	decline.Flags().StringVar(&note, "note", "", "what the requester is told")
	decline.Flags().BoolVar(&block, "block", false, "and block this person")

	grants := listCommand("grants", "Grants that I made", "/v1/grants?direction=in",
		column{"STATE", "state"}, column{"PERSONA", "persona"}, column{"WHO", "identity.subject"}, column{"CALLS ITSELF", "from.name"},
		column{"VERBS", "scope.verbs"}, column{"EXPIRES", "expires_at"}, column{"ID", "id"})
	var finish bool
	revoke := actCommand("revoke", "Revoke a grant, for good", "/v1/grants/{id}/revoke", func() any {
		if finish {
			return map[string]any{"open_todos": "finish"}
		}
		return map[string]any{"open_todos": "cancel"}
	})
	revoke.Flags().BoolVar(&finish, "finish", false, "let open todos be finished instead of cancelling them")
	var queues, verbs []string
	narrow := actCommand("narrow", "Narrow a grant", "/v1/grants/{id}/narrow", func() any {
		return map[string]any{"scope": map[string]any{"queues": queues, "verbs": verbs}}
	})
	narrow.Flags().StringSliceVar(&queues, "queue", nil, "queues that are left")
	narrow.Flags().StringSliceVar(&verbs, "verb", nil, "verbs that are left")
	_ = narrow.MarkFlagRequired("queue")
	_ = narrow.MarkFlagRequired("verb")
	grants.AddCommand(showCommand("show", "One grant", "/v1/grants/"), narrow, actCommand("pause", "Pause a grant", "/v1/grants/{id}/pause", nothing), revoke)

	todos := listCommand("todos", "My todos", "/v1/todos",
		column{"STATE", "state"}, column{"QUEUE", "queue"}, column{"TITLE", "title"}, column{"FROM", "from_friend.title"}, column{"ID", "id"})
	todos.AddCommand(showCommand("show", "One todo's whole history", "/v1/todos/"))

	personas := listCommand("personas", "My personas", "/v1/personas",
		column{"SLUG", "slug"}, column{"NAME", "name"}, column{"VISIBILITY", "visibility"}, column{"QUEUES", "queues"}, column{"CARD", "card"})
	endpoints := listCommand("endpoints", "My endpoints", "/v1/endpoints",
		column{"KIND", "kind"}, column{"STATE", "state"}, column{"PERSONA", "persona"}, column{"QUEUES", "queues"}, column{"EXPIRES", "expires_at"}, column{"ID", "id"})
	endpoints.AddCommand(
		actCommand("pause", "Pause a home endpoint", "/v1/endpoints/{id}/pause", nothing),
		actCommand("revoke", "Revoke a home endpoint, for good", "/v1/endpoints/{id}/revoke", nothing))
	return []*cobra.Command{newLoginCommand(), inbox, approve, decline, grants, todos, personas, endpoints}
}

// newManCommand writes the manual pages.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man <folder>", Short: "Write the manual pages into a folder", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Title: "SWITCHBOARD", Section: "1"}, args[0])
		},
	}
}
