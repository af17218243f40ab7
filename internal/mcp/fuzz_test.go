package mcp_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"switchboard/internal/mcp"
	"switchboard/internal/todo"
)

// FuzzMessage: whatever bytes come, the answer is well formed, a call that
// reaches the domain holds nothing that PostgreSQL cannot keep, and the status
// is one that a client knows what to do with.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_for","arguments":{"queue":"reviews","title":"T","idempotency_key":"k","payload":{"a":[1e3,"\\u0000"]}}}}`,
		`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"todo_status","arguments":{"todo_id":"01890a5d-ac96-774b-bcce-b302099a8057"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_for","arguments":{"items":[{"queue":"reviews"},{},[]]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`,
		`[]`, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"todo:1"}}`, "\xff", `{"id":1e400}`,
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	b := setup(f)
	handler := b.server.Handler
	f.Fuzz(func(t *testing.T, body string, newest bool) {
		r := httptest.NewRequest(http.MethodPost, b.peer.url, strings.NewReader(body))
		c := b.peer
		if !newest {
			c = c.as("2025-11-25")
		}
		var m struct {
			Method string
			Params struct{ Name, URI string }
		}
		_ = json.Unmarshal([]byte(body), &m)
		if newest && m.Method == "subscriptions/listen" {
			return // a stream, which a recorder cannot end
		}
		for k, v := range c.headers(m.Method, map[string]any{"name": m.Params.Name + m.Params.URI}) {
			if strings.ContainsFunc(v, unicode.IsControl) {
				return // no such header
			}
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusNotFound:
			require.True(t, json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json", "%q", w.Body)
		case http.StatusAccepted:
			require.Empty(t, w.Body.String())
		default:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		require.Empty(t, w.Header().Get("Mcp-Session-Id"))
		items, _ := b.todos.last().([]todo.New)
		for _, n := range items {
			require.NotContains(t, n.Title+n.Body+n.IdempotencyKey, "\x00")
			require.True(t, n.Payload == nil || json.Valid(n.Payload))
			require.NotEmpty(t, n.Queue)
			require.False(t, n.Priority != nil && (*n.Priority < 1 || *n.Priority > 9))
		}
	})
}

// FuzzVisibleJSON: the spelling changes, the value does not, and nothing that
// hides or reorders text is left.
func FuzzVisibleJSON(f *testing.F) {
	for _, s := range []string{"plain", "a\u202eb", "\u200b\u2066", "tag\U000E0041", "👩‍👩‍👧", "\u0085\u2028", "\u65e5\u672c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := json.Marshal(map[string]string{"v": s})
		require.NoError(t, err)
		seen := mcp.VisibleJSON(text)
		var was, is map[string]string
		require.NoError(t, json.Unmarshal(text, &was))
		require.NoError(t, json.Unmarshal(seen, &is))
		require.Equal(t, was, is)
		for _, shown := range []string{string(seen), mcp.Prose(was["v"])} {
			for _, r := range shown {
				if r != '\n' && r != '\t' && r != '\r' {
					require.False(t, unicode.In(r, unicode.Cf, unicode.Cc, unicode.Zl, unicode.Zp), "%U", r)
				}
			}
		}
		require.False(t, bytes.Contains(seen, []byte("\u202e")))
	})
}
