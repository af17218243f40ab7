package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	own, theirs, plain := measured(b)
	body, headers := measuredCall(b, own)
	for _, c := range []struct{ name, url string }{{"own", own.url}, {"mcp-go", theirs}, {"plain", plain}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := callOnce(http.DefaultClient, c.url, body, headers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// measuredCall is the call that is made of each.
func measuredCall(t testing.TB, c client) (body []byte, headers map[string]string) {
	params := map[string]any{"name": "create_for", "arguments": json.RawMessage(`{"queue":"reviews","title":"Review 7","idempotency_key":"pr-7","payload":{"pr":7}}`)}
	body, err := json.Marshal(c.message("tools/call", params))
	require.NoError(t, err)
	return body, c.headers("tools/call", params)
}

func callOnce(from *http.Client, url string, body []byte, headers map[string]string) error {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	resp, err := from.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Contains(out, []byte(aTodo.String())) {
		err = errors.New(string(out))
	}
	return err
}

// measured are what is compared, each with a domain that does nothing: a client
// of our own path, mcp-go as it is, and plain JSON on net/http.
func measured(b testing.TB) (own client, mcpGo, plain string) {
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
	b.Cleanup(theirs.Close)

	none := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		in, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(in, &v)
		out, _ := json.Marshal(todo.Created{TodoID: aTodo, State: todo.Ready, Version: 1})
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out)
	}))
	b.Cleanup(none.Close)
	return setup(b).peer, theirs.URL, none.URL
}
