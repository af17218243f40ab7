package server_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
	"switchboard/internal/server/servertest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// friendship is a request on its way to a grant, as the requester's program has it.
type friendship struct {
	q        *requester.Requester
	store    *requester.Store
	request  *requester.Request
	endpoint *requester.Endpoint
}

// ask sends a friend request to h as the named person's agent.
func ask(t *testing.T, w *servertest.Instance, name string, h servertest.Home, asked scope.Asked) *friendship {
	t.Helper()
	f := &friendship{q: requester.New(30 * time.Second), store: newStore(t)}
	card, err := f.q.Find(t.Context(), w.URL+"/a2a/"+h.Slug)
	require.NoError(t, err)
	ask, err := requester.Ask{Card: card, Name: name + "-bot", Reason: "Because.", Scope: asked}.Prepare()
	require.NoError(t, err)
	f.request, err = f.q.Send(t.Context(), f.store, ask, requester.SignIn{Headless: name})
	require.NoError(t, err)
	return f
}

// approved waits for the decision and opens the endpoint.
func (f *friendship) approved(t *testing.T) *friendship {
	t.Helper()
	require.NoError(t, f.q.Update(t.Context(), f.store, f.request))
	var err error
	f.endpoint, err = f.q.Endpoint(f.request)
	require.NoError(t, err)
	return f
}

func (f *friendship) call(t *testing.T, tool string, arguments, into any) *requester.Result {
	t.Helper()
	r, err := f.endpoint.Call(t.Context(), tool, arguments)
	require.NoError(t, err)
	if into != nil {
		require.False(t, r.IsError, "%s: %s", tool, r.Text)
		require.NoError(t, json.Unmarshal(r.Structured, into))
	}
	return r
}

// work calls a tool of a home endpoint.
func work(t *testing.T, w *servertest.Instance, h servertest.Home, tool string, arguments, into any) servertest.Reply {
	t.Helper()
	r := w.Stranger(t, h.Credential).Do(http.MethodPost, h.URL,
		map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}},
		"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2025-11-25")
	if into != nil {
		var a struct {
			Result struct {
				StructuredContent json.RawMessage `json:"structuredContent"`
				IsError           bool            `json:"isError"`
			} `json:"result"`
		}
		r.Into(t, &a)
		require.False(t, a.Result.IsError, r.Body)
		require.NoError(t, json.Unmarshal(a.Result.StructuredContent, into), r.Body)
	}
	return r
}
