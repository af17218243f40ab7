package web

import (
	"context"
	"net/http"

	"switchboard/internal/friend"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

const inboxPage = 50

type inboxItem struct {
	todo.InboxItem
	Request *friend.Request // of an approval
}

type inboxData struct {
	Approvals []inboxItem
	Others    []inboxItem
	Next      string
	First     bool // first page
	Start     start
}

// inbox shows what waits for the human, approvals first.
func (v *visit) inbox() error {
	cursor := v.r.URL.Query().Get("cursor")
	items, next, err := v.Todos.Inbox(v.r.Context(), v.owner(), cursor, inboxPage)
	if err != nil {
		return err
	}
	page := inboxData{Next: next, First: cursor == ""}
	for _, item := range items {
		if item.FriendRequestID == nil {
			page.Others = append(page.Others, inboxItem{InboxItem: item})
			continue
		}
		r, err := v.Friends.GetIncoming(v.r.Context(), v.owner(), *item.FriendRequestID)
		if refusal.CodeOf(err) == refusal.NotFound {
			continue // decided between the two questions
		}
		if err != nil {
			return err
		}
		page.Approvals = append(page.Approvals, inboxItem{InboxItem: item, Request: &r})
	}
	if page.First && len(items) == 0 {
		if page.Start, err = v.start(v.r.Context()); err != nil {
			return err
		}
	}
	if v.fragment() {
		v.part("inbox", "waiting", page)
		return nil
	}
	v.render(http.StatusOK, "inbox", "Inbox", "inbox", page)
	return nil
}

// start is how far somebody new has come, so that an empty page can name the next step.
type start struct {
	Agent, Queue, Persona, Offer, Endpoint, Friend bool
	Persona1                                       string // a slug to show others
}

// Done reports whether there is nothing left to set up.
func (s start) Done() bool { return s.Friend }

func (v *visit) start(ctx context.Context) (start, error) {
	var s start
	agents, _, err := v.Personas.Agents(ctx, v.owner(), "", 1)
	if err != nil {
		return s, err
	}
	queues, _, err := v.Todos.Queues(ctx, v.owner(), "", 2)
	if err != nil {
		return s, err
	}
	personas, _, err := v.Personas.List(ctx, v.owner(), "", 50)
	if err != nil {
		return s, err
	}
	endpoints, _, err := v.Endpoints.List(ctx, v.owner(), "", 50)
	if err != nil {
		return s, err
	}
	grants, _, err := v.Friends.Grants(ctx, v.owner(), "", 1)
	if err != nil {
		return s, err
	}
	s.Agent, s.Persona, s.Friend = len(agents) > 0, len(personas) > 0, len(grants) > 0
	for _, q := range queues {
		s.Queue = s.Queue || q.Name != "inbox"
	}
	for _, p := range personas {
		if len(p.Offers) > 0 {
			s.Offer, s.Persona1 = true, p.Slug
		}
	}
	for _, e := range endpoints {
		s.Endpoint = s.Endpoint || e.Kind == "home"
	}
	return s, nil
}
