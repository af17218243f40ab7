package a2a

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/refusal"
)

const (
	// streamFor bounds one stream; the requester subscribes again, to any
	// replica: nothing of a stream lives in memory.
	streamFor = 30 * time.Minute
	// beat is a comment that keeps proxies from closing a quiet stream.
	beat = 15 * time.Second
	// writeWithin is how long a reader may take to read an event.
	writeWithin = 30 * time.Second
	// maxStreams bounds the streams of one request on this replica: whoever has
	// its message, which is good for ever, can open another.
	maxStreams = 8
)

// streams counts the open streams of each request.
type streams struct {
	mu   sync.Mutex
	open map[uuid.UUID]int
}

func (s *streams) enter(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] >= maxStreams {
		return false
	}
	if s.open == nil {
		s.open = map[uuid.UUID]int{}
	}
	s.open[id]++
	return true
}

func (s *streams) leave(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id]--; s.open[id] <= 0 {
		delete(s.open, id)
	}
}

// subscribe follows a request that has not been decided.
func (c *call) subscribe(who friend.Asker) (any, error) {
	id, err := c.taskID()
	if err != nil {
		return nil, err
	}
	req, err := c.Friends.GetOwn(c.r.Context(), who, id)
	if err != nil {
		return nil, asTask(err)
	}
	if stateOf[req.State].Terminal() {
		return nil, errUnsupported // A2A 1.0 §3.1.6: a terminal task cannot be subscribed to
	}
	_, token, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	return nil, c.stream(req, who, token)
}

// stream sends the task as it is and then what becomes of it, until the
// decision. The state is read anew at every wake, so the stream shows what the
// database holds and nothing that is only on its way; so is the token, "" for
// the sender of the message itself, so that the stream ends with it.
func (c *call) stream(req friend.Request, who friend.Asker, token string) error {
	if !c.streams.enter(req.ID) {
		return refusal.New(refusal.RateLimited, "too many streams of this task are open").After(streamFor)
	}
	defer c.streams.leave(req.ID)
	rung, stop := c.Friends.Follow(req.ID)
	defer stop()
	ctx := c.r.Context()
	out := http.NewResponseController(c.w)
	head := c.w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no")  // a proxy that buffers would keep the events
	_ = out.SetReadDeadline(time.Time{}) // nothing more is read, and the end of that time must not end the stream
	// One who does not read holds a stream no longer than this.
	write := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeWithin))
		_, err := io.WriteString(c.w, text)
		return err == nil && out.Flush() == nil
	}
	c.w.WriteHeader(http.StatusOK)
	emit := func(e a2a.Event, final bool) bool {
		v, err := c.version.event(e, final)
		if err != nil {
			c.Log.ErrorContext(ctx, "encode A2A event", "error", err)
			return false
		}
		b, err := json.Marshal(answer{JSONRPC: "2.0", ID: c.id(), Result: v})
		if err != nil {
			c.Log.ErrorContext(ctx, "encode A2A event", "error", err)
			return false
		}
		return write("data: " + string(b) + "\n\n")
	}
	if !emit(task(req, true), false) || stateOf[req.State].Terminal() {
		return nil
	}
	// A look right after registering: what changed in between rang nobody.
	look := time.NewTimer(0)
	defer look.Stop()
	ends := time.NewTimer(streamFor)
	defer ends.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ends.C:
			return nil
		case <-rung:
		case <-look.C:
			if !write(": still waiting\n\n") {
				return nil
			}
		}
		look.Reset(beat)
		if !c.stillGood(token) {
			return nil
		}
		now, err := c.Friends.GetOwn(ctx, who, req.ID)
		if err != nil {
			return nil // the client subscribes again and learns why
		}
		if now.State == req.State {
			continue
		}
		req = now
		info := a2a.TaskInfo{TaskID: a2a.TaskID(req.ID.String()), ContextID: req.ID.String()}
		if req.Artifact != nil && !emit(&a2a.TaskArtifactUpdateEvent{TaskID: info.TaskID, ContextID: info.ContextID, Artifact: grantArtifact(req.Artifact), LastChunk: true}, false) {
			return nil
		}
		final := stateOf[req.State].Terminal()
		if !emit(&a2a.TaskStatusUpdateEvent{TaskID: info.TaskID, ContextID: info.ContextID, Status: status(req)}, final) || final {
			return nil
		}
	}
}

// stillGood reports whether the token that opened a stream has neither expired
// nor been revoked.
func (c *call) stillGood(token string) bool {
	if token == "" || c.Tokens == nil {
		return true
	}
	_, err := c.Tokens.AuthenticateRequester(c.r.Context(), c.persona.Slug, token)
	return err == nil
}
