package requester

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"switchboard/internal/refusal"
)

const mcpVersion = "2026-07-28"

// ErrToolNotGranted answers a call of a tool that the grant does not hold (any more).
var ErrToolNotGranted = errors.New("the grant does not hold this tool")

// Endpoint is the vended MCP endpoint of an approved request, as its holder
// uses it: stateless, so that a restart or another replica behind the URL
// changes nothing. It may be used by many goroutines.
type Endpoint struct {
	q      *Requester
	url    string
	tokens *tokens
	ids    atomic.Int64
}

// Endpoint returns the endpoint of an approved request. What is pinned in its
// file decides where calls and tokens go, nothing that a server says later.
func (q *Requester) Endpoint(r *Request) (*Endpoint, error) {
	if r.Grant == nil {
		return nil, fmt.Errorf("request %s is %s; there is no endpoint yet", r.ID, r.State)
	}
	if !strings.HasPrefix(r.Grant.Endpoint, r.Aud+"/mcp/") || r.Grant.AuthorizationServer != r.Aud {
		return nil, fmt.Errorf("the grant kept for %s leads to another place than its instance", r.A2A)
	}
	if _, err := checkURL(r.Grant.Endpoint); err != nil {
		return nil, err
	}
	key, err := r.key()
	if err != nil {
		return nil, err
	}
	return &Endpoint{
		q: q, url: r.Grant.Endpoint,
		tokens: &tokens{q: q, key: key, server: r.Grant.AuthorizationServer, resource: r.Grant.Endpoint},
	}, nil
}

// URL returns the endpoint's URL, which is also the resource of its tokens.
func (e *Endpoint) URL() string { return e.url }

// Token returns an access token for the endpoint, for clients of other hands.
// It is a secret for a quarter of an hour: never print it.
func (e *Endpoint) Token(ctx context.Context) (string, error) {
	access, _, err := e.tokens.get(ctx, "")
	return access, err
}

// Bind has the endpoint ask for tokens that are bound to its key from now on,
// so that one which leaks is worth nothing. An instance that does not know
// DPoP answers with bearer tokens, which are then used as such.
func (e *Endpoint) Bind() { e.tokens.bind = true }

// Result is the answer of a tool.
type Result struct {
	Structured json.RawMessage // structuredContent, nil when there is none
	Text       string          // its text contents, joined
	IsError    bool
}

// Refusal returns the domain error in a result with IsError, nil for any other.
func (r *Result) Refusal() *refusal.Error {
	if !r.IsError {
		return nil
	}
	var s struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Retry   int64  `json:"retry_after_seconds"`
		} `json:"error"`
	}
	if json.Unmarshal(r.Structured, &s) != nil {
		return refusal.New(refusal.Internal, "%s", said(r.Text))
	}
	code, ok := coded(s.Error.Code)
	if !ok {
		return refusal.New(refusal.Internal, "%s", said(r.Text))
	}
	return refusal.New(code, "%s", said(s.Error.Message)).After(time.Duration(s.Error.Retry) * time.Second)
}

// Call calls a tool. A refusal by the domain is a Result with IsError; one of
// the endpoint is an error: ErrToolNotGranted, or a *refusal.Error that is
// Forbidden when the grant is over or paused and Unavailable when the
// endpoint is away.
func (e *Endpoint) Call(ctx context.Context, tool string, arguments any) (*Result, error) {
	if arguments == nil {
		arguments = struct{}{}
	}
	var got struct {
		Content           []struct{ Type, Text string } `json:"content"`
		StructuredContent json.RawMessage               `json:"structuredContent"`
		IsError           bool                          `json:"isError"`
	}
	if err := e.rpc(ctx, "tools/call", tool, map[string]any{"name": tool, "arguments": arguments}, &got); err != nil {
		return nil, err
	}
	r := &Result{Structured: got.StructuredContent, IsError: got.IsError}
	var texts []string
	for _, c := range got.Content {
		if c.Type == "text" {
			texts = append(texts, c.Text)
		}
	}
	r.Text = strings.Join(texts, "\n")
	return r, nil
}

