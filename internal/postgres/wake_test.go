package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
)

const patience = 20 * time.Second

func newWake(t *testing.T, url string) *postgres.Wake {
	t.Helper()
	w := postgres.NewWake(url, postgres.WakeOptions{PingEvery: 200 * time.Millisecond})
	t.Cleanup(w.Close)
	require.Eventually(t, w.Listening, patience, time.Millisecond)
	return w
}

func requireWoken(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		require.Fail(t, "not woken")
	}
}

func TestWake_CrossesProcessesAndKeepsTopicsApart(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	a, b := newWake(t, url), newWake(t, url)
	reviews, cancelReviews := b.Subscribe("reviews")
	defer cancelReviews()
	second, cancelSecond := b.Subscribe("reviews")
	defer cancelSecond()
	other, cancelOther := b.Subscribe("other")
	defer cancelOther()
	drain(reviews, second, other) // the start of listening wakes everybody

	a.Notify("reviews")
	requireWoken(t, reviews)
	requireWoken(t, second)
	require.Empty(t, other)
}

func drain(cs ...<-chan struct{}) {
	for _, c := range cs {
		select {
		case <-c:
		default:
		}
	}
}

func TestWake_LocalSubscribersNeedNoDatabase(t *testing.T) {
	t.Parallel()
	w := postgres.NewWake("postgres://127.0.0.1:1/none", postgres.WakeOptions{})
	defer w.Close()
	c, cancel := w.Subscribe("reviews")
	w.Notify("reviews")
	w.Notify("reviews")
	require.Len(t, c, 1, "woken before Notify returned, and tokens do not add up")
	require.False(t, w.Listening())
	<-c
	cancel()
	cancel()
	w.Notify("reviews")
	require.Empty(t, c, "after the subscription's end")
}

func TestWake_ListenerComesBackAfterItsConnectionIsCut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.URL(t)
	pool := pgtest.Open(t, url)
	a, b := newWake(t, url), newWake(t, url)
	c, cancel := b.Subscribe("reviews")
	defer cancel()
	drain(c)

	var cut int
	require.NoError(t, pool.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name IN ('switchboard-listen', 'switchboard-notify') AND datname = current_database()`).Scan(&cut))
	require.NotZero(t, cut)
	requireWoken(t, c) // back again: what was sent meanwhile may have been missed
	require.Eventually(t, func() bool {
		a.Notify("reviews")
		return len(c) == 1
	}, patience, 5*time.Millisecond)
}

// TestWake_NoticesListenThatDiedInSilence puts a proxy before the database that
// stops passing on what the server says to listeners, without closing anything.
func TestWake_NoticesListenThatDiedInSilence(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	p := newProxy(t, direct)
	a := newWake(t, direct)
	b := newWake(t, p.url)
	p.mute.Store(true)
	require.Eventually(t, func() bool { return !b.Listening() }, patience, time.Millisecond)
	before := p.listeners.Load()
	require.Eventually(t, func() bool { return p.listeners.Load() > before }, patience, time.Millisecond, "tries again and again")

	p.mute.Store(false)
	require.Eventually(t, b.Listening, patience, time.Millisecond)
	c, cancel := b.Subscribe("reviews")
	defer cancel()
	drain(c)
	a.Notify("reviews")
	requireWoken(t, c)
}

// proxy passes connections on to PostgreSQL's socket. While mute, listeners
// connect and LISTEN, but notifications do not come through.
type proxy struct {
	url       string
	mute      atomic.Bool
	listeners atomic.Int64
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	require.NoError(t, err)
	query := u.Query()
	socket := filepath.Join(query.Get("host"), ".s.PGSQL.5432")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	query.Del("host")
	u.Host, u.RawQuery = l.Addr().String(), query.Encode()
	p := &proxy{url: u.String()}

	var running sync.WaitGroup
	t.Cleanup(func() { require.NoError(t, l.Close()); running.Wait() })
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.pass(client, socket) })
		}
	})
	return p
}

func (p *proxy) pass(client net.Conn, socket string) {
	defer client.Close()
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	var listener atomic.Bool
	go func() {
		defer server.Close()
		buffer := make([]byte, 32<<10)
		for {
			n, err := client.Read(buffer)
			if strings.Contains(string(buffer[:n]), "switchboard-listen") {
				listener.Store(true)
				p.listeners.Add(1)
			}
			if err != nil {
				return
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		// 'A' begins a NotificationResponse.
		if n > 0 && buffer[0] == 'A' && listener.Load() && p.mute.Load() {
			continue
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			_, _ = io.Copy(io.Discard, server)
			return
		}
	}
}

func TestWake_CloseEndsItsGoroutines(t *testing.T) {
	t.Parallel()
	w := postgres.NewWake(pgtest.URL(t), postgres.WakeOptions{})
	w.Notify("x")
	goroutine := func(name string) bool {
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return strings.Contains(string(stacks), fmt.Sprintf("(*Wake).%s(%p", name, w))
	}
	for _, name := range []string{"send", "listen"} {
		require.Eventually(t, func() bool { return goroutine(name) }, patience, time.Millisecond, name)
	}
	w.Close()
	require.False(t, goroutine("send"))
	require.False(t, goroutine("listen"))
}

func BenchmarkWake_Cross(b *testing.B) {
	url := pgtest.URL(b)
	options := postgres.WakeOptions{Interval: time.Nanosecond}
	from, to := postgres.NewWake(url, options), postgres.NewWake(url, options)
	defer from.Close()
	defer to.Close()
	for !to.Listening() || !from.Listening() {
		runtime.Gosched()
	}
	c, cancel := to.Subscribe("reviews")
	defer cancel()
	drain(c)
	for b.Loop() {
		from.Notify("reviews")
		<-c
	}
}

func TestWake_AloneIsSilentUntilAnotherComes(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	first := newWake(t, url)
	require.Eventually(t, first.Alone, patience, 5*time.Millisecond)

	second := newWake(t, url)
	woken, end := second.Subscribe("topic")
	defer end()
	require.Eventually(t, func() bool { return !first.Alone() }, patience, time.Millisecond)
	drain(woken)
	first.Notify("topic")
	requireWoken(t, woken)
}

func TestWake_WatchersHearOfTheirOwnProcessToo(t *testing.T) {
	t.Parallel()
	w := postgres.NewWake("postgres://127.0.0.1:1/none", postgres.WakeOptions{})
	defer w.Close()
	subscribed, endSubscription := w.Subscribe("reviews")
	defer endSubscription()
	watched, end := w.Watch("reviews", "builds", "reviews")
	w.NotifyOthers("reviews")
	requireWoken(t, watched)
	require.Empty(t, subscribed, "who subscribes has been told another way")
	w.NotifyOthers("builds")
	requireWoken(t, watched)
	w.NotifyOthers("others")
	require.Empty(t, watched)
	w.Notify("builds")
	requireWoken(t, watched)
	end()
	end()
	w.NotifyOthers("builds")
	w.Notify("reviews")
	require.Empty(t, watched, "after its end")
	requireWoken(t, subscribed)

	url := pgtest.URL(t)
	a, b := newWake(t, url), newWake(t, url)
	far, endFar := b.Watch("reviews")
	defer endFar()
	drain(far)
	a.NotifyOthers("reviews")
	requireWoken(t, far)
}
