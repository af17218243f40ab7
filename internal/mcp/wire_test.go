package mcp_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/mcp"
	"switchboard/internal/scope"
)

func TestOnlyPOST_BeforeAuthentication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoints.broken = errors.New("nobody may be asked")
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut, http.MethodHead, http.MethodOptions} {
		r := b.peer.do(method, "", nil)
		require.Equal(t, http.StatusMethodNotAllowed, r.status, method)
		require.Equal(t, "POST", r.header.Get("Allow"))
		require.Empty(t, r.header.Get("WWW-Authenticate"))
	}
}

func TestForeignHostAndOrigin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	send := func(k, v string) int {
		h := b.peer.headers("tools/list", nil)
		h[k] = v
		body, err := json.Marshal(b.peer.message("tools/list", nil))
		require.NoError(t, err)
		return b.peer.post(string(body), h).status
	}
	require.Equal(t, http.StatusMisdirectedRequest, send("Host", "evil.example"))
	require.Equal(t, http.StatusMisdirectedRequest, send("Host", "127.0.0.1"), "another port is another host")
	require.Equal(t, http.StatusForbidden, send("Origin", "https://evil.example"))
	require.Equal(t, http.StatusForbidden, send("Origin", "null"))
	require.Equal(t, http.StatusForbidden, send("Origin", strings.Replace(b.url, "http:", "https:", 1)))
	require.Equal(t, http.StatusOK, send("Origin", b.url))
}

func TestWithoutAGoodToken_OneAnswerWhateverTheCause(t *testing.T) {
	t.Parallel()
	b := setup(t)
	states := map[string]endpoint.State{"paused": endpoint.Paused, "revoked": endpoint.Revoked, "expired": endpoint.Expired, "ended": endpoint.Ended}
	callers := []client{}
	for name, state := range states {
		c := b.vend(name, endpoint.Peer, nil)
		b.endpoints.change(name, func(c *endpoint.Caller) { c.Endpoint.State = state })
		callers = append(callers, c)
	}
	bound := b.vend("bound", endpoint.Peer, nil)
	b.endpoints.change("bound", func(c *endpoint.Caller) { c.ProofKey = "thumbprint" })
	with := func(c client, url, token string) client { c.url, c.token = url, token; return c }
	callers = append(callers, bound,
		with(b.peer, b.url+"/mcp/"+uuid.NewString(), "peer"),
		with(b.peer, b.url+"/mcp/nonsense", "peer"),
		with(b.peer, b.peer.url, ""), with(b.peer, b.peer.url, "unknown"), with(b.peer, b.peer.url, "home"))
	for _, c := range callers {
		for _, method := range []string{"tools/list", "tools/call", "nonsense"} {
			r := c.rpc(method, nil)
			r.refusedToken(t)
			require.Equal(t, `Bearer resource_metadata="`+strings.Replace(c.url, "/mcp/", "/.well-known/oauth-protected-resource/mcp/", 1)+`"`, r.header.Get("WWW-Authenticate"))
			r.header.Del("Date")
			r.header.Del("WWW-Authenticate")
			require.Equal(t, http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}, "Content-Length": {"25"}}, r.header)
		}
	}
	b.endpoints.broken = errors.New("no database")
	require.Equal(t, http.StatusServiceUnavailable, b.peer.rpc("tools/list", nil).status, "our fault is not the token's")
}

func TestABoundTokenNeedsItsProof(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.vend("bound", endpoint.Peer, nil)
	b.endpoints.change("bound", func(c *endpoint.Caller) { c.ProofKey = "thumbprint" })
	send := func(c client, authorization, proof string) int {
		h := c.headers("tools/list", nil)
		h["Authorization"], h["DPoP"] = authorization, proof
		body, err := json.Marshal(c.message("tools/list", nil))
		require.NoError(t, err)
		return c.post(string(body), h).status
	}
	require.Equal(t, http.StatusOK, send(c, "DPoP bound", "thumbprint for "+c.url))
	require.Equal(t, http.StatusUnauthorized, send(c, "DPoP bound", "another"))
	require.Equal(t, http.StatusUnauthorized, send(c, "Bearer bound", "thumbprint for "+c.url))
	require.Equal(t, http.StatusUnauthorized, send(b.peer, "DPoP peer", "thumbprint for "+b.peer.url), "a plain token is no bound one")
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.peer.headers("tools/call", map[string]any{"name": "whoami"})
	r := b.peer.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"`+strings.Repeat("x", mcp.MaxBody)+`"}}`, h)
	require.Equal(t, http.StatusRequestEntityTooLarge, r.status)
	h["Content-Type"] = "text/plain"
	require.Equal(t, http.StatusUnsupportedMediaType, b.peer.post(`{}`, h).status)
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, version := range append(legacy, modern) {
		c := b.peer.as(version)
		for body, code := range map[string]int{
			`nonsense`: -32700, ``: -32700, `{"jsonrpc":"2.0"`: -32700, `"text"`: -32700,
			`{"jsonrpc":"2.0","id":1,"method":"ping"} {}`: -32700,
			`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`:  -32600,
			`[]`: -32600,
			`{"jsonrpc":"1.0","id":1,"method":"ping"}`:                                                       -32600,
			`{"jsonrpc":"2.0","id":null,"method":"ping"}`:                                                    -32600,
			`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:                                                     -32600,
			`{"jsonrpc":"2.0","id":1}`:                                                                       -32600,
			`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`:                                 -32600,
			`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/list"}`:                                 -32600,
			`{"jsonrpc":"2.0","id":1,"result":{}}`:                                                           -32600,
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`:                                     -32602,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","name":"cancel_todo"}}`: -32602,
		} {
			r := c.post(body, c.headers("ping", nil))
			require.NotNil(t, r.Error, "%s %s: %s", version, body, r.text)
			require.Equal(t, code, r.Error.Code, "%s %s", version, body)
			if code != -32602 {
				require.Equal(t, http.StatusBadRequest, r.status, "%s %s", version, body)
			}
		}
	}
}

