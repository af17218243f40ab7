package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/refusal"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
)

// demo is one run: its people, what they made, and where each line goes.
type demo struct {
	out          io.Writer
	bobs, alices *instance
	bob, alice   *person
	queue, slug  string
	agent        string
	workers      []worker
	q            *requester.Requester
	store        *requester.Store
	request      *requester.Request
	endpoint     *requester.Endpoint
	todo         string
}

func runDemo(ctx context.Context, dir string, out io.Writer) (err error) {
	d := &demo{out: out, queue: "reviews", slug: "reviewer", q: requester.New(20 * time.Second)}
	if d.store, err = requester.Open(filepath.Join(dir, "alice-keys")); err != nil {
		return err
	}
	d.sayf("starting two instances, each with its own PostgreSQL")
	if d.bobs, err = startInstance(ctx, dir, "bob", ""); err != nil {
		return err
	}
	defer d.bobs.stop()
	if d.alices, err = startInstance(ctx, dir, "alice", d.bobs.issuer); err != nil {
		return err
	}
	defer d.alices.stop()
	d.sayf("two instances, %s (bob) and %s (alice), trust one issuer, %s", d.bobs.url, d.alices.url, d.bobs.issuer)
	for _, step := range []func(context.Context) error{
		d.publish, d.discover, d.ask, d.beforeApproval, d.approve, d.tools, d.handOver, d.work, d.reverse, d.narrow, d.revoke,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) sayf(format string, args ...any) { fmt.Fprintf(d.out, "demo: "+format+"\n", args...) }

// publish: each signs in at home; bob publishes a persona and vends two home
// endpoints, alice publishes the card that her agent calls itself by.
func (d *demo) publish(ctx context.Context) (err error) {
	if d.bob, err = signIn(ctx, d.bobs.url, "bob"); err != nil {
		return err
	}
	if d.alice, err = signIn(ctx, d.alices.url, "alice"); err != nil {
		return err
	}
	var agent, persona struct{ ID string }
	if err := d.bob.call(ctx, http.MethodPost, "/v1/agents", map[string]any{"name": "reviewer", "description": "Reviews pull requests."}, &agent); err != nil {
		return err
	}
	d.agent = agent.ID
	if err := d.bob.call(ctx, http.MethodPost, "/v1/queues", map[string]any{"name": d.queue, "description": "Pull requests to review."}, nil); err != nil {
		return err
	}
	if err := d.bob.call(ctx, http.MethodPost, "/v1/personas", map[string]any{
		"agent_id": agent.ID, "slug": d.slug, "name": "Reviewer", "description": "Reviews pull requests that touch billing.", "prompt": "You review pull requests.",
		"queues": []string{d.queue}, "visibility": "listed",
		"offers": []any{map[string]any{"queue": d.queue, "verbs": scope.Verbs(), "limits": map[string]any{"max_open": 50, "per_hour": 120}}},
	}, &persona); err != nil {
		return err
	}
	for range 2 {
		var e struct{ URL, Credential string }
		if err := d.bob.call(ctx, http.MethodPost, "/v1/endpoints", map[string]any{
			"kind": "home", "agent_id": agent.ID, "persona_id": persona.ID, "queues": []string{d.queue},
		}, &e); err != nil {
			return err
		}
		d.workers = append(d.workers, worker{e.URL, e.Credential})
	}
	if err := d.alice.call(ctx, http.MethodPost, "/v1/agents", map[string]any{"name": "release-bot"}, &agent); err != nil {
		return err
	}
	if err := d.alice.call(ctx, http.MethodPost, "/v1/personas", map[string]any{"agent_id": agent.ID, "slug": "release-bot", "name": "Release bot", "visibility": "unlisted"}, nil); err != nil {
		return err
	}
	d.sayf("bob publishes the persona %s and vends two home endpoints for his workers", d.slug)
	return nil
}

func (d *demo) discover(ctx context.Context) error {
	links, err := d.q.Catalog(ctx, d.bobs.url)
	if err != nil {
		return err
	}
	if len(links) != 1 || !strings.Contains(links[0], d.slug) {
		return fmt.Errorf("the catalog lists %v", links)
	}
	d.sayf("alice's agent finds %s in the catalog", links[0])
	return nil
}

func (d *demo) ask(ctx context.Context) error {
	card, err := d.q.Find(ctx, d.bobs.url)
	if err != nil {
		return err
	}
	sixty := int64(60)
	ask, err := requester.Ask{
		Card: card, Name: "release-bot", FromCard: d.alices.url + "/a2a/release-bot/.well-known/agent-card.json",
		Reason: "Hand you pull requests that touch billing for review.",
		Scope: scope.Asked{
			Queues: []string{d.queue}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.ListCreated, scope.CancelTodo},
			Limits: scope.Partial{PerHour: &sixty},
		},
	}.Prepare()
	if err != nil {
		return err
	}
	if d.request, err = d.q.Send(ctx, d.store, ask, requester.SignIn{Headless: "alice"}); err != nil {
		return err
	}
	d.sayf("it asks for friendship over A2A, signed by alice's issuer: task %s is %s", d.request.ID, d.request.State)
	return nil
}

