package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"switchboard/internal/quote"
	"switchboard/internal/refusal"
)

// column is one column of a list: its head, and where in the object it stands;
// of several places the first that says something.
type column struct {
	head  string
	paths []string
}

func col(head string, paths ...string) column { return column{head, paths} }

func (c column) of(object map[string]any) string {
	for _, path := range c.paths {
		if text := at(object, path); text != "" {
			return text
		}
	}
	return ""
}

// member reads a member by its dotted path, nil when there is none.
func member(object map[string]any, path string) any {
	var v any = object
	for part := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[part]
	}
	return v
}

// at reads a member as text made plain: it may be a stranger's.
func at(object map[string]any, path string) string {
	switch v := member(object, path).(type) {
	case nil:
		return ""
	case string:
		if t, err := time.Parse(time.RFC3339, v); err == nil {
			return t.UTC().Format("2006-01-02 15:04Z")
		}
		return quote.Visible(v, 200)
	case []any:
		words := make([]string, 0, len(v))
		for _, w := range v {
			words = append(words, fmt.Sprint(w))
		}
		return quote.Visible(strings.Join(words, ","), 200)
	case float64:
		return fmt.Sprintf("%g", v)
	default:
		return fmt.Sprint(v)
	}
}

// filter is a flag of a list, which is a parameter of the interface too.
type filter struct{ name, about string }

// listCommand makes a command that shows a list as a table, or as JSON.
func listCommand(use, short, path string, filters []filter, columns ...column) *cobra.Command {
	var asJSON bool
	given := url.Values{}
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := loadAccount()
			if err != nil {
				return err
			}
			for _, f := range filters {
				if v, err := c.Flags().GetString(f.name); err == nil && v != "" {
					given.Set(f.name, v)
				}
			}
			items, err := a.all(c.Context(), path+"?"+given.Encode())
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if asJSON {
				if items == nil {
					items = []json.RawMessage{}
				}
				return printJSON(out, items)
			}
			if len(items) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "Nothing.")
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
					cells = append(cells, quote.Visible(col.of(object), 80))
				}
				fmt.Fprintln(t, strings.Join(cells, "\t"))
			}
			return t.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the objects as JSON")
	for _, f := range filters {
		c.Flags().String(f.name, "", f.about)
	}
	return c
}

// completeIDs offers the ids of a list, each with what tells it from the others.
func completeIDs(path string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		a, err := loadAccount()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var page struct{ Items []map[string]any }
		if err := a.get(c.Context(), path+"?limit=100", &page); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for _, o := range page.Items {
			about := col("", "title", "from_friend.title", "from.name", "slug", "persona", "kind").of(o)
			out = append(out, cobra.CompletionWithDesc(at(o, "id"), said(about, at(o, "state"))))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// hintID says where ids are to be had, when there is nothing of this one.
func hintID(err error, noun string) error {
	if refusal.CodeOf(err) == refusal.NotFound {
		return fmt.Errorf("%w; see: switchboard %s", err, noun)
	}
	return err
}

// actCommand makes a command that does one thing to one object of a list, and
// prints what it became.
func actCommand(noun, verb, short, path string, body func() any) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: verb + " <id>", Short: short, Args: oneArgument("its id (switchboard " + noun + ")"), ValidArgsFunction: completeIDs(path),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := loadAccount()
			if err != nil {
				return err
			}
			b, err := a.do(c.Context(), http.MethodPost, path+"/"+url.PathEscape(args[0])+"/"+verb, body())
			if err != nil {
				return hintID(err, noun)
			}
			var object map[string]any
			if err := json.Unmarshal(b, &object); err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), object)
			}
			fmt.Fprintln(c.OutOrStdout(), at(object, "id"), at(object, "state"))
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print what it became as JSON")
	return c
}

func nothing() any { return map[string]any{} }

