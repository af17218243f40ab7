package web

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/activity"
	"switchboard/internal/quote"
)

type activityPage struct {
	Events []eventRow
	Kind   string
	Kinds  []string
	Next   string
}

// eventRow is one event in words.
type eventRow struct {
	activity.Event
	Icon, Words, Who, Link string
	Facts                  []fact
	All                    map[string]any
}

// fact is one thing about an event; Said marks somebody else's words.
type fact struct {
	Name, Value string
	Said        bool
}

// factNames stand before facts that do not speak for themselves.
var factNames = map[string]string{"calls_itself": "agent", "persona": "persona", "slug": "at", "queue": "queue", "canceled_todos": "todos canceled:"}

// The kinds of events that have a sentence of their own; others are shown by their name.
var eventWords = map[string]struct{ icon, words string }{
	"agent.changed":            {"face", "You changed an agent"},
	"agent.created":            {"face", "You registered an agent"},
	"agent.deleted":            {"x", "You deleted an agent"},
	"api_token.created":        {"plug", "You made an API token"},
	"api_token.deleted":        {"x", "You deleted an API token"},
	"endpoint.narrowed":        {"plug", "An endpoint became narrower"},
	"endpoint.paused":          {"pause", "An endpoint was paused"},
	"endpoint.resumed":         {"arrow", "An endpoint was resumed"},
	"endpoint.revoked":         {"x", "An endpoint was revoked"},
	"endpoint.rotated":         {"plug", "You rotated a credential"},
	"endpoint.vended":          {"plug", "An endpoint was vended"},
	"friend_request.approved":  {"check", "You approved a friend request"},
	"friend_request.declined":  {"x", "You declined a friend request"},
	"friend_request.expired":   {"clock", "A friend request expired"},
	"friend_request.received":  {"inbox", "A friend request arrived"},
	"friend_request.withdrawn": {"reply", "A friend request was withdrawn"},
	"grant.expired":            {"clock", "A grant expired"},
	"grant.left":               {"reply", "A friend left"},
	"grant.narrowed":           {"people", "You narrowed a grant"},
	"grant.paused":             {"pause", "You paused a grant"},
	"grant.resumed":            {"arrow", "You resumed a grant"},
	"grant.revoked":            {"x", "You revoked a grant"},
	"grant.superseded":         {"people", "A grant was renewed by another"},
	"human.created":            {"face", "You arrived on this instance"},
	"identity.blocked":         {"shield", "You blocked somebody"},
	"identity.unblocked":       {"check", "You lifted a block"},
	"persona.changed":          {"face", "You changed a persona"},
	"persona.created":          {"face", "You published a persona"},
	"persona.deleted":          {"x", "You deleted a persona"},
	"session.ended":            {"face", "You signed a browser out"},
	"session.started":          {"face", "You signed in"},
	"token.revoked":            {"x", "A token was revoked"},
	"webhook.disabled":         {"flag", "Your webhook was switched off"},
	"webhook.secret_made":      {"plug", "You made a signing secret for your webhook"},
}

// plainFacts are shown beside an event, in this order; the rest is behind its details.
var plainFacts = []string{"email", "name", "calls_itself", "persona", "slug", "queue", "reason", "note", "user_agent", "block", "may_ask_again", "canceled_todos"}

func (v *visit) activity() error {
	q := v.r.URL.Query()
	page := activityPage{Kind: q.Get("kind"), Kinds: slices.Sorted(maps.Keys(eventWords))}
	if _, known := eventWords[page.Kind]; !known {
		page.Kind = ""
	}
	events, next, err := v.Activity.List(v.r.Context(), v.owner(), activity.Filter{Kind: page.Kind}, q.Get("cursor"), listPage)
	if err != nil {
		return err
	}
	page.Next = next
	for _, e := range events {
		page.Events = append(page.Events, newEventRow(e))
	}
	v.render(http.StatusOK, "activity", "Activity", "activity", page)
	return nil
}

func newEventRow(e activity.Event) eventRow {
	row := eventRow{Event: e, Icon: "pulse", Words: strings.ReplaceAll(strings.ReplaceAll(e.Kind, ".", " "), "_", " ")}
	if known, ok := eventWords[e.Kind]; ok {
		row.Icon, row.Words = known.icon, known.words
	}
	switch kind, id, _ := strings.Cut(e.Actor, ":"); kind {
	case "human":
		row.Who = "you"
	case "endpoint":
		row.Who = "endpoint " + short(id)
	case "identity":
		row.Who = "the requester"
	default:
		row.Who = e.Actor
	}
	switch {
	case e.GrantID != uuid.Nil:
		row.Link = "/friends/" + e.GrantID.String()
	case e.ObjectID == uuid.Nil:
	case e.Object == "friend_request":
		row.Link = "/inbox/requests/" + e.ObjectID.String()
	case e.Object == "grant":
		row.Link = "/friends/" + e.ObjectID.String()
	case e.Object == "endpoint":
		row.Link = "/endpoints/" + e.ObjectID.String()
	case e.Object == "persona":
		row.Link = "/personas/" + e.ObjectID.String()
	case e.Object == "todo":
		row.Link = "/todos/" + e.ObjectID.String()
	}
	all := map[string]any{}
	for name, value := range e.Detail {
		all[name] = value
	}
	for name, value := range e.Personal {
		all[name] = value
	}
	for _, name := range plainFacts {
		value, ok := all[name]
		words := factWords(value)
		if !ok || words == "" || words == "false" || words == "0" || name == "name" && all["email"] != nil && all["email"] != "" && e.Object != "api_token" {
			continue
		}
		if words == "true" {
			row.Facts = append(row.Facts, fact{Name: strings.ReplaceAll(name, "_", " ")})
			continue
		}
		if name == "user_agent" {
			words = browser(words)
		}
		_, personal := e.Personal[name]
		row.Facts = append(row.Facts, fact{factNames[name], quote.Visible(words, 200), personal && name != "email"})
	}
	all["actor"], all["kind"] = e.Actor, e.Kind
	row.All = all
	return row
}

func factWords(v any) string {
	switch v.(type) {
	case nil:
		return ""
	case string, bool, float64, int, int64, uuid.UUID:
		return fmt.Sprint(v)
	}
	return prettyJSON(v)
}