func (d *demo) beforeApproval(ctx context.Context) error {
	if _, err := d.q.Endpoint(d.request); err == nil {
		return errors.New("there is an endpoint before the approval")
	}
	var grants struct{ Items []json.RawMessage }
	if err := d.bob.call(ctx, http.MethodGet, "/v1/grants?direction=in", nil, &grants); err != nil {
		return err
	}
	if len(grants.Items) != 0 {
		return fmt.Errorf("the request granted something: %s", grants.Items)
	}
	// Her key may follow the request, and nothing else.
	for _, url := range []string{d.workers[0].url, d.bobs.url + "/mcp/" + uuid.NewString()} {
		r := *d.request
		r.Grant = &requester.Grant{Endpoint: url, AuthorizationServer: d.bobs.url}
		e, err := d.q.Endpoint(&r)
		if err != nil {
			return err
		}
		if _, err := e.Token(ctx); err == nil {
			return fmt.Errorf("alice's key got a token for %s", url)
		}
	}
	a, err := (&person{base: d.bobs.url, http: http.DefaultClient}).do(ctx, http.MethodPost, "/v1/friend-requests/"+d.request.ID+"/approve", map[string]any{},
		http.Header{"Authorization": {"Bearer " + d.workers[0].credential}})
	if err != nil {
		return err
	}
	if a.status != http.StatusUnauthorized {
		return fmt.Errorf("bob's agent approves: HTTP %d", a.status)
	}
	d.sayf("before the approval there is no token for any endpoint, and bob's own agent cannot approve")
	return nil
}

func (d *demo) approve(ctx context.Context) error {
	var inbox struct {
		Items []struct {
			FriendRequestID string `json:"friend_request_id"`
		}
	}
	if err := d.bob.call(ctx, http.MethodGet, "/v1/inbox", nil, &inbox); err != nil {
		return err
	}
	if len(inbox.Items) != 1 || inbox.Items[0].FriendRequestID != d.request.ID {
		return fmt.Errorf("bob's inbox: %v", inbox.Items)
	}
	if err := d.bob.call(ctx, http.MethodPost, "/v1/friend-requests/"+d.request.ID+"/approve", map[string]any{
		"scope": map[string]any{
			"queues": []string{d.queue}, "verbs": []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.ListCreated},
			"limits": map[string]any{"max_open": 5, "expires_in_days": 30},
		},
		"note": "Welcome. No cancelling, please.",
	}, nil); err != nil {
		return err
	}
	if err := d.q.Wait(ctx, d.store, d.request); err != nil {
		return err
	}
	if d.request.Grant == nil {
		return fmt.Errorf("after the approval the request is %s", d.request.State)
	}
	d.sayf("bob approves it from his inbox, narrower: %s, at most %d open, %d days", strings.Join(d.request.Grant.Scope.Strings(), " "),
		d.request.Grant.Scope.Limits.MaxOpen, d.request.Grant.Scope.Limits.ExpiresInDays)
	return nil
}

