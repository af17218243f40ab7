package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/todo"
)

// request is a tools/call as bytes.
func (c client) request(t *testing.T, name string, args map[string]any) (address, text string) {
	t.Helper()
	params := map[string]any{"name": name, "arguments": args}
	body, err := json.Marshal(c.message("tools/call", params))
	require.NoError(t, err)
	r, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(body))
	require.NoError(t, err)
	for k, v := range c.headers("tools/call", params) {
		r.Header.Set(k, v)
	}
	address = r.URL.Host
	if c.host != "" {
		r.Host = c.host
	}
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	return address, b.String()
}

// TestAWaitingCallIsCheap: thousands of workers wait at once and the server
// must not notice.
func TestAWaitingCallIsCheap(t *testing.T) {
	i := newInstance(t)
	bob := i.worker()
	address, request := bob.request(t, "claim_next", map[string]any{"queues": []string{"reviews"}, "wait_seconds": 50})
	const waiters = 1000
	var warm sync.WaitGroup
	for range 50 { // so that the pool's connections are not the waiters'
		warm.Go(func() { bob.tool("claim_next", `{"queues":["reviews"]}`) })
	}
	warm.Wait()
	var each int64
	before, idle := inUse(), runtime.NumGoroutine()
	conns := make([]net.Conn, waiters)
	for i := range conns {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		conns[i] = c
		_, err = io.WriteString(c, request)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { // once they are parked and the stacks have shrunk
		each = (inUse() - before) / waiters
		t.Logf("%d goroutines, %d bytes a waiting call, this test's end of the connection among them", runtime.NumGoroutine(), each)
		return runtime.NumGoroutine() > 2*waiters && each < waiterLimit
	}, 30*time.Second, 500*time.Millisecond)
	// The test server must not be closed while connections still come back to it.
	for _, c := range conns {
		c.Close()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < idle+waiters/2 }, 30*time.Second, 10*time.Millisecond)
}

// inUse is what heap and stacks hold after a collection.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestAParkedConnectionGoesOn: after its answer a connection serves the next
// request, also one that was sent before the answer came.
func TestAParkedConnectionGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.todos.wake = make(chan struct{})
	address, waits := b.peer.request(t, "todo_status", map[string]any{"todo_id": aTodo, "wait_seconds": 50})
	_, quick := b.peer.request(t, "whoami", map[string]any{})
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	in := bufio.NewReader(conn)
	answer := func() string {
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NotEmpty(t, resp.Header.Get("Date"))
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(body)
	}
	for _, early := range []bool{false, true, false} {
		_, err = io.WriteString(conn, waits)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return b.todos.waiting.Load() == 1 }, 10*time.Second, time.Millisecond)
		parked(t, "switchboard/internal/mcp.(*parked).watch")
		if early {
			_, err = io.WriteString(conn, quick)
			require.NoError(t, err)
		}
		b.todos.wake <- struct{}{}
		require.Contains(t, answer(), aTodo.String())
		if !early {
			_, err = io.WriteString(conn, quick)
			require.NoError(t, err)
		}
		require.Contains(t, answer(), `"direction":"in"`)
	}
}

// parked waits until a goroutine stands in the function.
func parked(t *testing.T, function string) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	require.Eventually(t, func() bool {
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function)
	}, 10*time.Second, 10*time.Millisecond)
}

// TestShutdown_AnswersWhoWaits: a restart does not wait for the waiting calls,
// and does not leave them without an answer.
func TestShutdown_AnswersWhoWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.todos.wake = make(chan struct{})
	address, waits := b.peer.request(t, "todo_status", map[string]any{"todo_id": aTodo, "wait_seconds": 50})
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, waits)
	require.NoError(t, err)
	parked(t, "switchboard/internal/mcp.(*parked).watch")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, b.server.Shutdown(ctx))
	require.NoError(t, b.server.Handler.(interface{ Drain(context.Context) error }).Drain(ctx))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.True(t, resp.Close)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), `"code":"unavailable"`)
	require.Contains(t, string(body), `"retry_after_seconds":1`)
	require.Zero(t, b.todos.waiting.Load())
}

// TestShutdown_AnswersWhoCannotBeParked: a call that waits in its handler, in its
// first moments or on a connection that cannot be taken out, holds up no restart.
func TestShutdown_AnswersWhoCannotBeParked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.todos.wake = make(chan struct{})
	address, waits := b.peer.request(t, "todo_status", map[string]any{"todo_id": aTodo, "wait_seconds": 50})
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, strings.Replace(waits, "HTTP/1.1", "HTTP/1.0", 1))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.todos.waiting.Load() == 1 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, b.server.Shutdown(ctx))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), `"code":"unavailable"`)
}

// TestManyWaitersGetTheirAnswers: every parked call is answered once, with its
// own todo, and none twice.
func TestManyWaitersGetTheirAnswers(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	limits := wide()
	limits.Limits.MaxOpen, limits.Limits.PerHour = 1000, 1000
	_, alice := i.friend(limits)
	bob := i.worker()
	const waiters = 60
	got := make(chan string, waiters)
	for range waiters {
		go func() {
			r := bob.tool("claim_next", `{"queues":["reviews"],"wait_seconds":40}`)
			var v struct {
				StructuredContent struct{ Todos []todo.Claimed }
			}
			if json.Unmarshal(r.Result, &v) != nil || len(v.StructuredContent.Todos) != 1 {
				got <- r.text
				return
			}
			got <- v.StructuredContent.Todos[0].TodoID.String()
		}()
	}
	parked(t, "switchboard/internal/mcp.(*parked).watch")
	want := map[string]bool{}
	for k := range waiters {
		want[alice.tool("create_for", `{"queue":"reviews","title":"T","idempotency_key":"`+strings.Repeat("k", k+1)+`"}`).content(t)["todo_id"].(string)] = true
	}
	for range waiters {
		id := <-got
		require.True(t, want[id], id)
		delete(want, id)
	}
}
