package mcp

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// exchange is one request and its answer.
type exchange struct {
	h       *handler
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context  // of the request
	segment string           // of the URL, as it came
	caller  *endpoint.Caller // never changed, only replaced: calls share it
	modern  bool
	id      jsontext.Value
	rid     string // the request's id, once there is one
}

// Refreshed at most this often within one call: an endpoint that changes
// faster than a call can be made is somebody else's loop.
const maxRefresh = 4

// errNoTool is how a call of a tool that the caller does not have ends,
// whether or not such a tool exists.
var errNoTool = errors.New("no such tool")

// narrowTokenError ends a call that the endpoint allows and the token does not.
type narrowTokenError struct{ want []string }

func (narrowTokenError) Error() string { return "the token holds less than its endpoint" }

// serve answers the message in body and gives the buffer back as soon as
// nothing points into it.
func (x *exchange) serve(body *bytes.Buffer) {
	held := body
	defer func() { giveBack(held) }()
	e, refused := parseEnvelope(body.Bytes())
	x.id = e.id
	if refused == nil {
		m := readMeta(e.meta)
		x.modern, refused = checkEra(x.r.Header, e, m)
		if refused == nil && e.method == "tools/call" && e.id != nil {
			c, err := x.prepare(e, m)
			held = giveBack(held)
			x.call(c, err)
			return
		}
	}
	if !x.confirm() {
		return
	}
	if refused != nil {
		x.refuse(refused)
		return
	}
	switch {
	case x.modern && e.method == "subscriptions/listen" && e.id != nil:
		x.listen(e)
		return
	case x.modern && e.method == "resources/read" && e.id != nil && readsTodos(*x.caller):
		x.readResource(e)
		return
	}
	x.h.rest.serve(x, e, body.Bytes())
}

// confirm looks whether the caller still is what authenticate took it for, which
// may come from memory and be a minute old. Whatever is answered without a domain
// package that looks itself passes here first, so that no replica tells anything
// to somebody whose authority has ended. False: it has answered.
func (x *exchange) confirm() bool {
	c, err := x.h.Endpoints.Live(x.ctx, *x.caller)
	if err != nil {
		x.h.refuse(x.ctx, x.w, x.segment, err)
		return false
	}
	x.caller = &c
	return true
}

// call is one tools/call, decoded and freed from the body's buffer.
type call struct {
	h       *handler
	x       *exchange
	ctx     context.Context
	caller  *endpoint.Caller
	began   time.Time
	name    string
	tool    *tool
	args    any // what tool.decode made of the arguments
	refresh int
}

// prepare decodes the arguments. Its error belongs into the tool's result.
func (x *exchange) prepare(e envelope, m requestMeta) (*call, error) {
	c := &call{h: x.h, x: x, ctx: x.ctx, caller: x.caller, began: time.Now(), name: e.name}
	c.tool = toolOf(x.caller, e.name)
	if c.tool == nil {
		return c, nil
	}
	if e.stray != "" {
		return c, refusal.Invalid(e.stray, "params have a member %q that this server cannot honour", bounded(e.stray))
	}
	args := e.arguments
	if args == nil || args.Kind() == 'n' {
		args = jsontext.Value("{}")
	}
	if err := checkArguments(args); err != nil {
		return c, err
	}
	var err error
	c.args, err = c.tool.decode(args, m)
	return c, err
}

// call carries a prepared call out and writes its answer.
func (x *exchange) call(c *call, err error) {
	switch w, ok := c.args.(waiting); {
	case c.tool == nil:
		if x.confirm() {
			x.noTool()
		}
	case err != nil:
		if !x.confirm() {
			return
		}
		if toolOf(x.caller, c.name) != c.tool {
			err = errNoTool // narrowed meanwhile
		}
		x.answer(outcome{err: err})
	case ok && w.wait() > 0:
		x.await(c, w.wait())
	default:
		result, err := c.carryOut()
		x.answer(outcome{result, err})
	}
}

// answer writes what a call came to.
func (x *exchange) answer(o outcome) {
	if o.err == nil {
		x.result(o.result)
		return
	}
	var narrow narrowTokenError
	switch err := o.err; {
	case errors.Is(err, errNoTool):
		x.noTool()
	case errors.As(err, &narrow):
		x.h.refuseScope(x.w, x.segment, narrow.want)
	case refusal.CodeOf(err) == refusal.Unauthenticated:
		x.h.refuseToken(x.w, x.segment)
	case errors.Is(err, context.Canceled):
		// Nobody but us cuts a call short whose client is still there.
		x.failure(errRestarting)
	default:
		x.failure(err)
	}
}

// carryOut makes the call as the caller that it was resolved to, and again as
// the caller that the database knows when a domain package says that the
// endpoint has changed since.
func (c *call) carryOut() (any, error) {
	for {
		result, err := c.attempt()
		if err == nil || !errors.Is(err, endpoint.ErrStale) {
			return result, err
		}
		if err := c.renew(); err != nil {
			return nil, err
		}
	}
}

func (c *call) attempt() (any, error) {
	if c.caller.TokenScope != nil {
		if err := c.narrowToken(); err != nil {
			return nil, first(c.live(), err)
		}
	}
	return c.tool.run(c)
}

// renew resolves the caller anew. It is a function of its own because callers
// are large, and what stands in carryOut's frame is held by every waiting call.
//
//go:noinline
func (c *call) renew() error {
	if c.refresh++; c.refresh > maxRefresh {
		return refusal.New(refusal.Unavailable, "the endpoint keeps changing; try again").After(time.Second)
	}
	caller, err := c.h.Endpoints.Refresh(c.ctx, *c.caller)
	if err != nil {
		return err
	}
	if c.caller = &caller; toolOf(c.caller, c.name) != c.tool {
		return errNoTool
	}
	return nil
}

// live is nil while the caller is as the database has it, endpoint.ErrStale when
// it has changed. Calls that no domain package checks begin with it.
func (c *call) live() error {
	now, err := c.h.Endpoints.Live(c.ctx, *c.caller)
	if err != nil {
		return err
	}
	if now.Endpoint.Version != c.caller.Endpoint.Version {
		return endpoint.ErrStale
	}
	return nil
}

// left is what remains of a wait that began with the call.
func (c *call) left(wait time.Duration) time.Duration {
	return max(0, wait-time.Since(c.began))
}

// lengthen lets the connection live as long as the wait and its answer.
func (x *exchange) lengthen(wait time.Duration) {
	const grace = 30 * time.Second
	rc := http.NewResponseController(x.w)
	until := time.Now().Add(wait + grace)
	_ = rc.SetReadDeadline(until) // not supported by every writer, and then not needed
	_ = rc.SetWriteDeadline(until)
}
