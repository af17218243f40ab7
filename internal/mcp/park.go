package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"switchboard/internal/refusal"
)

// A call that waits is parked: its connection is taken out of net/http, whose
// goroutine and buffers are most of what a waiting request costs, and put back
// when the answer is written. Thousands of idle workers then hold a small stack
// each (adr/0011-mcp-fast-path.md). Where a connection cannot be taken out (TLS
// or HTTP/2 in this process, a wrapped writer) the call waits in its handler.

// patience is how long a waiting call stays in its handler before it is
// parked: most find what they wait for at once.
const patience = 50 * time.Millisecond

// waiting are arguments of a call that may wait.
type waiting interface{ wait() time.Duration }

// outcome is what a call came to.
type outcome struct {
	result any
	err    error
}

// handover passes the answering of a call from its handler to the goroutine
// that makes the call.
type handover struct {
	mu       sync.Mutex
	finished bool
	to       *parked
	done     chan outcome
}

// await makes a call that may wait, and answers it here or, once parked, when
// it ends.
func (x *exchange) await(c *call, wait time.Duration) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.ctx))
	unhook := context.AfterFunc(x.ctx, cancel)
	x.lengthen(wait)
	c.ctx, c.x = ctx, nil // nothing of the handler may be held while parked
	h := &handover{done: make(chan outcome, 1)}
	roomy(int(wait))
	go func() {
		defer cancel()
		// Nobody above catches a fault here: it would end the process and with it
		// everybody's calls.
		defer func() {
			if fault := recover(); fault != nil {
				h.finish(outcome{err: fmt.Errorf("fault: %v\n%s", fault, debug.Stack())})
			}
		}()
		result, err := c.carryOut()
		h.finish(outcome{result, err})
	}()
	ending := x.h.parking.ending(x.ctx)
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case o := <-h.done:
		unhook()
		x.answer(o)
		return
	case <-t.C:
	}
	p := x.park(cancel)
	if p == nil {
		// Shutdown waits for handlers, so it must end this one's wait; it may have
		// begun already.
		still := context.AfterFunc(ending, cancel)
		o := <-h.done
		still()
		unhook()
		x.answer(o)
		return
	}
	if !unhook() {
		cancel() // the client left just before
	}
	h.mu.Lock()
	h.to = p
	finished := h.finished
	h.mu.Unlock()
	if finished {
		p.answer(<-h.done)
	}
}

// roomy makes the handler's stack larger than that of a waiting call. The runtime
// gives stacks back by the page, with their neighbours of the same size: when the
// connection is parked and its handler ends, a stack between those of waiting calls
// would leave a hole of 8 KiB.
//
//go:noinline
func roomy(n int) byte {
	var frame [9 << 10]byte
	return frame[uint(n)%uint(len(frame))]
}

func (h *handover) finish(o outcome) {
	h.mu.Lock()
	h.finished = true
	p := h.to
	h.mu.Unlock()
	if p == nil {
		h.done <- o
		return
	}
	p.answer(o)
}

// parked is a connection outside net/http that waits for its answer.
type parked struct {
	h       *handler
	x       exchange // without request and writer
	server  *http.Server
	conn    net.Conn
	head    []byte // header lines that were set before the call
	read    []byte // what the client has sent since
	gone    bool   // the client has left; valid once watched is closed
	watched chan struct{}
	unhook  func() bool
}

// park takes the connection out of net/http; nil when it cannot be.
func (x *exchange) park(cancel context.CancelFunc) *parked {
	r := x.r
	srv, ok := serverOf(x.ctx)
	if !ok || r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.TLS != nil || r.Close {
		return nil
	}
	ending, ok := x.h.parking.of(srv)
	if !ok {
		return nil
	}
	id := x.requestID()
	x.w.Header().Del(requestIDHeader)
	var head bytes.Buffer
	_ = x.w.Header().Write(&head)
	conn, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.w.Header().Set(requestIDHeader, id)
		x.h.parking.leave()
		return nil
	}
	p := &parked{h: x.h, server: srv, conn: conn, head: head.Bytes(), watched: make(chan struct{})}
	p.x = exchange{h: x.h, ctx: context.WithoutCancel(x.ctx), segment: x.segment, caller: x.caller, modern: x.modern, id: x.id, rid: id}
	if n := rw.Reader.Buffered(); n > 0 {
		p.read = make([]byte, n)
		_, _ = io.ReadFull(rw.Reader, p.read)
	}
	p.unhook = context.AfterFunc(ending, cancel)
	go p.watch(cancel)
	return p
}

