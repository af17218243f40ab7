package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

// Timing of streams. They are variables of the handler's so that tests need
// not sleep.
type pace struct {
	keepAlive time.Duration // a comment, so that nothing between closes the stream
	look      time.Duration // how often the endpoint's own changes are looked for
	poll      time.Duration // how often a todo is looked at that cannot be waited for
	rest      time.Duration // the same for a finished one, which a human may retry
}

var usual = pace{keepAlive: 15 * time.Second, look: 5 * time.Second, poll: 2 * time.Second, rest: 15 * time.Second}

const (
	maxFollowed = 100 // todos of one stream that can be waited for
	maxPolled   = 20  // and of one where each has to be looked at
	maxStreams  = 64  // streams of one endpoint at one replica
	writeWithin = 30 * time.Second
)

// stream is one subscriptions/listen of the modern era: it tells when todos
// change that the endpoint may read, and when its list of tools does. It ends
// with the client, with the token, or with the endpoint.
type stream struct {
	x      *exchange
	rc     *http.ResponseController
	tools  bool
	follow map[uuid.UUID]int64 // version that the client may know
	events chan uuid.UUID
	stale  chan struct{} // rung by a follower that is told of a change of the endpoint

	mu     sync.Mutex
	caller endpoint.Caller
}

// listenParams are the params of subscriptions/listen.
type listenParams struct {
	Notifications *struct {
		ToolsListChanged      bool     `json:"toolsListChanged"`
		ResourceSubscriptions []string `json:"resourceSubscriptions"`
	} `json:"notifications"`
}

// listen serves a subscriptions/listen request.
func (x *exchange) listen(e envelope) {
	var p listenParams
	if err := jsonv2.Unmarshal(e.params, &p); err != nil || p.Notifications == nil {
		x.refuse(&rpcError{status: http.StatusBadRequest, code: codeInvalidParams, message: "params.notifications is missing or malformed"})
		return
	}
	if !x.h.streams.enter(x.caller.Endpoint.ID) {
		x.w.Header().Set("Retry-After", "30")
		plainError(x.w, http.StatusTooManyRequests, "too many streams are open at this endpoint")
		return
	}
	defer x.h.streams.leave(x.caller.Endpoint.ID)
	s := &stream{
		x: x, rc: http.NewResponseController(x.w), tools: p.Notifications.ToolsListChanged, follow: map[uuid.UUID]int64{},
		events: make(chan uuid.UUID), stale: make(chan struct{}, 1), caller: *x.caller,
	}
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	if err := s.choose(ctx, p.Notifications.ResourceSubscriptions); err != nil {
		if refusal.CodeOf(err) == refusal.Unauthenticated {
			x.h.refuseToken(x.w, x.segment)
			return
		}
		x.h.Log.ErrorContext(ctx, "mcp: subscriptions/listen", "endpoint", x.caller.Endpoint.ID, "error", err)
		x.refuse(&rpcError{status: http.StatusOK, code: codeInternal, message: "something went wrong on our side"})
		return
	}
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	if s.open() != nil {
		return
	}
	for id, version := range s.follow {
		followers.Go(func() { s.followTodo(ctx, id, version) })
	}
	if s.run(ctx) {
		_ = s.send(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(x.id), "result": map[string]any{
			"resultType": mcp.ResultTypeComplete, "_meta": s.meta(),
		}})
	}
}

// choose keeps those todos of the filter that the caller may read. What is
// left out of the acknowledgement tells nothing of why.
func (s *stream) choose(ctx context.Context, uris []string) error {
	most := maxFollowed
	if s.caller.Endpoint.Kind != endpoint.Peer {
		most = maxPolled
	}
	for _, uri := range uris {
		id, ok := resourceID(uri)
		if !ok || len(s.follow) >= most {
			continue
		}
		_, version, err := s.x.h.readTodo(ctx, &s.caller, id)
		switch refusal.CodeOf(err) {
		case "":
			s.follow[id] = version
		case refusal.NotFound:
		default:
			return err
		}
	}
	return nil
}

func (s *stream) meta() map[string]any {
	return map[string]any{mcp.MetaKeySubscriptionID: json.RawMessage(s.x.id)}
}

