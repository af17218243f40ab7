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
	client  *http.Client
	request *http.Request // what all requests have in common
	err     error         // of the target's URL
	buf     bytes.Buffer
}

// newHTTPClient keeps a connection for each of so many callers.
func newHTTPClient(callers int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConns: callers, MaxIdleConnsPerHost: callers, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
}

func newStandard(client *http.Client, t target) *standard {
	r, err := http.NewRequest(http.MethodPost, "http://"+t.Addr+t.Path, nil) //nolint:noctx // each call has its own
	if err != nil {
		return &standard{err: err}
	}
	r.Host = t.Host
	r.Header = http.Header{
		"Authorization":        {"Bearer " + t.Credential},
		"Content-Type":         {"application/json"},
		"Accept":               {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {mcpVersion},
	}
	return &standard{client: client, request: r}
}

func (s *standard) close() {}

func (s *standard) call(ctx context.Context, body []byte) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	// A client that calls one URL all day parses it once.
	r := s.request.WithContext(ctx)
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength = int64(len(body))
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
