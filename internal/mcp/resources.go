package mcp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// A todo is a resource of the modern era, so that subscriptions/listen can name
// it: todo:<todo_id>. Reading it gives what todo_status (a friend) or get_todo
// (a worker) would, by the same right.

const resourcePrefix = "todo:"

func resourceURI(id uuid.UUID) string { return resourcePrefix + id.String() }

func resourceID(uri string) (uuid.UUID, bool) {
	s, ok := strings.CutPrefix(uri, resourcePrefix)
	if !ok {
		return uuid.UUID{}, false
	}
	return parseID(s)
}

// readsTodos reports whether the caller may read todos as resources.
func readsTodos(c endpoint.Caller) bool {
	if c.Endpoint.Kind == endpoint.Peer {
		return c.HasTool(string(scope.TodoStatus))
	}
	return c.HasTool(getTodoTool.name)
}

// addResources makes s list what kind of resources there are. They are read
// here and not through mcp-go, which answers every error of a handler as a fault
// of the server.
func addResources(s *server.MCPServer) {
	s.AddResourceTemplate(mcp.NewResourceTemplate(resourcePrefix+"{todo_id}", "todo",
		mcp.WithTemplateDescription("A todo of this endpoint."), mcp.WithTemplateMIMEType(resourceType)),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return nil, server.ErrResourceNotFound
		})
}

const resourceType = "application/json"

// readResource serves resources/read. Unknown, foreign and malformed URIs are
// one answer.
func (x *exchange) readResource(e envelope) {
	c := *x.caller
	var v any
	err := error(refusal.New(refusal.NotFound, "no such todo"))
	if id, ok := resourceID(uriOf(e)); ok {
		v, _, err = x.h.readTodo(x.ctx, &c, id)
	}
	var text []byte
	if err == nil {
		text, err = jsonv2.Marshal(v, marshaling)
	}
	switch refusal.CodeOf(err) {
	case "":
		x.reply(map[string]any{
			"contents":   []mcp.TextResourceContents{{URI: uriOf(e), MIMEType: resourceType, Text: string(visibleJSON(text))}},
			"ttlMs":      0,
			"cacheScope": mcp.CacheScopePrivate,
		})
	case refusal.NotFound:
		x.refuse(&rpcError{status: http.StatusBadRequest, code: codeInvalidParams, message: "Resource not found", data: map[string]string{"uri": bounded(uriOf(e))}})
	case refusal.Unauthenticated:
		x.h.refuseToken(x.w, x.segment)
	default:
		x.h.Log.ErrorContext(x.ctx, "mcp: resources/read", "endpoint", c.Endpoint.ID, "error", err)
		x.refuse(&rpcError{status: http.StatusOK, code: codeInternal, message: "something went wrong on our side"})
	}
}

// uriOf is params.uri, "" when there is none or its params could be read in two
// ways: whoever routed the request by its headers must have seen the same.
func uriOf(e envelope) string {
	var p struct {
		URI  string         `json:"uri"`
		Meta jsontext.Value `json:"_meta"`
	}
	if jsonv2.Unmarshal(e.params, &p, jsonv2.RejectUnknownMembers(true)) != nil {
		return ""
	}
	return p.URI
}

// readTodo reads a todo as what the caller is, and its version. A caller that
// is no longer what it was is replaced.
func (h *handler) readTodo(ctx context.Context, c *endpoint.Caller, id uuid.UUID) (v any, version int64, err error) {
	for range maxRefresh {
		switch {
		case !readsTodos(*c):
			return nil, 0, refusal.New(refusal.NotFound, "no such todo")
		case c.Endpoint.Kind == endpoint.Peer:
			s, e := h.Todos.Status(ctx, *c, id, 0, nil)
			showStatus(&s)
			v, version, err = s, s.Version, e
		default:
			d, e := h.Todos.GetForWorker(ctx, *c, id)
			v, version, err = shownWhole(d), d.Version, e
		}
		if !errors.Is(err, endpoint.ErrStale) {
			return v, version, err
		}
		if *c, err = h.Endpoints.Refresh(ctx, *c); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, refusal.New(refusal.Unavailable, "the endpoint keeps changing; try again")
}
