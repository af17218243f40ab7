package mcp

import (
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mark3labs/mcp-go/mcp"

	"switchboard/internal/endpoint"
	"switchboard/internal/scope"
)

// tool is one tool: what clients are told and what a call does.
type tool struct {
	name        string
	description string
	hints       hints
	input       string     // JSON Schema of the arguments, required ones first
	output      string     // JSON Schema of structuredContent, of refusals too
	verb        scope.Verb // the verb that grants it to friends; "" when none does

	decode func(jsontext.Value, requestMeta) (any, error)
	run    func(*call) (any, error)
}

// hints are the four of every tool, always all given.
type hints struct{ readOnly, destructive, idempotent, openWorld bool }

// with ties a tool to the type of its arguments. read checks them and run may
// be called more than once with them.
func with[A any](t tool, read func(jsontext.Value, requestMeta) (A, error), run func(*call, A) (any, error)) *tool {
	t.decode = func(v jsontext.Value, m requestMeta) (any, error) { return read(v, m) }
	t.run = func(c *call) (any, error) { return run(c, c.args.(A)) }
	return &t
}

// describe is the tool as mcp-go lists it.
func (t *tool) describe() mcp.Tool {
	return mcp.Tool{
		Name: t.name, Description: t.description,
		RawInputSchema: json.RawMessage(t.input), RawOutputSchema: json.RawMessage(t.output),
		Annotations: mcp.ToolAnnotation{
			ReadOnlyHint: &t.hints.readOnly, DestructiveHint: &t.hints.destructive,
			IdempotentHint: &t.hints.idempotent, OpenWorldHint: &t.hints.openWorld,
		},
	}
}

// The tools in the order in which they are always listed.
var (
	peerTools = []*tool{createForTool, todoStatusTool, listCreatedTool, answerTool, cancelTodoTool, whoamiTool}
	homeTools = []*tool{
		listTodosTool, getTodoTool, claimTool, claimNextTool, heartbeatTool, completeTool, failTool, releaseTool, askTool, createTool,
		discoverTool, friendRequestTool, friendsTool, whoamiTool,
	}

	peerTool = byName(peerTools)
	homeTool = byName(homeTools)
)

func byName(tools []*tool) map[string]*tool {
	m := make(map[string]*tool, len(tools))
	for _, t := range tools {
		m[t.name] = t
	}
	return m
}

// toolOf returns the caller's tool of that name, nil when its endpoint has none.
// A token that holds less than its endpoint is told so later.
func toolOf(c *endpoint.Caller, name string) *tool {
	if !c.Endpoint.HasTool(name) {
		return nil
	}
	if c.Endpoint.Kind == endpoint.Peer {
		return peerTool[name]
	}
	return homeTool[name]
}

// toolsOf are the tools that the caller's token allows, in fixed order.
func toolsOf(c endpoint.Caller) []*tool {
	all := homeTools
	if c.Endpoint.Kind == endpoint.Peer {
		all = peerTools
	}
	var tools []*tool
	for _, t := range all {
		if c.HasTool(t.name) {
			tools = append(tools, t)
		}
	}
	return tools
}

// narrowToken refuses a call that the endpoint allows and the token does not.
//
//go:noinline
func (c *call) narrowToken() error {
	if c.caller.TokenScope == nil || c.caller.Endpoint.Kind != endpoint.Peer || c.tool.verb == "" {
		return nil
	}
	var want []string
	need := func(queue string) {
		if c.caller.Endpoint.Scope.Allows(c.tool.verb, queue) && !c.caller.May(c.tool.verb, queue) {
			want = append(want, string(c.tool.verb)+":"+queue)
		}
	}
	if q, ok := c.args.(interface{ queues() []string }); ok {
		for _, queue := range q.queues() {
			need(queue)
		}
	}
	if !c.caller.HasTool(c.tool.name) {
		for _, queue := range c.caller.Endpoint.Scope.Queues {
			need(queue)
		}
	}
	if len(want) == 0 {
		return nil
	}
	slices.Sort(want)
	return narrowTokenError{want: slices.Compact(want)}
}
