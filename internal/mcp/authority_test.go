package mcp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/mcp"
	"switchboard/internal/scope"
)

// TestNoReplicaAnswersFromMemory: a replica that knows the caller from a minute
// ago answers nothing at all, not even a ping or what is wrong with a request,
// once another replica has taken the endpoint back.
func TestNoReplicaAnswersFromMemory(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	second, _ := i.replica()
	revoked := endpoint.Revoked
	type request struct {
		name string
		send func(client) reply
	}
	method := func(name string, params map[string]any) request {
		return request{name, func(c client) reply { return c.rpc(name, params) }}
	}
	tool := func(name, arguments string) request {
		return request{name + " " + arguments, func(c client) reply { return c.tool(name, arguments) }}
	}
	hello := map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}
	of := map[string][]request{
		"both": {
			method("ping", nil), method("server/discover", nil), method("tools/list", nil), method("no/such", nil), method("resources/templates/list", nil),
			method("tools/list", map[string]any{"contextBudgetTokens": 5}), method("resources/read", map[string]any{"uri": "todo:nonsense"}),
			method("subscriptions/listen", map[string]any{"notifications": map[string]any{}}), method("subscriptions/listen", nil),
			{"initialize", func(c client) reply { return c.as("2025-11-25").rpc("initialize", hello) }},
			{"a notification", func(c client) reply {
				return c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, c.as("2025-11-25").headers("", nil))
			}},
			tool("no_such_tool", `{}`), tool("whoami", `{"x":1}`), tool("whoami", `{}`),
			{"no JSON", func(c client) reply { return c.post("{", c.headers("ping", nil)) }},
			{"headers that disagree", func(c client) reply {
				body, _ := json.Marshal(c.message("ping", nil))
				return c.post(string(body), c.headers("tools/list", nil))
			}},
			{"another type", func(c client) reply {
				h := c.headers("ping", nil)
				h["Content-Type"] = "text/plain"
				return c.post("{}", h)
			}},
			{"too long", func(c client) reply { return c.post(strings.Repeat(" ", mcp.MaxBody+1), c.headers("ping", nil)) }},
		},
		"peer": {
			tool("create_for", `{"items":[{"title":1}]}`), tool("create_for", `{"queue":"reviews"}`), tool("claim_next", `{}`),
		},
		"home": {
			tool("discover", `{}`), tool("friends", `{}`), tool("friend_request", `{"action":"list"}`), tool("friend_request", `{"action":"card","persona":"reviewer"}`),
			tool("friend_request", `{"action":"cancel","request_id":"`+aTodo.String()+`"}`), tool("complete", `{"items":[{}]}`), tool("create_for", `{}`),
		},
	}
	for kind, more := range of {
		if kind == "both" {
			continue
		}
		for _, r := range append(of["both"], more...) {
			c := i.worker()
			end := func() {
				_, err := i.first.endpoints.RevokeHome(t.Context(), i.persona.Owner, c.id(t))
				require.NoError(t, err)
			}
			if kind == "peer" {
				id, friend := i.friend(wide())
				c, end = friend, func() { i.change(id, endpoint.Change{State: &revoked}) }
			}
			c.url = second.address + c.url[strings.Index(c.url, "/mcp/"):]
			before := r.send(c)
			require.NotEqual(t, http.StatusUnauthorized, before.status, "%s %s: %s", kind, r.name, before.text)
			end()
			after := r.send(c)
			require.Equal(t, []any{http.StatusUnauthorized, unauthorized}, []any{after.status, after.text}, "%s %s", kind, r.name)
		}
	}
}

// TestATokenThatHoldsLess_AnotherReplica: insufficient_scope is said only to
// whoever still has the endpoint.
func TestATokenThatHoldsLess_AnotherReplica(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	second, _ := i.replica()
	id, _ := i.friend(wide())
	c := i.at(second, id, i.token(id, "todo_status:reviews"))
	const work = `{"queue":"reviews","title":"T","idempotency_key":"k"}`
	require.Equal(t, http.StatusForbidden, c.tool("create_for", work).status)
	narrow := wide()
	narrow.Verbs = []scope.Verb{scope.TodoStatus}
	i.change(id, endpoint.Change{Scope: &narrow})
	r := c.tool("create_for", work)
	require.NotNil(t, r.Error, r.text)
	require.Equal(t, -32602, r.Error.Code, "the endpoint has no such tool any more")
	paused := endpoint.Paused
	i.change(id, endpoint.Change{State: &paused})
	c.tool("cancel_todo", `{"todo_id":"`+aTodo.String()+`"}`).refusedToken(t)
}