// newOwnCommands are what a person scripts about their own account.
func newOwnCommands() []*cobra.Command {
	inbox := listCommand("inbox", "What waits for me, approvals first", "/v1/inbox", nil,
		col("KIND", "kind"), col("TITLE", "title"), col("REQUEST", "friend_request_id"), col("ID", "id"))

	approve := &cobra.Command{
		Use: "approve <friend request id>", Short: "Open a friend request in the browser, where it is approved", Args: oneArgument("the id of a friend request (switchboard inbox)"),
		Long:              "Approving takes a person in a browser session; no token can do it. This opens the page.",
		ValidArgsFunction: completeIDs("/v1/friend-requests"),
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
	decline := actCommand("inbox", "decline", "Decline a friend request", "/v1/friend-requests", func() any {
		return map[string]any{"note": note, "block": block}
	})
	decline.Flags().StringVar(&note, "note", "", "what the requester is told")
	decline.Flags().BoolVar(&block, "block", false, "and block this person")

	grants := listCommand("grants", "Grants that I made", "/v1/grants",
		[]filter{{"direction", "in: that I made (default); out: that were made to me"}},
		col("STATE", "state"), col("PERSONA", "persona"), col("WHO", "identity.email", "identity.subject"), col("CALLS ITSELF", "from.name"),
		col("VERBS", "scope.verbs"), col("EXPIRES", "expires_at"), col("ID", "id"))
	var finish bool
	revoke := actCommand("grants", "revoke", "Revoke a grant, for good", "/v1/grants", func() any {
		if finish {
			return map[string]any{"open_todos": "finish"}
		}
		return map[string]any{"open_todos": "cancel"}
	})
	revoke.Flags().BoolVar(&finish, "finish", false, "let open todos be finished instead of cancelling them")
	grants.AddCommand(showCommand("grants", "One grant", "/v1/grants", grantRows()...), newNarrowCommand(),
		actCommand("grants", "pause", "Pause a grant", "/v1/grants", nothing), revoke)

	todos := listCommand("todos", "My todos", "/v1/todos",
		[]filter{{"queue", "only of this queue"}, {"state", "ready, leased, input_required, done, failed or canceled"}, {"grant_id", "only what this grant's friend handed over"}},
		col("STATE", "state"), col("QUEUE", "queue"), col("TITLE", "title", "from_friend.title"), col("FROM", "from_friend.identity"), col("ID", "id"))
	todos.AddCommand(showCommand("todos", "One todo's whole history", "/v1/todos", todoRows()...))

	personas := listCommand("personas", "My personas", "/v1/personas", nil,
		col("SLUG", "slug"), col("NAME", "name"), col("VISIBILITY", "visibility"), col("QUEUES", "queues"), col("CARD", "card"), col("ID", "id"))
	personas.AddCommand(showCommand("personas", "One persona, and what it offers", "/v1/personas", personaRows()...))
	endpoints := listCommand("endpoints", "My endpoints", "/v1/endpoints", nil,
		col("KIND", "kind"), col("STATE", "state"), col("PERSONA", "persona"), col("QUEUES", "queues"), col("EXPIRES", "expires_at"), col("ID", "id"))
	endpoints.AddCommand(showCommand("endpoints", "One endpoint", "/v1/endpoints", endpointRows()...),
		actCommand("endpoints", "pause", "Pause a home endpoint", "/v1/endpoints", nothing),
		actCommand("endpoints", "revoke", "Revoke a home endpoint, for good", "/v1/endpoints", nothing))
	return []*cobra.Command{newLoginCommand(), newLogoutCommand(), inbox, approve, decline, grants, todos, personas, endpoints}
}

// newNarrowCommand leaves what is not named as it is.
func newNarrowCommand() *cobra.Command {
	var queues, verbs []string
	var limits map[string]int64
	c := &cobra.Command{
		Use: "narrow <id>", Short: "Narrow a grant", Args: oneArgument("the grant's id (switchboard grants)"), ValidArgsFunction: completeIDs("/v1/grants"),
		Example: "  switchboard grants narrow 0198f2aa-0000-7000-8000-000000000001 --verb todo_status --limit max_open=5",
		RunE: func(c *cobra.Command, args []string) error {
			if len(queues)+len(verbs)+len(limits) == 0 {
				return usageError{errors.New("say what is left of the grant: --queue, --verb or --limit")}
			}
			narrower, err := limitsOf(limits)
			if err != nil {
				return err
			}
			a, err := loadAccount()
			if err != nil {
				return err
			}
			path := "/v1/grants/" + url.PathEscape(args[0])
			var now struct {
				Scope struct{ Queues, Verbs []string }
			}
			if err := a.get(c.Context(), path, &now); err != nil {
				return hintID(err, "grants")
			}
			if len(queues) == 0 {
				queues = now.Scope.Queues
			}
			if len(verbs) == 0 {
				verbs = now.Scope.Verbs
			}
			_, err = a.do(c.Context(), http.MethodPost, path+"/narrow", map[string]any{"scope": map[string]any{"queues": queues, "verbs": verbs, "limits": narrower}})
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s now holds %s on %s\n", plain(args[0]), plain(strings.Join(verbs, ", ")), plain(strings.Join(queues, ", ")))
			return nil
		},
	}
	c.Flags().StringSliceVar(&queues, "queue", nil, "queues that are left (default: those that it has)")
	c.Flags().StringSliceVar(&verbs, "verb", nil, "verbs that are left (default: those that it has)")
	c.Flags().StringToInt64Var(&limits, "limit", nil, "`limits` that are lower now, say max_open=5")
	c.Flags().Lookup("limit").DefValue = ""
	return c
}

// newManCommand writes the manual pages.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man <folder>", Short: "Write the manual pages into a folder", Args: oneArgument("where to write them"), Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Title: "SWITCHBOARD", Section: "1"}, args[0])
		},
	}
}