// watch notices that the client leaves. One byte more than expected is the
// beginning of its next request.
func (p *parked) watch(cancel context.CancelFunc) {
	defer close(p.watched)
	var b [1]byte
	n, err := p.conn.Read(b[:])
	if n == 1 {
		p.read = append(p.read, b[0])
		return
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		p.gone = true
		cancel()
	}
}

// answer writes the answer and gives the connection back to its server.
func (p *parked) answer(o outcome) {
	defer p.h.parking.leave()
	restarting := !p.unhook()
	_ = p.conn.SetReadDeadline(time.Unix(1, 0))
	<-p.watched
	if p.gone {
		_ = p.conn.Close()
		return
	}
	_ = p.conn.SetDeadline(time.Now().Add(writeWithin))
	w := &parkedWriter{header: http.Header{}}
	if restarting {
		w.header.Set("Connection", "close")
	}
	w.header.Set(requestIDHeader, p.x.rid)
	p.x.w = w
	p.x.answer(o)
	if _, err := p.conn.Write(w.bytes(p.head)); err != nil || restarting {
		_ = p.conn.Close()
		return
	}
	_ = p.conn.SetDeadline(time.Time{})
	conn := p.conn
	if len(p.read) > 0 {
		conn = &readAhead{Conn: conn, read: p.read}
	}
	l := &onlyConn{conn: conn}
	go func() {
		_ = p.server.Serve(l) // returns once the connection has its goroutine
		l.abandon()
	}()
}

// parkedWriter collects an answer.
type parkedWriter struct {
	header http.Header
	status int
	body   []byte
}

func (w *parkedWriter) Header() http.Header { return w.header }

func (w *parkedWriter) WriteHeader(status int) { w.status = status }

func (w *parkedWriter) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}

// bytes is the whole HTTP answer.
func (w *parkedWriter) bytes(head []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(head) + len(w.body) + 256)
	b.WriteString("HTTP/1.1 " + strconv.Itoa(w.status) + " " + http.StatusText(w.status) + "\r\n")
	w.header.Set("Content-Length", strconv.Itoa(len(w.body)))
	w.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	b.Write(head)
	_ = w.header.Write(&b)
	b.WriteString("\r\n")
	b.Write(w.body)
	return b.Bytes()
}

// readAhead is a connection of which some bytes have been read already.
type readAhead struct {
	net.Conn
	read []byte
}

// Read gives those bytes first.
func (c *readAhead) Read(b []byte) (int, error) {
	if len(c.read) > 0 {
		n := copy(b, c.read)
		c.read = c.read[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// onlyConn is a listener with one connection to give.
type onlyConn struct {
	mu   sync.Mutex
	conn net.Conn
}

// Accept gives the connection, and then has no more.
func (l *onlyConn) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	return nil, io.EOF
}

// abandon closes the connection when the server took it no more.
func (l *onlyConn) abandon() {
	if c, _ := l.Accept(); c != nil {
		_ = c.Close()
	}
}

// Close has nothing to close: the connection is the server's.
func (l *onlyConn) Close() error { return nil }

// Addr is asked for by nobody.
func (l *onlyConn) Addr() net.Addr { return &net.TCPAddr{} }

// parking knows how many calls are parked, and tells them when their server
// shuts down: net/http has forgotten them.
type parking struct {
	mu      sync.Mutex
	servers map[*http.Server]context.Context
	parked  sync.WaitGroup
}

// of counts a parked call in and returns a context that ends with the server's
// shutdown; false when that has begun.
func (p *parking) of(srv *http.Server) (context.Context, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ending := p.endOf(srv)
	if ending.Err() != nil {
		return nil, false
	}
	p.parked.Add(1)
	return ending, true
}

// ending is a context that ends with the shutdown of the server whose request
// ctx is of.
func (p *parking) ending(ctx context.Context) context.Context {
	srv, ok := serverOf(ctx)
	if !ok {
		return context.Background()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endOf(srv)
}

// endOf is called with the lock held.
func (p *parking) endOf(srv *http.Server) context.Context {
	ending, ok := p.servers[srv]
	if !ok {
		var end context.CancelFunc
		ending, end = context.WithCancel(context.Background())
		srv.RegisterOnShutdown(end)
		if p.servers == nil {
			p.servers = map[*http.Server]context.Context{}
		}
		p.servers[srv] = ending //nolint:fatcontext // one a server, none within another
	}
	return ending
}

func serverOf(ctx context.Context) (*http.Server, bool) {
	srv, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	return srv, ok
}

func (p *parking) leave() { p.parked.Done() }

// Drain returns when all parked calls have been answered, or with ctx. It is
// for the time after http.Server.Shutdown, which ends them.
func (h *handler) Drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		h.parking.parked.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errRestarting answers calls that the end of the process cuts short.
var errRestarting = refusal.New(refusal.Unavailable, "the server is restarting; try again").After(time.Second)
