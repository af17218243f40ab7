package requester

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"switchboard/internal/quote"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// task is what A2A 1.0 answers about a friend request.
type task struct {
	ID     string `json:"id"`
	Status struct {
		State   string `json:"state"`
		Message *struct {
			Parts []part `json:"parts"`
		} `json:"message"`
	} `json:"status"`
	Artifacts []struct {
		ArtifactID string `json:"artifactId"`
		Parts      []part `json:"parts"`
	} `json:"artifacts"`
}

type part struct {
	Text string          `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

var stateOf = map[string]string{
	"TASK_STATE_SUBMITTED":     Pending,
	"TASK_STATE_AUTH_REQUIRED": SigningIn,
	"TASK_STATE_COMPLETED":     Approved,
	"TASK_STATE_REJECTED":      Declined,
	"TASK_STATE_CANCELED":      Withdrawn,
	"TASK_STATE_FAILED":        Expired,
}

// rpcError is JSON-RPC's error with the ErrorInfo that A2A puts into data.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    []struct {
		Reason string `json:"reason"`
		Domain string `json:"domain"`
	} `json:"data"`
}

// Refusal codes of A2A itself that a caller here may want to tell apart.
const (
	codeTaskNotFound  = -32001
	codeNotCancelable = -32002
)

// call does one A2A 1.0 method. A refusal comes back as *refusal.Error.
func (q *Requester) call(ctx context.Context, target, bearer, method string, params, out any) error {
	body, err := jsonBody(map[string]any{"jsonrpc": "2.0", "id": method, "method": method, "params": params})
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, body)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("A2A-Version", "1.0")
	req.Header.Set("A2A-Extensions", Extension)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	a, err := q.do(req, maxAnswer)
	if err != nil {
		return away(ctx, err)
	}
	var reply struct {
		Result json.RawMessage `json:"result"`
		Error  *rpcError       `json:"error"`
	}
	if err := json.Unmarshal(a.body, &reply); err != nil || reply.Error == nil && reply.Result == nil {
		return refusedWith(a, nil)
	}
	if reply.Error != nil {
		return refusedWith(a, reply.Error)
	}
	if err := json.Unmarshal(reply.Result, out); err != nil {
		return fmt.Errorf("%s: answer of an unknown form: %w", method, err)
	}
	return nil
}

// refusedWith makes the refusal that an answer stands for.
func refusedWith(a answer, e *rpcError) error {
	r := &refusal.Error{Code: codeOf(a.status, e), Message: fmt.Sprintf("HTTP %d", a.status)}
	if e != nil {
		r.Message = said(e.Message)
	}
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil {
		r.RetryAfter = time.Duration(seconds) * time.Second
	}
	return r
}

func codeOf(status int, e *rpcError) refusal.Code {
	if e != nil {
		for _, info := range e.Data {
			if code, ok := coded(info.Reason); ok && info.Domain == "switchboard" {
				return code
			}
		}
		switch e.Code {
		case codeTaskNotFound:
			return refusal.NotFound
		case codeNotCancelable:
			return refusal.Conflict
		case -32602:
			return refusal.InvalidArgument
		}
	}
	switch {
	case status == http.StatusUnauthorized:
		return refusal.Unauthenticated
	case status == http.StatusNotFound:
		return refusal.NotFound
	case status == http.StatusRequestEntityTooLarge:
		return refusal.PayloadTooLarge
	case status == http.StatusTooManyRequests:
		return refusal.RateLimited
	case status >= 500:
		return refusal.Unavailable
	}
	return refusal.InvalidArgument
}

// read takes over what the task says; a grant only when it stays on the
// instance that was asked.
func (r *Request) read(t task) error {
	state, ok := stateOf[t.Status.State]
	if !ok {
		return fmt.Errorf("the task is in a state that is unknown here: %.40q", t.Status.State)
	}
	if !identifier.MatchString(t.ID) {
		return errors.New("the task's id is none that can be kept")
	}
	r.ID, r.State = t.ID, state
	if state == Declined && t.Status.Message != nil {
		r.Note = ""
		for _, p := range t.Status.Message.Parts {
			r.Note += p.Text
		}
	}
	if state != Approved {
		return nil
	}
	for _, a := range t.Artifacts {
		if a.ArtifactID != "grant" || len(a.Parts) == 0 {
			continue
		}
		g := &Grant{}
		if err := json.Unmarshal(a.Parts[0].Data, g); err != nil {
			return fmt.Errorf("the grant cannot be read: %w", err)
		}
		if g.AuthorizationServer != r.Aud || !strings.HasPrefix(g.Endpoint, r.Aud+"/mcp/") {
			return fmt.Errorf("the grant leads away from %s, which was asked; it is not taken", r.Aud)
		}
		if err := g.check(); err != nil {
			return fmt.Errorf("the grant cannot be read: %w", err)
		}
		r.Grant = g
		return nil
	}
	return fmt.Errorf("the request is approved, but its task carries no grant")
}

// identifier is what the ids of tasks and grants may look like. They are kept,
// printed, and put into the configuration of other programs.
var identifier = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// word is what codes and verbs look like.
var word = regexp.MustCompile(`^[a-z_]{1,40}$`)

// coded is a code that the other side gave, where it is one.
func coded(text string) (refusal.Code, bool) {
	text = strings.ToLower(text)
	return refusal.Code(text), word.MatchString(text)
}

// check refuses a grant whose words could be taken for something else where
// they are printed.
func (g *Grant) check() error {
	if !identifier.MatchString(g.ID) {
		return errors.New("its id is none that can be kept")
	}
	if u, err := checkURL(g.Endpoint); err != nil || u.String() != g.Endpoint {
		return errors.New("its endpoint is no plain URL")
	}
	for _, q := range g.Scope.Queues {
		if !scope.QueueName(q) {
			return errors.New("it names a queue that cannot be one")
		}
	}
	for _, v := range g.Scope.Verbs {
		if !word.MatchString(string(v)) {
			return errors.New("it names a verb that cannot be one")
		}
	}
	return nil
}

// said makes what the other side says fit for a message of ours, which may end
// in a terminal or before a model.
func said(text string) string { return quote.Visible(text, 500) }