func (d *demo) tools(ctx context.Context) (err error) {
	if d.endpoint, err = d.q.Endpoint(d.request); err != nil {
		return err
	}
	names, err := d.endpoint.Tools(ctx)
	if err != nil {
		return err
	}
	if want := []string{"create_for", "todo_status", "list_created", "whoami"}; !slices.Equal(names, want) {
		return fmt.Errorf("tools/list: %v", names)
	}
	d.sayf("alice's agent takes a token with its key and sees %s, no more", strings.Join(names, ", "))
	return nil
}

// peer calls a granted tool; code is the domain's error code.
func (d *demo) peer(ctx context.Context, tool string, arguments, into any) (code refusal.Code, err error) {
	r, err := d.endpoint.Call(ctx, tool, arguments)
	if err != nil {
		return "", err
	}
	if r.IsError {
		return r.Refusal().Code, nil
	}
	if into == nil {
		return "", nil
	}
	return "", json.Unmarshal(r.Structured, into)
}

func (d *demo) handOver(ctx context.Context) error {
	work := map[string]any{"queue": d.queue, "title": "Review PR 7", "idempotency_key": "pr-7", "body": "It touches billing.", "payload": map[string]any{"pr": 7}}
	var ids []string
	for n := range 2 {
		var made struct {
			TodoID       string `json:"todo_id"`
			Deduplicated bool
		}
		if code, err := d.peer(ctx, "create_for", work, &made); err != nil || code != "" {
			return fmt.Errorf("create_for: %s %w", code, err)
		}
		if made.Deduplicated != (n == 1) {
			return fmt.Errorf("create_for %d: deduplicated is %t", n+1, made.Deduplicated)
		}
		ids = append(ids, made.TodoID)
	}
	if ids[0] != ids[1] {
		return fmt.Errorf("one key made two todos: %v", ids)
	}
	d.todo = ids[0]
	d.sayf("it hands over work twice with one key: one todo, %s", d.todo)
	return nil
}

type claimed struct {
	Todos []struct {
		TodoID     string `json:"todo_id"`
		LeaseToken string `json:"lease_token"`
		FromFriend struct {
			CallsItself string `json:"calls_itself"`
		} `json:"from_friend"`
	}
}

func (d *demo) work(ctx context.Context) error {
	claim := func(w worker, lease, wait int) (token string, err error) {
		var c claimed
		if code, err := w.call(ctx, "claim_next", map[string]any{"queues": []string{d.queue}, "lease_seconds": lease, "wait_seconds": wait}, &c); err != nil || code != "" {
			return "", fmt.Errorf("claim_next: %s %w", code, err)
		}
		if len(c.Todos) != 1 || c.Todos[0].TodoID != d.todo || c.Todos[0].FromFriend.CallsItself != "release-bot" {
			return "", fmt.Errorf("claim_next gave %v", c.Todos)
		}
		return c.Todos[0].LeaseToken, nil
	}
	old, err := claim(d.workers[0], 1, 0)
	if err != nil {
		return err
	}
	d.sayf("bob's first worker claims it for one second, and stops working")
	now, err := claim(d.workers[1], 60, 20)
	if err != nil {
		return err
	}
	result := map[string]any{"verdict": "approved", "comment": "Looks right."}
	if code, err := d.workers[1].call(ctx, "complete", map[string]any{"todo_id": d.todo, "lease_token": now, "result": result}, nil); err != nil || code != "" {
		return fmt.Errorf("complete: %s %w", code, err)
	}
	d.sayf("the lease lapses; his second worker claims it and finishes")
	code, err := d.workers[0].call(ctx, "complete", map[string]any{"todo_id": d.todo, "lease_token": old, "result": map[string]any{"verdict": "stale"}}, nil)
	if err != nil {
		return err
	}
	if code != string(refusal.LeaseLost) {
		return fmt.Errorf("the old fence answers %q", code)
	}
	d.sayf("the first worker's late result is refused: %s", code)
	var st struct {
		State  string
		Result json.RawMessage
	}
	if code, err := d.peer(ctx, "todo_status", map[string]any{"todo_id": d.todo}, &st); err != nil || code != "" {
		return fmt.Errorf("todo_status: %s %w", code, err)
	}
	if st.State != "done" || !strings.Contains(string(st.Result), "approved") {
		return fmt.Errorf("todo_status: %+v", st)
	}
	d.sayf("alice's agent reads %s: %s", st.State, st.Result)
	return nil
}