// open sends the head of the answer and the acknowledgement.
func (s *stream) open() error {
	hd := s.x.w.Header()
	hd.Set("Content-Type", "text/event-stream")
	hd.Set("Cache-Control", "no-store")
	hd.Set("X-Accel-Buffering", "no")
	_ = s.rc.SetReadDeadline(time.Time{}) // nothing more is read, and its end must not end the stream
	s.x.w.WriteHeader(http.StatusOK)
	agreed := map[string]any{}
	if s.tools {
		agreed["toolsListChanged"] = true
	}
	if len(s.follow) > 0 {
		uris := make([]string, 0, len(s.follow))
		for id := range s.follow {
			uris = append(uris, resourceURI(id))
		}
		slices.Sort(uris)
		agreed["resourceSubscriptions"] = uris
	}
	return s.notify(mcp.MethodNotificationSubscriptionsAcknowledged, map[string]any{"notifications": agreed})
}

func (s *stream) notify(method string, params map[string]any) error {
	params["_meta"] = s.meta()
	return s.send(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

func (s *stream) send(message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.write("event: message\ndata: " + string(b) + "\n\n")
}

func (s *stream) write(text string) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := s.x.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}

// run writes what happens until the stream ends, and reports whether there is
// still somebody to tell that it has.
func (s *stream) run(ctx context.Context) bool {
	if !s.tools && len(s.follow) == 0 {
		return true // there is nothing to wait for
	}
	alive, look := time.NewTicker(s.x.h.pace.keepAlive), time.NewTicker(s.x.h.pace.look)
	defer alive.Stop()
	defer look.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return false
		case id := <-s.events:
			err = s.notify(mcp.MethodNotificationResourceUpdated, map[string]any{"uri": resourceURI(id)})
		case <-alive.C:
			err = s.write(":\n\n")
		case <-look.C:
			if ended := s.refresh(ctx); ended {
				return true
			}
		case <-s.stale:
			if ended := s.refresh(ctx); ended {
				return true
			}
		}
		if err != nil {
			return false
		}
	}
}

// refresh resolves the caller anew, tells of a changed list of tools and
// reports whether the stream's authority has ended.
func (s *stream) refresh(ctx context.Context) (ended bool) {
	old := s.now()
	c, err := s.x.h.Endpoints.Refresh(ctx, old)
	switch {
	case refusal.CodeOf(err) == refusal.Unauthenticated:
		return true
	case err != nil:
		return false // the database is away; the next look tells
	}
	s.mu.Lock()
	s.caller = c
	s.mu.Unlock()
	if s.tools && !slices.Equal(toolsOf(old), toolsOf(c)) {
		return s.notify(mcp.MethodNotificationToolsListChanged, map[string]any{}) != nil
	}
	return false
}

func (s *stream) now() endpoint.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller
}

// followTodo tells of each version of a todo that it sees, until the caller may
// no longer read it.
func (s *stream) followTodo(ctx context.Context, id uuid.UUID, version int64) {
	for ctx.Err() == nil {
		c := s.now()
		now, pause, err := s.next(ctx, c, id, version)
		switch {
		case err == nil && now > version:
			version = now
			select {
			case s.events <- id:
			case <-ctx.Done():
			}
		case errors.Is(err, endpoint.ErrStale):
			select {
			case s.stale <- struct{}{}:
			default:
			}
			pause = 50 * time.Millisecond // until the stream knows its caller again
		case refusal.CodeOf(err) == refusal.NotFound, refusal.CodeOf(err) == refusal.Unauthenticated:
			return
		case err != nil:
			pause = s.x.h.pace.poll
		}
		if pause > 0 {
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
		}
	}
}

// next waits for a version beyond the one seen, and says how long to rest
// before the next call.
func (s *stream) next(ctx context.Context, c endpoint.Caller, id uuid.UUID, seen int64) (version int64, pause time.Duration, err error) {
	if !readsTodos(c) {
		return 0, 0, refusal.New(refusal.NotFound, "no such todo")
	}
	if c.Endpoint.Kind == endpoint.Peer {
		st, err := s.x.h.Todos.Status(ctx, c, id, maxWait*time.Second, &seen)
		if ended(st.State) {
			pause = s.x.h.pace.rest
		}
		return st.Version, pause, err
	}
	d, err := s.x.h.Todos.GetForWorker(ctx, c, id)
	pause = s.x.h.pace.poll
	if ended(d.State) {
		pause = s.x.h.pace.rest
	}
	return d.Version, pause, err
}

func ended(s todo.State) bool { return s == todo.Done || s == todo.Failed || s == todo.Canceled }

// streams counts the open streams of each endpoint.
type streams struct {
	mu   sync.Mutex
	open map[uuid.UUID]int
}

func (s *streams) enter(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[uuid.UUID]int{}
	}
	if s.open[id] >= maxStreams {
		return false
	}
	s.open[id]++
	return true
}

func (s *streams) leave(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id]--; s.open[id] == 0 {
		delete(s.open, id)
	}
}
