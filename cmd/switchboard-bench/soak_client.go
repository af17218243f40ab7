package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"switchboard/internal/provenance"
)

// soakClient calls an endpoint through whichever replica answers.
type soakClient struct {
	http    *http.Client
	targets []target // the same endpoint at each replica
	tokens  *tokenSource
	at      int
}

func newSoakClient(targets []target, tokens *tokenSource) *soakClient {
	return &soakClient{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}, targets: targets, tokens: tokens, at: rand.IntN(len(targets))}
}

// reply is an answer as far as a history needs it.
type reply struct {
	outcome string
	content json.RawMessage
}

// into decodes the content; an answer that cannot be read says nothing.
func (r *reply) into(v any) {
	if r.outcome != outcomeOK {
		return
	}
	if err := json.Unmarshal(r.content, v); err != nil {
		r.outcome = "unreadable: " + err.Error()
	}
}

// call makes one tools/call. It waits a little after a failure of the connection,
// and turns to another replica.
func (s *soakClient) call(ctx context.Context, tool string, arguments any, wait time.Duration) reply {
	r := s.once(ctx, tool, arguments, wait)
	if r.outcome == outcomeUnknown {
		s.at = (s.at + 1) % len(s.targets)
		pause(ctx, time.Duration(20+rand.IntN(100))*time.Millisecond)
	} else if rand.IntN(20) == 0 {
		s.at = rand.IntN(len(s.targets))
	}
	return r
}

func (s *soakClient) once(ctx context.Context, tool string, arguments any, wait time.Duration) reply {
	unknown := reply{outcome: outcomeUnknown}
	t := s.targets[s.at]
	credential := t.Credential
	if s.tokens != nil {
		var err error
		if credential, err = s.tokens.get(ctx, t); err != nil {
			return unknown
		}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	if err != nil {
		return reply{outcome: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, wait+20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.Addr+t.Path, bytes.NewReader(body))
	if err != nil {
		return reply{outcome: err.Error()}
	}
	req.Host = t.Host
	req.Header = http.Header{
		"Authorization": {"Bearer " + credential}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {mcpVersion},
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return unknown
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		return unknown
	}
	if resp.StatusCode != http.StatusOK {
		return reply{outcome: fmt.Sprintf("HTTP %d", resp.StatusCode)}
	}
	return readReply(answer)
}

func readReply(answer []byte) reply {
	var a struct {
		Result *struct {
			IsError           bool            `json:"isError"`
			StructuredContent json.RawMessage `json:"structuredContent"`
		} `json:"result"`
		Error *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return reply{outcome: "unreadable: " + err.Error()}
	}
	switch {
	case a.Error != nil:
		return reply{outcome: fmt.Sprintf("JSON-RPC %d %s", a.Error.Code, a.Error.Message)}
	case a.Result == nil:
		return reply{outcome: "neither result nor error"}
	case a.Result.IsError:
		var e struct {
			Error refused `json:"error"`
		}
		if err := json.Unmarshal(a.Result.StructuredContent, &e); err != nil {
			return reply{outcome: "unreadable: " + err.Error()}
		}
		return reply{outcome: e.Error.outcome()}
	}
	return reply{outcome: outcomeOK, content: a.Result.StructuredContent}
}

// refused is the error of a call or an item.
type refused struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// outcome: what is unavailable may have been done all the same.
func (r refused) outcome() string {
	if r.Code == "unavailable" {
		return outcomeUnknown
	}
	return r.Code
}

// tokenSource fetches access tokens of a peer endpoint by the agent's key, as a
// friend's agent does, and keeps one for a third of its life.
type tokenSource struct {
	key      *provenance.Key
	instance string // its name, which is its authorization server

	mu     sync.Mutex
	access string
	until  time.Time
}

func (s *tokenSource) get(ctx context.Context, t target) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return s.access, nil
	}
	assertion, err := provenance.ClientAssertion(s.key, s.instance, time.Now())
	if err != nil {
		return "", err
	}
	form := url.Values{
		"grant_type": {"client_credentials"}, "resource": {s.instance + t.Path}, "client_assertion": {assertion},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.Addr+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Host = t.Host
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var a struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	if a.AccessToken == "" {
		return "", fmt.Errorf("token: %s: %s", resp.Status, a.Error)
	}
	s.access, s.until = a.AccessToken, time.Now().Add(time.Duration(a.ExpiresIn)*time.Second/3)
	return s.access, nil
}
