package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
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

// Pace of a stream. A hint is followed at once, and not sooner than restFor after
// the look before. Where hints arrive, every slowly-th period alone is looked at
// without one, and the session with it.
const (
	restFor = 250 * time.Millisecond
	slowly  = 8
)

// events streams "changed" whenever the subject of an open page is not what it was.
// Hints of what was committed, here and elsewhere, say when to look; looking from
// time to time finds what no hint told of.
func (v *visit) events() error {
	q := v.r.URL.Query()
	look, err := v.subject(q.Get("of"))
	if err != nil {
		return err
	}
	if !v.live.enter(v.owner()) {
		return refusal.New(refusal.RateLimited, "too many pages are open").After(time.Minute)
	}
	defer v.live.leave(v.owner())
	ctx := v.r.Context()
	hints, end, err := v.hints(ctx, q.Get("of"))
	if err != nil {
		return err
	}
	defer func() { end() }()
	was, err := look(ctx)
	if err != nil {
		return err
	}
	send := v.stream()
	// What a page knows already, when its stream was cut or it was put away meanwhile.
	since := v.r.Header.Get("Last-Event-ID")
	if since == "" {
		since = q.Get("since")
	}
	if !send("retry: 5000\n\n") || !send(event("at", was, was)) {
		return errAnswered
	}
	changed := func() bool { return send(event("changed", was, strconv.Itoa(v.live.waiting(ctx, v.owner())))) }
	if since != "" && since != was && !changed() {
		return errAnswered
	}
	ticker := time.NewTicker(v.PollEvery)
	defer ticker.Stop()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return errAnswered
		case <-hints:
		case <-ticker.C:
			if n++; n%slowly != 0 {
				if v.Wake != nil && v.Wake.Listening() {
					continue
				}
				break
			}
			// A session that ended ends its pages' streams.
			alive, err := v.Humans.Alive(ctx, v.Humans.TokenFromRequest(v.r))
			if err != nil || !alive || !send(": still here\n\n") {
				return errAnswered
			}
			end()
			if hints, end, err = v.hints(ctx, q.Get("of")); err != nil {
				end = func() {}
				return errAnswered
			}
		}
		now, err := look(ctx)
		if err != nil { // gone, or the database is away: the page asks again and will see
			if ctx.Err() == nil {
				send(event("changed", "gone", "-1"))
			}
			return errAnswered
		}
		if now != was {
			was = now
			if !changed() {
				return errAnswered
			}
		}
		select {
		case <-ctx.Done():
			return errAnswered
		case <-time.After(restFor):
		}
	}
}

// event is one of a stream. Its id is what the subject was, so that a stream that
// is opened again says whether that is still so.
func event(name, id, data string) string {
	return "event: " + name + "\ndata: " + data + "\nid: " + id + "\n\n"
}

// stream begins an answer of events and returns what sends one; false when nobody
// reads any more.
func (v *visit) stream() func(text string) bool {
	out := http.NewResponseController(v.w)
	_ = out.SetReadDeadline(time.Time{}) // the stream outlives a request's deadline
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("Cache-Control", "no-store")
	v.w.Header().Set("X-Accel-Buffering", "no")
	return func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeWithin)) // and an answer's, while somebody reads
		_, err := io.WriteString(v.w, text)
		return err == nil && out.Flush() == nil
	}
}

// hints returns what is rung when the page's subject may have changed. A grant or
// an agent that is newer than the stream is heard of with the next slow look.
func (v *visit) hints(ctx context.Context, of string) (<-chan struct{}, func(), error) {
	if v.Wake == nil {
		return nil, func() {}, nil
	}
	kind, name, _ := strings.Cut(of, ":")
	var queues []string
	var lines []uuid.UUID
	switch kind {
	case "inbox":
		queues = []string{"inbox"}
	case "queue":
		queues = []string{name}
	}
	if kind == "inbox" || kind == "queue" || kind == "todo" {
		lines = append(lines, v.owner())
		agents, _, err := v.Personas.Agents(ctx, v.owner(), "", listPage)
		if err != nil {
			return nil, nil, err
		}
		for _, a := range agents { // the lines of what their own workers make
			lines = append(lines, a.ID)
		}
	}
	if kind == "queue" || kind == "todo" {
		grants, _, err := v.Friends.Grants(ctx, v.owner(), "", listPage)
		if err != nil {
			return nil, nil, err
		}
		for _, g := range grants {
			lines = append(lines, g.Line)
		}
	}
	hints, end := v.Wake.Watch(todo.Topics(v.owner(), queues, lines)...)
	return hints, end, nil
}

// subject returns what to look at: a short text that changes with the page's subject.
func (v *visit) subject(of string) (func(context.Context) (string, error), error) {
	look, err := v.subjectText(of)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		text, err := look(ctx)
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:8]), err
	}, nil
}

func (v *visit) subjectText(of string) (func(context.Context) (string, error), error) {
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
		if !scope.QueueName(name) {
			return nil, errNoPage
		}
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
			at := fmt.Sprint(t.Version, t.State)
			if p := t.Progress; p != nil {
				at += p.Note
				if p.Percent != nil {
					at += fmt.Sprint(*p.Percent)
				}
			}
			return at, err
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
