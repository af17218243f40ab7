package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	gomcp "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"

	"switchboard/internal/todo"
)

// BenchmarkToolsCall compares one tools/call on the own path, through mcp-go
// as it is, and as plain JSON on net/http, all with a domain that does nothing
// (adr/0011-mcp-fast-path.md).
func BenchmarkToolsCall(b *testing.B) {
	args := `{"queue":"reviews","title":"Review 7","idempotency_key":"pr-7","payload":{"pr":7}}`
	own := setup(b)
	params := map[string]any{"name": "create_for", "arguments": json.RawMessage(args)}
	body, err := json.Marshal(own.peer.message("tools/call", params))
	require.NoError(b, err)
	headers := own.peer.headers("tools/call", params)

	s := server.NewMCPServer("switchboard", "test", server.WithToolCapabilities(false))
	s.AddTool(gomcp.NewTool("create_for", gomcp.WithString("queue"), gomcp.WithString("title"), gomcp.WithString("idempotency_key"), gomcp.WithObject("payload")),
		func(_ context.Context, r gomcp.CallToolRequest) (*gomcp.CallToolResult, error) {
			var a struct {
				Queue, Title, IdempotencyKey string
				Payload                      json.RawMessage
			}
			if err := r.BindArguments(&a); err != nil {
				return nil, err
			}
			return gomcp.NewToolResultStructuredOnly(todo.Created{TodoID: aTodo, State: todo.Ready, Version: 1}), nil
		})
	theirs := httptest.NewServer(server.NewStreamableHTTPServer(s, server.WithStateLess(true)))
	defer theirs.Close()

	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		in, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(in, &v)
		out, _ := json.Marshal(todo.Created{TodoID: aTodo, State: todo.Ready, Version: 1})
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out)
	}))
	defer plain.Close()

	for _, c := range []struct{ name, url string }{{"own", own.peer.url}, {"mcp-go", theirs.URL}, {"plain", plain.URL}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				for k, v := range headers {
					req.Header.Set(k, v)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				out, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if !bytes.Contains(out, []byte(aTodo.String())) {
					b.Fatal(string(out))
				}
			}
		})
	}
}
