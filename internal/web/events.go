package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

// writeWithin is how long a page may take to read an event.
const writeWithin = 30 * time.Second

// maxStreams bounds the open pages of one human that are live; others stay as they were loaded.
const maxStreams = 12

// live tells open pages that something changed. It is a hint and carries no
// content: the page then asks for itself again, with all checks.
type live struct {
	site *site
	mu   sync.Mutex
	open map[uuid.UUID]int
}

func newLive(s *site) *live { return &live{site: s, open: map[uuid.UUID]int{}} }

func (l *live) enter(owner uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[owner] >= maxStreams {
		return false
	}
	l.open[owner]++
	return true
}

func (l *live) leave(owner uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[owner]--; l.open[owner] <= 0 {
		delete(l.open, owner)
	}
}

// waiting counts what the inbox holds, for the navigation; more than a page counts as one.
func (l *live) waiting(ctx context.Context, owner uuid.UUID) int {
	items, _, err := l.site.Todos.Inbox(ctx, owner, "", inboxPage)
	if err != nil {
		l.site.Log.WarnContext(ctx, "inbox not counted", "error", err)
		return 0
	}
	return len(items)
}

// events streams "changed" whenever the subject of an open page is not what it was.
func (v *visit) events() error {
	look, err := v.subject(v.r.URL.Query().Get("of"))
	if err != nil {
		return err
	}
	if !v.live.enter(v.owner()) {
		return refusal.New(refusal.RateLimited, "too many pages are open").After(time.Minute)
	}
	defer v.live.leave(v.owner())
	ctx := v.r.Context()
	was, err := look(ctx)
	if err != nil {
		return err
	}
	out := http.NewResponseController(v.w)
	_ = out.SetReadDeadline(time.Time{}) // the stream outlives a request's deadline
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("Cache-Control", "no-store")
	v.w.Header().Set("X-Accel-Buffering", "no")
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeWithin)) // and an answer's, while somebody reads
		_, err := fmt.Fprint(v.w, text)
		return err == nil && out.Flush() == nil
	}
	if !send("retry: 5000\n\n") {
		return errAnswered
	}
	ticker := time.NewTicker(v.PollEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return errAnswered
		case <-ticker.C:
		}
		if n%8 == 0 { // a session that ended ends its pages' streams
			alive, err := v.Humans.Alive(ctx, v.Humans.TokenFromRequest(v.r))
			if err != nil || !alive || !send(": still here\n\n") {
				return errAnswered
			}
		}
		now, err := look(ctx)
		if err != nil { // gone, or the database is away: the page asks again and will see
			send("event: changed\ndata: -1\n\n")
			return errAnswered
		}
		if now == was {
			continue
		}
		was = now
		if !send(fmt.Sprintf("event: changed\ndata: %d\n\n", v.live.waiting(ctx, v.owner()))) {
			return errAnswered
		}
	}
}

// subject returns what to look at: a text that changes with the page's subject.
func (v *visit) subject(of string) (func(context.Context) (string, error), error) {
	kind, name, _ := strings.Cut(of, ":")
	owner := v.owner()
	switch kind {
	case "inbox":
		return func(ctx context.Context) (string, error) {
			items, _, err := v.Todos.Inbox(ctx, owner, "", inboxPage)
			var b strings.Builder
			for _, i := range items {
				b.WriteString(i.ID.String())
				if i.Question != nil {
					b.WriteString(i.Question.ID.String())
				}
			}
			return b.String(), err
		}, nil
	case "request":
		id, err := uuid.Parse(name)
		if err != nil {
			return nil, errNoPage
		}
		return func(ctx context.Context) (string, error) {
			r, err := v.Friends.GetIncoming(ctx, owner, id)
			return fmt.Sprint(r.State, r.OfferVersion), err
		}, nil
	case "queue":
		return func(ctx context.Context) (string, error) {
			todos, _, err := v.Todos.List(ctx, owner, todo.Filter{Queue: name}, "", inboxPage)
			var b strings.Builder
			for _, t := range todos {
				fmt.Fprint(&b, t.TodoID, t.Version)
			}
			return b.String(), err
		}, nil
	case "todo":
		id, err := uuid.Parse(name)
		if err != nil {
			return nil, errNoPage
		}
		return func(ctx context.Context) (string, error) {
			t, err := v.Todos.Get(ctx, owner, id)
			return fmt.Sprint(t.Version, t.State, t.Progress != nil && t.Progress.Percent != nil), err
		}, nil
	case "friends":
		return func(ctx context.Context) (string, error) {
			grants, _, err := v.Friends.Grants(ctx, owner, "", listPage)
			var b strings.Builder
			for _, g := range grants {
				if g.State == friend.GrantActive || g.State == friend.GrantPaused {
					fmt.Fprint(&b, g.ID, g.Version)
				}
			}
			return b.String(), err
		}, nil
	}
	return nil, errNoPage
}