// reverse: the grant is alice→bob; it gives bob nothing at alice's.
func (d *demo) reverse(ctx context.Context) error {
	for _, at := range []*person{d.alice, d.bob} {
		var out struct{ Items []json.RawMessage }
		direction := "in"
		if at == d.bob {
			direction = "out"
		}
		if err := at.call(ctx, http.MethodGet, "/v1/grants?direction="+direction, nil, &out); err != nil {
			return err
		}
		if len(out.Items) != 0 {
			return fmt.Errorf("a grant in the other direction: %s", out.Items)
		}
	}
	// The friendship's own key opens nothing at alice's instance.
	r := *d.request
	r.Aud = d.alices.url
	r.Grant = &requester.Grant{Endpoint: d.alices.url + "/mcp/" + uuid.NewString(), AuthorizationServer: d.alices.url}
	e, err := d.q.Endpoint(&r)
	if err != nil {
		return err
	}
	if _, err := e.Token(ctx); err == nil {
		return errors.New("the key of the grant got a token at alice's instance")
	}
	d.sayf("the other direction gives nothing: bob's side got no grant and no token at alice's")
	return nil
}

func (d *demo) narrow(ctx context.Context) error {
	s := d.request.Grant.Scope
	if err := d.bob.call(ctx, http.MethodPost, "/v1/grants/"+d.request.Grant.ID+"/narrow", map[string]any{
		"scope": map[string]any{"queues": s.Queues, "verbs": []scope.Verb{scope.TodoStatus}},
	}, nil); err != nil {
		return err
	}
	names, err := d.endpoint.Tools(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(names, []string{"todo_status", "whoami"}) {
		return fmt.Errorf("after narrowing: %v", names)
	}
	d.sayf("bob narrows the grant; the next call sees %s", strings.Join(names, ", "))
	return nil
}

func (d *demo) revoke(ctx context.Context) error {
	token, err := d.endpoint.Token(ctx)
	if err != nil {
		return err
	}
	if err := d.bob.call(ctx, http.MethodPost, "/v1/grants/"+d.request.Grant.ID+"/revoke", map[string]any{}, nil); err != nil {
		return err
	}
	unknown := d.bobs.url + "/mcp/" + uuid.NewString()
	answers := map[string]string{}
	for _, url := range []string{d.endpoint.URL(), unknown} {
		a, err := (&person{base: url, http: http.DefaultClient}).do(ctx, http.MethodPost, "", map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
			http.Header{"Authorization": {"Bearer " + token}, "Accept": {"application/json, text/event-stream"}})
		if err != nil {
			return err
		}
		challenge := strings.ReplaceAll(a.header.Get("WWW-Authenticate"), url[strings.LastIndex(url, "/"):], "")
		answers[url] = fmt.Sprintf("HTTP %d %s %s", a.status, a.body, challenge)
	}
	if a := answers[unknown]; a != answers[d.endpoint.URL()] || !strings.HasPrefix(a, "HTTP 401 ") {
		return fmt.Errorf("after revoking: %v", answers)
	}
	d.sayf("bob revokes it; the next call is refused with the very bytes of an unknown endpoint's answer")
	return nil
}