// Tools returns the names of the tools that the endpoint lists, in its order.
func (e *Endpoint) Tools(ctx context.Context) ([]string, error) {
	var got struct{ Tools []struct{ Name string } }
	if err := e.rpc(ctx, "tools/list", "", map[string]any{}, &got); err != nil {
		return nil, err
	}
	var names []string
	for _, t := range got.Tools {
		names = append(names, t.Name)
	}
	return names, nil
}

// rpc does one call, with a fresh token when the kept one is refused.
func (e *Endpoint) rpc(ctx context.Context, method, name string, params map[string]any, out any) error {
	id := e.ids.Add(1)
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion":    mcpVersion,
		"io.modelcontextprotocol/clientInfo":         map[string]string{"name": "switchboard", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": struct{}{},
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	a, token, err := e.post(ctx, method, name, "", body)
	if err == nil && a.status == http.StatusUnauthorized {
		a, _, err = e.post(ctx, method, name, token, body)
	}
	if err != nil {
		return away(ctx, err)
	}
	if a.status == http.StatusUnauthorized {
		return refusal.New(refusal.Forbidden, "%s refuses a fresh token: the grant is over or paused", e.url)
	}
	reply, err := readReply(a, id)
	if err != nil {
		return err
	}
	if reply.Error != nil {
		if reply.Error.Code == -32602 && method == "tools/call" {
			return ErrToolNotGranted
		}
		return refusal.New(refusal.InvalidArgument, "%s: %s (%d)", method, said(reply.Error.Message), reply.Error.Code)
	}
	if err := json.Unmarshal(reply.Result, out); err != nil {
		return fmt.Errorf("%s: answer of an unknown form: %w", method, err)
	}
	return nil
}

// post sends with another token than stale and returns the one it used.
func (e *Endpoint) post(ctx context.Context, method, name, stale string, body []byte) (answer, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, "", fmt.Errorf("%s: %w", method, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", mcpVersion)
	req.Header.Set("Mcp-Method", method)
	if name != "" {
		req.Header.Set("Mcp-Name", name)
	}
	token, err := e.tokens.authorize(ctx, req, stale)
	if err != nil {
		return answer{}, "", err
	}
	a, err := e.q.do(req, maxAnswer)
	return a, token, err
}

type rpcReply struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// readReply finds the reply to id in a JSON answer or an event stream.
func readReply(a answer, id int64) (rpcReply, error) {
	mediaType, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	texts := [][]byte{a.body}
	if mediaType == "text/event-stream" {
		texts = events(a.body)
	}
	for _, text := range texts {
		var reply rpcReply
		if json.Unmarshal(text, &reply) != nil || reply.Error == nil && reply.Result == nil {
			continue
		}
		if string(reply.ID) == fmt.Sprint(id) || reply.Error != nil && (reply.ID == nil || string(reply.ID) == "null") {
			return reply, nil
		}
	}
	code := refusal.InvalidArgument
	switch {
	case a.status == http.StatusTooManyRequests:
		code = refusal.RateLimited
	case a.status == http.StatusRequestEntityTooLarge:
		code = refusal.PayloadTooLarge
	case a.status == http.StatusForbidden:
		code = refusal.Forbidden
	case a.status >= 500 || a.status < 300: // an answer that is no MCP is somebody else's, a proxy's say
		code = refusal.Unavailable
	}
	return rpcReply{}, refusal.New(code, "the endpoint answers HTTP %d", a.status)
}

// events returns the data of each server-sent event.
func events(body []byte) (all [][]byte) {
	var data []byte
	lines := bufio.NewScanner(bytes.NewReader(append(body, "\n\n"...)))
	lines.Buffer(nil, maxAnswer+2)
	for lines.Scan() {
		if text, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(text, []byte(" "))...), '\n')
		} else if len(lines.Bytes()) == 0 && data != nil {
			all, data = append(all, data), nil
		}
	}
	return all
}
