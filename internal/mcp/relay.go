package mcp

import (
	"context"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"switchboard/internal/endpoint"
)

// listTTL is how long a client may keep a list of tools, in milliseconds. It
// is only a hint: a narrowed scope refuses at once whatever a client kept.
const listTTL = 60_000

// relay hands everything but tools/call, resources/read and subscriptions/listen
// to mcp-go, which knows the eras, the handshake and what each method's result looks like.
// What is advertised depends on the era and the scope: live updates exist in
// the modern era alone, and todos are resources only to those who may read them.
type relay struct {
	h                        *handler
	legacy, modern, readable *server.StreamableHTTPServer
}

type callerKey struct{}

func newRelay(h *handler) *relay {
	l := &relay{h: h}
	l.legacy, _ = l.server(server.WithToolCapabilities(false))
	l.modern, _ = l.server(server.WithToolCapabilities(true))
	var s *server.MCPServer
	l.readable, s = l.server(server.WithToolCapabilities(true), server.WithResourceCapabilities(true, false))
	addResources(s)
	return l
}

func (l *relay) server(capabilities ...server.ServerOption) (*server.StreamableHTTPServer, *server.MCPServer) {
	hooks := &server.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, _ *mcp.InitializeRequest, result *mcp.InitializeResult) {
		c, _ := ctx.Value(callerKey{}).(endpoint.Caller)
		result.Instructions = instructionsOf(c)
		// mcp-go would agree on 2024-11-05, whose transport is another one.
		if result.ProtocolVersion < mcp.ProtocolVersion20250326 {
			result.ProtocolVersion = mcp.LATEST_LEGACY_PROTOCOL_VERSION
		}
	})
	hooks.AddAfterDiscover(func(ctx context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		c, _ := ctx.Value(callerKey{}).(endpoint.Caller)
		result.Instructions = instructionsOf(c)
	})
	s := server.NewMCPServer(serverName, l.h.Version, append(capabilities,
		server.WithHooks(hooks),
		server.WithToolFilter(listTools),
		server.WithCacheHints(listTTL, mcp.CacheScopePrivate),
	)...)
	return server.NewStreamableHTTPServer(s,
		server.WithStateLess(true),
		server.WithDisableStreaming(true),
		server.WithStreamableHTTPProtocolVersions(versions...),
	), s
}

// listTools is the caller's list in its fixed order; nothing is registered
// with mcp-go itself, which would sort by name.
func listTools(ctx context.Context, _ []mcp.Tool) []mcp.Tool {
	c, _ := ctx.Value(callerKey{}).(endpoint.Caller)
	out := []mcp.Tool{}
	for _, t := range toolsOf(c) {
		out = append(out, t.describe())
	}
	return out
}

// serve answers e, whose bytes are body, through mcp-go. The caller has been
// confirmed: what is listed is what the database knows now.
func (l *relay) serve(x *exchange, e envelope, body []byte) {
	if err := checkArguments(body); err != nil {
		x.refuse(&rpcError{status: http.StatusBadRequest, code: codeInvalidRequest, message: err.Error()})
		return
	}
	if e.method == "tools/list" && e.stray != "" && e.stray != "cursor" {
		x.refuse(&rpcError{status: http.StatusBadRequest, code: codeInvalidParams, message: "params have a member that this server cannot honour"})
		return
	}
	x.w.Header()["Cache-Control"] = noStore
	to := l.legacy
	switch {
	case x.modern && readsTodos(*x.caller):
		to = l.readable
	case x.modern:
		to = l.modern
	}
	to.Handle(plainWriter{x.w}, &server.HTTPRequest{
		Method: http.MethodPost, URL: x.r.URL, Header: withoutSession(x.r.Header), Body: body,
		Context: context.WithValue(x.ctx, callerKey{}, *x.caller),
	})
}

// withoutSession drops the session id that a client may still remember from
// somewhere: it means nothing here and must not be an error either.
func withoutSession(hd http.Header) http.Header {
	if _, ok := hd["Mcp-Session-Id"]; !ok {
		return hd
	}
	c := hd.Clone()
	c.Del("Mcp-Session-Id")
	return c
}

// plainWriter is a response that is written once, whole.
type plainWriter struct{ http.ResponseWriter }

func (plainWriter) Flush()          {}
func (plainWriter) CanStream() bool { return false }
