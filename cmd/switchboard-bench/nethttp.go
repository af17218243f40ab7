package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// standard is a connection through net/http.
type standard struct {
	client *http.Client
	url    string
	target target
	buf    bytes.Buffer
}

// newHTTPClient keeps a connection for each of so many callers.
func newHTTPClient(callers int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConns: callers, MaxIdleConnsPerHost: callers, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
}

func newStandard(client *http.Client, t target) *standard {
	return &standard{client: client, url: "http://" + t.Addr + t.Path, target: t}
}

func (s *standard) close() {}

func (s *standard) call(ctx context.Context, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Host = s.target.Host
	r.Header = http.Header{
		"Authorization":        {"Bearer " + s.target.Credential},
		"Content-Type":         {"application/json"},
		"Accept":               {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {mcpVersion},
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	s.buf.Reset()
	if _, err := io.Copy(&s.buf, resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s: %.300s", errStatus, resp.Status, s.buf.Bytes())
	}
	return s.buf.Bytes(), nil
}
