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
	Facts                  []field
}

// The kinds of events that have a sentence of their own; others are shown by their name.
var eventWords = map[string]struct{ icon, words string }{
	"human.created":            {"face", "You arrived on this instance"},
	"session.started":          {"face", "You signed in"},
	"session.ended":            {"face", "You signed a browser out"},
	"api_token.created":        {"plug", "You made an API token"},
	"api_token.deleted":        {"x", "You deleted an API token"},
	"friend_request.received":  {"inbox", "A friend request arrived"},
	"friend_request.approved":  {"check", "You approved a friend request"},
	"friend_request.declined":  {"x", "You declined a friend request"},
	"friend_request.withdrawn": {"reply", "A friend request was withdrawn"},
	"friend_request.expired":   {"clock", "A friend request expired"},
	"grant.narrowed":           {"people", "You narrowed a grant"},
	"grant.paused":             {"pause", "You paused a grant"},
	"grant.resumed":            {"arrow", "You resumed a grant"},
	"grant.revoked":            {"x", "You revoked a grant"},
	"grant.expired":            {"clock", "A grant expired"},
	"grant.ended":              {"clock", "A grant ended"},
	"grant.left":               {"reply", "A friend left"},
	"endpoint.vended":          {"plug", "An endpoint was vended"},
	"endpoint.created":         {"plug", "You vended an endpoint"},
	"endpoint.narrowed":        {"plug", "You narrowed an endpoint"},
	"endpoint.paused":          {"pause", "You paused an endpoint"},
	"endpoint.resumed":         {"arrow", "You resumed an endpoint"},
	"endpoint.rotated":         {"plug", "You rotated a credential"},
	"endpoint.revoked":         {"x", "You revoked an endpoint"},
	"token.revoked":            {"x", "A token was revoked"},
	"persona.created":          {"face", "You published a persona"},
	"persona.updated":          {"face", "You changed a persona"},
	"persona.deleted":          {"x", "You deleted a persona"},
	"agent.created":            {"face", "You registered an agent"},
	"block.lifted":             {"check", "You lifted a block"},
	"block.created":            {"shield", "You blocked somebody"},
}

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
	for _, name := range slices.Sorted(maps.Keys(e.Personal)) {
		if e.Personal[name] != "" {
			row.Facts = append(row.Facts, field{strings.ReplaceAll(name, "_", " "), quote.Visible(e.Personal[name], 200)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Detail)) {
		row.Facts = append(row.Facts, field{strings.ReplaceAll(name, "_", " "), quote.Visible(factWords(e.Detail[name]), 200)})
	}
	return row
}

func factWords(v any) string {
	switch v.(type) {
	case string, bool, float64, int, int64, uuid.UUID:
		return fmt.Sprint(v)
	}
	return prettyJSON(v)
}
