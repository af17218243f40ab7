package web_test

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/human"
	"switchboard/internal/todo"
	"switchboard/internal/web"
)

// sse reads a stream's events, name and data.
type sse struct {
	t     *testing.T
	lines *bufio.Scanner
	end   context.CancelFunc
}

func (b *bundle) stream(of, since string) *sse {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.URL+"/events?of="+of, nil)
	require.NoError(b.t, err)
	if since != "" {
		r.Header.Set("Last-Event-ID", since)
	}
	res, err := b.client.Do(r)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(b.t, http.StatusOK, res.StatusCode)
	return &sse{b.t, bufio.NewScanner(res.Body), cancel}
}

// next returns the name and the id of the next event.
func (s *sse) next() (name, id string) {
	s.t.Helper()
	for s.lines.Scan() {
		line := s.lines.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		if i, ok := strings.CutPrefix(line, "id: "); ok {
			return name, i
		}
	}
	s.t.Fatal("the stream ended")
	return "", ""
}

// TestEvents_FollowHintsAtOnce has no polling to wait for: what arrives was hinted at.
func TestEvents_FollowHintsAtOnce(t *testing.T) {
	t.Parallel()
	var k *wake
	b := setupWith(t, func(d *web.Deps, _ *human.Config) {
		d.PollEvery = time.Hour
		k = &wake{woken: make(chan struct{}, 1)}
		d.Wake = k
	})
	b.fill()
	b.grants[0].Line = newID()
	b.signIn("bob", "/")
	s := b.stream("queue:reviews", "")
	name, first := s.next()
	require.Equal(t, "at", name)
	k.mu.Lock()
	topics := strings.Join(k.topics[0], " ")
	k.mu.Unlock()
	for _, want := range []string{"todo.owner/", "/reviews", "todo.line/" + b.grants[0].Line.String(), "todo.line/" + b.agents[0].ID.String()} {
		require.Contains(t, topics, want)
	}
	k.woken <- struct{}{} // a hint that came to nothing is told to nobody
	b.mu.Lock()
	b.todos[0].Version++
	b.todos[0].State = todo.Leased
	b.mu.Unlock()
	k.woken <- struct{}{}
	name, second := s.next()
	require.Equal(t, "changed", name)
	require.NotEqual(t, first, second)

	// A stream that is opened again says what was missed, and nothing when nothing was.
	again := b.stream("queue:reviews", first)
	name, _ = again.next()
	require.Equal(t, "at", name)
	name, _ = again.next()
	require.Equal(t, "changed", name)
	same := b.stream("queue:reviews", second)
	name, id := same.next()
	require.Equal(t, "at", name)
	require.Equal(t, second, id)

	// When pages go away, nothing of them stays, and nobody is alarmed.
	for _, open := range []*sse{s, again, same} {
		open.end()
	}
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.ended == len(k.topics)
	}, 10*time.Second, time.Millisecond)
}

func TestEvents_AreBoundedForEachHuman(t *testing.T) {
	t.Parallel()
	b := setupWith(t, func(d *web.Deps, _ *human.Config) { d.PollEvery = time.Hour })
	b.fill()
	b.signIn("bob", "/")
	for range 12 {
		b.stream("inbox", "").next()
	}
	require.Equal(t, http.StatusTooManyRequests, b.get("/events?of=inbox").status)
	require.Equal(t, http.StatusNotFound, b.get("/events?of=nothing").status)
}

// TestPages_WhoGoesAwayIsNoFault: a browser that left in the middle of an answer is
// not our fault and not worth an operator's look.
func TestPages_WhoGoesAwayIsNoFault(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	b := setupWith(t, func(d *web.Deps, _ *human.Config) {
		d.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	b.fill()
	b.signIn("bob", "/")
	log.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	jar := b.client.Jar
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.URL+"/friends", nil)
	require.NoError(t, err)
	for _, c := range jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	cancel()
	w := &unread{header: http.Header{}}
	b.server.Config.Handler.ServeHTTP(w, r)
	require.NotContains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "level=DEBUG")
	require.Zero(t, w.status, "nobody is answered")
}

// unread is an answer that nobody reads.
type unread struct {
	header http.Header
	status int
}

func (u *unread) Header() http.Header         { return u.header }
func (u *unread) WriteHeader(status int)      { u.status = status }
func (u *unread) Write(b []byte) (int, error) { return len(b), nil }