func TestEveryEraWorks_WithoutAHandshake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, version := range append(legacy, modern) {
		for _, c := range []client{b.peer.as(version), b.home.as(version)} {
			r := c.tool("whoami", `{}`)
			require.Equal(t, http.StatusOK, r.status, r.text)
			require.JSONEq(t, "7", string(r.ID))
			require.Equal(t, c.url, r.content(t)["endpoint"])
			require.Equal(t, version == modern, strings.Contains(r.text, `"resultType":"complete"`))
			require.Equal(t, version == modern, strings.Contains(r.text, `"io.modelcontextprotocol/serverInfo"`))

			list := c.rpc("tools/list", nil)
			require.Equal(t, http.StatusOK, list.status, list.text)
			require.Equal(t, version == modern, strings.Contains(string(list.Result), `"cacheScope":"private"`), list.text)
			require.Equal(t, version == modern, strings.Contains(string(list.Result), `"resultType":"complete"`))

			ping := c.rpc("ping", nil)
			unknown := c.rpc("no/such/method", nil)
			require.Equal(t, -32601, unknown.Error.Code)
			if version == modern {
				require.Equal(t, http.StatusNotFound, unknown.status)
				require.Equal(t, http.StatusNotFound, ping.status, "removed with the handshake")
			} else {
				require.Equal(t, http.StatusOK, unknown.status)
				require.JSONEq(t, `{}`, string(ping.Result))
			}
		}
	}
	none := b.peer.as("2025-03-26")
	h := none.headers("tools/list", nil)
	delete(h, "MCP-Protocol-Version")
	require.Equal(t, http.StatusOK, none.post(`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`, h).status, "the oldest era had no header")
}

func TestInitialize_AgreesOnAnEraAndMakesNoSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for asked, agreed := range map[string]string{"2025-11-25": "2025-11-25", "2025-06-18": "2025-06-18", "2025-03-26": "2025-03-26", "2024-11-05": "2025-11-25", "2099-01-01": "2025-11-25"} {
		c := b.peer.as(asked)
		r := c.rpc("initialize", map[string]any{"protocolVersion": asked, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
		require.Equal(t, http.StatusOK, r.status, r.text)
		var v struct {
			ProtocolVersion string
			Capabilities    map[string]any
			ServerInfo      struct{ Name string }
		}
		require.NoError(t, json.Unmarshal(r.Result, &v))
		require.Equal(t, agreed, v.ProtocolVersion)
		require.Equal(t, "switchboard", v.ServerInfo.Name)
		require.Contains(t, v.Capabilities, "tools")
		require.Len(t, v.Capabilities, 1, "only what works is advertised")
	}
	c := b.peer.as("2025-11-25")
	h := c.headers("notifications/initialized", nil)
	h["Mcp-Session-Id"] = "remembered from before a restart"
	r := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, h)
	require.Equal(t, http.StatusAccepted, r.status)
	require.Empty(t, r.text)
	require.Equal(t, http.StatusOK, c.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, h).status)
}

func TestDiscover_SaysWhatIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.peer.rpc("server/discover", nil)
	require.Equal(t, http.StatusOK, r.status, r.text)
	var v struct {
		ResultType        string
		SupportedVersions []string
		Capabilities      map[string]any
		CacheScope        string
		TTLMs             *int
	}
	require.NoError(t, json.Unmarshal(r.Result, &v))
	require.Equal(t, append([]string{modern}, legacy...), v.SupportedVersions)
	require.Equal(t, "complete", v.ResultType)
	require.NotEmpty(t, v.CacheScope)
	require.NotNil(t, v.TTLMs)
	require.Contains(t, v.Capabilities, "tools")
}

