package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	gomcp "github.com/mark3labs/mcp-go/mcp"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/scope"
)

// event is one message of a stream.
type event struct {
	ID     json.RawMessage
	Method string
	Params struct {
		URI           string
		Notifications map[string]any
		Meta          map[string]any `json:"_meta"`
	}
	Result map[string]any
}

// listen opens a stream; its events come until it ends.
func (c client) listen(filter map[string]any) <-chan event {
	c.t.Helper()
	params := map[string]any{"notifications": filter}
	body, err := json.Marshal(c.message("subscriptions/listen", params))
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(string(body)))
	require.NoError(c.t, err)
	for k, v := range c.headers("subscriptions/listen", params) {
		req.Header.Set(k, v)
	}
	req.Host = c.host
	resp, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, resp.StatusCode)
	require.Equal(c.t, "text/event-stream", resp.Header.Get("Content-Type"))
	events := make(chan event, 64)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var e event
				if json.Unmarshal([]byte(data), &e) == nil {
					events <- e
				}
			}
		}
	}()
	return events
}

func next(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case e, ok := <-events:
		require.True(t, ok, "the stream has ended")
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
		return event{}
	}
}

// TestListen_TellsOfTodosAndTools: a friend hears of each change of its own todo
// and of its list of tools, and of nobody else's; the stream ends with the endpoint.
func TestListen_TellsOfTodosAndTools(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	id, alice := i.friend(wide())
	_, carol := i.friend(wide())
	bob := i.worker()
	mine := alice.tool("create_for", `{"queue":"reviews","title":"A","idempotency_key":"a"}`).content(t)["todo_id"].(string)
	theirs := carol.tool("create_for", `{"queue":"reviews","title":"B","idempotency_key":"b","priority":1}`).content(t)["todo_id"].(string)

	events := alice.listen(map[string]any{"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": []string{"todo:" + mine, "todo:" + theirs, "todo:nonsense", "file:///etc/passwd"}})
	worker := bob.listen(map[string]any{"resourceSubscriptions": []string{"todo:" + mine}})
	ack := next(t, events)
	require.Equal(t, "notifications/subscriptions/acknowledged", ack.Method)
	require.Equal(t, map[string]any{"toolsListChanged": true, "resourceSubscriptions": []any{"todo:" + mine}}, ack.Params.Notifications)
	require.EqualValues(t, 7, ack.Params.Meta["io.modelcontextprotocol/subscriptionId"])
	require.Equal(t, "notifications/subscriptions/acknowledged", next(t, worker).Method)

	claimed := bob.tool("claim", `{"todo_id":"`+mine+`"}`).content(t)
	e := next(t, events)
	require.Equal(t, "notifications/resources/updated", e.Method)
	require.Equal(t, "todo:"+mine, e.Params.URI)
	require.EqualValues(t, 7, e.Params.Meta["io.modelcontextprotocol/subscriptionId"])
	require.Equal(t, "todo:"+mine, next(t, worker).Params.URI)

	read := alice.resource("todo:" + mine)
	require.Contains(t, string(read.Result), `\"state\":\"leased\"`)
	require.Contains(t, string(read.Result), `"cacheScope":"private"`)
	require.NotContains(t, string(read.Result), claimed["lease_token"])
	for _, uri := range []string{"todo:" + theirs, "todo:" + newID().String(), "todo:x"} {
		r := alice.resource(uri)
		require.Equal(t, -32602, r.Error.Code, uri)
		require.Equal(t, "Resource not found", r.Error.Message)
	}

	narrow := scope.Scope{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.TodoStatus}, Limits: scope.Defaults()}
	i.change(id, endpoint.Change{Scope: &narrow})
	require.Equal(t, "notifications/tools/list_changed", next(t, events).Method)
	bob.tool("complete", `{"todo_id":"`+mine+`","lease_token":"`+claimed["lease_token"].(string)+`","result":{}}`)
	require.Equal(t, "todo:"+mine, next(t, events).Params.URI)

	state := endpoint.Revoked
	i.change(id, endpoint.Change{State: &state})
	last := next(t, events)
	require.JSONEq(t, "7", string(last.ID))
	require.Equal(t, "complete", last.Result["resultType"])
	_, open := <-events
	require.False(t, open)
}

// resource reads one.
func (c client) resource(uri string) reply {
	c.t.Helper()
	params := map[string]any{"uri": uri}
	body, err := json.Marshal(c.message("resources/read", params))
	require.NoError(c.t, err)
	h := c.headers("resources/read", params)
	h["Mcp-Name"] = uri
	return c.post(string(body), h)
}

func TestListen_IsAdvertisedWhereItWorks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	blind := b.vend("blind", endpoint.Peer, []scope.Verb{scope.CreateFor})
	for c, want := range map[client]string{
		b.peer: `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`,
		b.home: `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`,
		blind:  `{"tools":{"listChanged":true}}`,
	} {
		var v struct{ Capabilities json.RawMessage }
		require.NoError(t, json.Unmarshal(c.rpc("server/discover", nil).Result, &v))
		require.JSONEq(t, want, string(v.Capabilities))
		legacy := c.as("2025-11-25").rpc("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
		require.NoError(t, json.Unmarshal(legacy.Result, &v))
		require.JSONEq(t, `{"tools":{}}`, string(v.Capabilities))
		require.Equal(t, -32601, c.as("2025-11-25").rpc("subscriptions/listen", map[string]any{"notifications": map[string]any{}}).Error.Code)
	}
	require.Equal(t, -32602, b.peer.rpc("subscriptions/listen", nil).Error.Code)
	require.Equal(t, -32602, b.peer.rpc("subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": "x"}}).Error.Code)
	ended := b.blindStream(blind)
	require.Equal(t, map[string]any{}, next(t, ended).Params.Notifications)
	require.Equal(t, "complete", next(t, ended).Result["resultType"], "with nothing to tell, a stream ends at once")
}

func (b *bundle) blindStream(c client) <-chan event {
	return c.listen(map[string]any{"resourceSubscriptions": []string{"todo:" + aTodo.String()}})
}

// TestListen_WithMCPGosClient: the same as somebody else's program sees it.
func TestListen_WithMCPGosClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.todos.wake = make(chan struct{})
	g := dialMCPGo(t, b.peer).(mcpGo)
	heard := make(chan string, 8)
	g.OnNotification(func(n gomcp.JSONRPCNotification) {
		if uri, ok := n.Params.AdditionalFields["uri"].(string); ok {
			heard <- uri
		}
	})
	stop, err := g.ListenAsync(t.Context(), gomcp.SubscriptionFilter{ResourceSubscriptions: []string{"todo:" + aTodo.String()}}, nil)
	require.NoError(t, err)
	defer stop()
	require.Eventually(t, func() bool { return b.todos.waiting.Load() == 1 }, 10*time.Second, time.Millisecond)
	b.todos.mu.Lock()
	b.todos.status.Version = 2
	b.todos.mu.Unlock()
	b.todos.wake <- struct{}{}
	select {
	case uri := <-heard:
		require.Equal(t, "todo:"+aTodo.String(), uri)
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
	}
}
