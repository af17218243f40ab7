package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"switchboard/internal/quote"
)

// row is one line about an object: what it is called, and what is said of it.
// One that says nothing is left out.
type row struct {
	label string
	value func(object map[string]any) string
}

// fact is a row of a member; of several paths the first that says something.
func fact(label string, paths ...string) row { return row{label, col(label, paths...).of} }

// words is a row of text that has lines.
func words(label, path string) row {
	return row{label, func(o map[string]any) string {
		text, _ := member(o, path).(string)
		return quote.VisibleLines(text, 8000, quote.Indented)
	}}
}

// data is a row of whatever JSON it is.
func data(label, path string) row {
	return row{label, func(o map[string]any) string {
		v := member(o, path)
		if v == nil {
			return ""
		}
		if text, ok := v.(string); ok {
			return quote.VisibleLines(text, 8000, quote.Indented)
		}
		var b strings.Builder
		_ = printJSON(&b, v) // a builder takes everything
		return strings.TrimSpace(b.String())
	}}
}

// showCommand makes a command that shows one object, line by line or as JSON.
func showCommand(noun, short, path string, rows ...row) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show <id>", Short: short, Args: oneArgument("its id (switchboard " + noun + ")"), ValidArgsFunction: completeIDs(path),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := loadAccount()
			if err != nil {
				return err
			}
			var object map[string]any
			if err := a.get(c.Context(), path+"/"+url.PathEscape(args[0]), &object); err != nil {
				return hintID(err, noun)
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), object)
			}
			return printRows(c.OutOrStdout(), object, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the object as JSON")
	return c
}

// printRows prints labels in a column, and every line of a value beside it.
func printRows(w io.Writer, object map[string]any, rows []row) error {
	width := 0
	for _, r := range rows {
		width = max(width, len(r.label))
	}
	for _, r := range rows {
		value := r.value(object)
		if value == "" {
			continue
		}
		indented := strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", width+2))
		if _, err := fmt.Fprintf(w, "%-*s  %s\n", width, r.label, indented); err != nil {
			return err
		}
	}
	return nil
}

// each words the objects of a list, one after the other.
func each(label, path string, word func(object map[string]any) string) row {
	return row{label, func(o map[string]any) string {
		list, _ := member(o, path).([]any)
		var lines []string
		for _, v := range list {
			if o, ok := v.(map[string]any); ok {
				lines = append(lines, word(o))
			}
		}
		return strings.Join(lines, "\n")
	}}
}

// said puts the parts that say something side by side.
func said(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, " · ")
}

// after is a label before a text, when there is one.
func after(label, text string) string {
	if text == "" {
		return ""
	}
	return label + " " + text
}

func scopeRow(label, path string) row {
	return row{label, func(o map[string]any) string {
		b, err := json.Marshal(member(o, path))
		if err != nil {
			return ""
		}
		var s struct {
			Queues, Verbs []string
		}
		if json.Unmarshal(b, &s) != nil || len(s.Queues) == 0 {
			return ""
		}
		return plain(strings.Join(s.Verbs, ", ") + " on " + strings.Join(s.Queues, ", "))
	}}
}

func limitsRow(path string) row {
	return row{"limits", func(o map[string]any) string {
		n := func(name string) string { return at(o, path+"."+name) }
		if n("max_open") == "" {
			return ""
		}
		return fmt.Sprintf("%s open at once, %s an hour, payload up to %s bytes, priority up to %s, %s days ahead",
			n("max_open"), n("per_hour"), n("max_payload_bytes"), n("max_priority"), n("max_delay_days"))
	}}
}

// grantRows are a grant as one reads it.
func grantRows() []row {
	return []row{
		fact("grant", "id"), fact("state", "state"), fact("persona", "persona"),
		{"friend", func(o map[string]any) string {
			return said(col("", "identity.email", "identity.name", "identity.subject").of(o), at(o, "identity.issuer"))
		}},
		fact("calls itself", "from.name"), scopeRow("may", "scope"), limitsRow("scope.limits"),
		{"approved as", func(o map[string]any) string {
			if now, then := scopeRow("", "scope").value(o)+limitsRow("scope.limits").value(o), scopeRow("", "approved_scope").value(o); !strings.HasPrefix(now, then) {
				return then
			}
			return ""
		}},
		fact("approved", "approved_at"), fact("expires", "expires_at"), fact("ended", "ended_at"), fact("endpoint", "mcp_endpoint"), fact("request", "friend_request_id"),
	}
}

// todoRows are a todo and its whole history.
func todoRows() []row {
	return []row{
		fact("todo", "id"),
		{"state", func(o map[string]any) string {
			asked := ""
			if at(o, "cancel_requested") == "true" {
				asked = "asked to stop"
			}
			return said(at(o, "state"), asked, after("lease until", at(o, "lease_expires_at")))
		}},
		fact("queue", "queue"), fact("title", "title", "from_friend.title"),
		{"from", func(o map[string]any) string {
			return said(at(o, "from_friend.identity"), after("calls itself", at(o, "from_friend.calls_itself")))
		}},
		words("body", "body"), words("body", "from_friend.body"), data("payload", "payload"), data("payload", "from_friend.payload"),
		fact("priority", "priority"), fact("not before", "not_before"), fact("deadline", "deadline"), fact("created", "created_at"),
		{"attempts", func(o map[string]any) string { return at(o, "attempt") + " of " + at(o, "max_attempts") }},
		each("", "attempts", func(o map[string]any) string {
			return said(at(o, "attempt")+". "+at(o, "outcome"), at(o, "started_at"), after("until", at(o, "ended_at")), after("by", at(o, "worker")), at(o, "progress.note"), at(o, "error"))
		}),
		{"progress", func(o map[string]any) string {
			return said(strings.TrimPrefix(at(o, "progress.percent")+" %", " %"), at(o, "progress.note"))
		}},
		each("asked", "exchanges", func(o map[string]any) string {
			return said(at(o, "question.text"), after("answered:", at(o, "answer.text")))
		}),
		words("question", "question.text"), words("says", "public_message"), data("result", "result"),
		each("artifacts", "artifacts", func(o map[string]any) string {
			return said(at(o, "name"), at(o, "media_type"), at(o, "url"), at(o, "text"))
		}),
		fact("finished", "finished_at"), fact("grant", "grant_id"),
	}
}

// personaRows are a persona and what it offers.
func personaRows() []row {
	return []row{
		fact("persona", "slug"), fact("name", "name"), fact("id", "id"), words("about", "description"), fact("visibility", "visibility"), fact("who may ask", "who_may_ask"),
		fact("works on", "queues"),
		each("offers", "offers", func(o map[string]any) string { return at(o, "verbs") + " on " + at(o, "queue") }),
		fact("offer version", "offer_version"), fact("card", "card"), words("prompt", "prompt"), fact("created", "created_at"), fact("changed", "updated_at"),
	}
}

// endpointRows are an endpoint.
func endpointRows() []row {
	return []row{
		fact("endpoint", "id"), fact("kind", "kind"), fact("state", "state"), fact("url", "url"), fact("persona", "persona"), fact("grant", "grant_id"),
		fact("queues", "queues"), fact("may", "verbs"), limitsRow("limits"), fact("created", "created_at"), fact("expires", "expires_at"),
	}
}