func TestInstructions_AreOfTheToolsThatTheCallerHas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	said := func(c client) string {
		t.Helper()
		var now, before struct{ Instructions string }
		require.NoError(t, json.Unmarshal(c.rpc("server/discover", nil).Result, &now))
		r := c.as("2025-11-25").rpc("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
		require.NoError(t, json.Unmarshal(r.Result, &before))
		require.Equal(t, now, before)
		require.Contains(t, now.Instructions, "was written by")
		require.Less(t, len(now.Instructions)/4, 400, "tokens")
		return now.Instructions
	}
	// A worker's life, in its order.
	last := 0
	for _, step := range []string{"claim_next", "heartbeat", "cancel_requested", "complete", "fail", "release", "ask", "lease_lost", "create", "from_friend"} {
		at := strings.Index(said(b.home)[last:], step)
		require.GreaterOrEqual(t, at, 0, step)
		last += at
	}
	b.endpoints.change("home", func(c *endpoint.Caller) { c.Endpoint.Tools = []string{"claim_next", "complete"} })
	require.Contains(t, said(b.home), "claim_next")
	require.NotContains(t, said(b.home), "heartbeat")
	require.Contains(t, said(b.peer), "since_version")
	require.NotContains(t, said(b.vend("drop", endpoint.Peer, []scope.Verb{scope.CreateFor})), "todo_status")
}

func TestHeadersAndBodyMustAgree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	params := map[string]any{"name": "whoami", "arguments": map[string]any{}}
	send := func(change func(h map[string]string, p map[string]any)) reply {
		m := b.peer.message("tools/call", params)
		h := b.peer.headers("tools/call", params)
		change(h, m["params"].(map[string]any))
		body, err := json.Marshal(m)
		require.NoError(t, err)
		return b.peer.post(string(body), h)
	}
	meta := func(p map[string]any) map[string]any { return p["_meta"].(map[string]any) }
	for name, c := range map[string]struct {
		code   int
		change func(h map[string]string, p map[string]any)
	}{
		"no method header":      {-32020, func(h map[string]string, _ map[string]any) { delete(h, "Mcp-Method") }},
		"other method header":   {-32020, func(h map[string]string, _ map[string]any) { h["Mcp-Method"] = "tools/list" }},
		"case of method header": {-32020, func(h map[string]string, _ map[string]any) { h["Mcp-Method"] = "Tools/Call" }},
		"no name header":        {-32020, func(h map[string]string, _ map[string]any) { delete(h, "Mcp-Name") }},
		"other name header":     {-32020, func(h map[string]string, _ map[string]any) { h["Mcp-Name"] = "cancel_todo" }},
		"broken name header":    {-32020, func(h map[string]string, _ map[string]any) { h["Mcp-Name"] = "=?base64?***?=" }},
		"no version header":     {-32020, func(h map[string]string, _ map[string]any) { delete(h, "MCP-Protocol-Version") }},
		"legacy version header": {-32020, func(h map[string]string, _ map[string]any) { h["MCP-Protocol-Version"] = "2025-11-25" }},
		"other version in body": {-32020, func(_ map[string]string, p map[string]any) {
			meta(p)["io.modelcontextprotocol/protocolVersion"] = "2025-11-25"
		}},
		"no version in body": {-32602, func(_ map[string]string, p map[string]any) {
			delete(meta(p), "io.modelcontextprotocol/protocolVersion")
		}},
		"no _meta": {-32602, func(_ map[string]string, p map[string]any) { delete(p, "_meta") }},
		"no capabilities": {-32602, func(_ map[string]string, p map[string]any) {
			delete(meta(p), "io.modelcontextprotocol/clientCapabilities")
		}},
		"capabilities no object": {-32602, func(_ map[string]string, p map[string]any) { meta(p)["io.modelcontextprotocol/clientCapabilities"] = 1 }},
		"unknown version": {-32022, func(h map[string]string, p map[string]any) {
			h["MCP-Protocol-Version"], meta(p)["io.modelcontextprotocol/protocolVersion"] = "2099-01-01", "2099-01-01"
		}},
	} {
		r := send(c.change)
		require.Equal(t, http.StatusBadRequest, r.status, name)
		require.NotNil(t, r.Error, name)
		require.Equal(t, c.code, r.Error.Code, name)
		require.JSONEq(t, "7", string(r.ID), name)
		if c.code == -32022 {
			require.JSONEq(t, `{"requested":"2099-01-01","supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]}`, string(r.Error.Data))
		}
	}
	encoded := send(func(h map[string]string, _ map[string]any) { h["Mcp-Name"] = "=?base64?d2hvYW1p?=" })
	require.Equal(t, http.StatusOK, encoded.status, encoded.text)
	anonymous := send(func(_ map[string]string, p map[string]any) { delete(meta(p), "io.modelcontextprotocol/clientInfo") })
	require.Equal(t, http.StatusOK, anonymous.status, "clients need not say who they are")
	old := b.peer.as("2024-11-05").rpc("tools/list", nil)
	require.Equal(t, http.StatusBadRequest, old.status, "that transport is another one")
}
