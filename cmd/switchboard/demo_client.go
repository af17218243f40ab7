package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
)

// person drives an instance's REST interface with a browser's session.
type person struct {
	base string
	http *http.Client
}

// signIn signs somebody in at an instance through the development issuer.
func signIn(ctx context.Context, base, name string) (*person, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	p := &person{base: base, http: &http.Client{Jar: jar}}
	if _, err := p.do(ctx, http.MethodGet, "/login?prompt=none&login_hint="+url.QueryEscape(name), nil, nil); err != nil {
		return nil, fmt.Errorf("sign in %s: %w", name, err)
	}
	return p, p.call(ctx, http.MethodGet, "/v1/me", nil, nil)
}

type answered struct {
	status int
	body   []byte
	header http.Header
}

func (p *person) do(ctx context.Context, method, path string, body any, header http.Header) (answered, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return answered{}, err
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, p.base+path, content)
	if err != nil {
		return answered{}, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := p.http.Do(r)
	if err != nil {
		return answered{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return answered{resp.StatusCode, b, resp.Header}, err
}

// call does a REST call that must succeed.
func (p *person) call(ctx context.Context, method, path string, body, into any) error {
	a, err := p.do(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	if a.status >= 300 {
		return fmt.Errorf("%s %s: HTTP %d %s", method, path, a.status, bytes.TrimSpace(a.body))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(a.body, into)
}

// worker calls a home endpoint's tools with its static credential.
type worker struct{ url, credential string }

type toolAnswer struct {
	Result struct {
		StructuredContent json.RawMessage `json:"structuredContent"`
		IsError           bool            `json:"isError"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// call does a tool call; code is the domain's error code, "" for success.
func (w worker) call(ctx context.Context, tool string, arguments, into any) (code string, err error) {
	p := &person{base: w.url, http: http.DefaultClient}
	a, err := p.do(ctx, http.MethodPost, "", map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments},
	}, http.Header{
		"Authorization": {"Bearer " + w.credential}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"},
	})
	if err != nil {
		return "", err
	}
	text := a.body
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		for line := range bytes.Lines(a.body) {
			if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				text = rest
			}
		}
	}
	var t toolAnswer
	if a.status != http.StatusOK || json.Unmarshal(text, &t) != nil {
		return "", fmt.Errorf("%s: HTTP %d %s", tool, a.status, bytes.TrimSpace(a.body))
	}
	if t.Error != nil {
		return "", fmt.Errorf("%s: %d %s", tool, t.Error.Code, t.Error.Message)
	}
	if t.Result.IsError {
		var e struct{ Error struct{ Code string } }
		if err := json.Unmarshal(t.Result.StructuredContent, &e); err != nil {
			return "", fmt.Errorf("%s: %s", tool, t.Result.StructuredContent)
		}
		return e.Error.Code, nil
	}
	if into == nil {
		return "", nil
	}
	return "", json.Unmarshal(t.Result.StructuredContent, into)
}
