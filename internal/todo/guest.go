package todo

// guest is a waiting call that claims in the transaction of a creation.
type guest struct {
	call *readyWait
	w    *work
	done chan struct{}
	ok   bool // it took part, and the transaction has committed; valid once done is closed
}

// rise ends the wait. If the call is a guest by then it waits until that has ended,
// and returns what was claimed for it, nil when nothing was.
func (w *readyWait) rise() *work {
	w.h.mu.Lock()
	w.idle = false
	g := w.guest
	w.h.mu.Unlock()
	if g == nil {
		return nil
	}
	<-g.done
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.guest = nil
	if !g.ok || len(g.w.demand.taken) == 0 {
		return nil // and it is still pending: it looks, or passes the wake on
	}
	w.pending = false
	return g.w
}

// invite makes a waiting call the guest of a creation, if one waits for it.
func (h *hub) invite(w *work) *guest {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range w.creates {
		wl := h.lanes[lane{c.auth.owner, c.queue}]
		if wl == nil || c.notBefore != nil {
			continue
		}
		for _, call := range wl.calls {
			if !call.idle || call.pending || call.ask == nil {
				continue
			}
			g := &guest{call: call, w: call.ask(), done: make(chan struct{})}
			call.pending, call.idle, call.guest = true, false, g
			w.guest = g.w
			w.size += g.w.size
			return g
		}
	}
	return nil
}

// end tells the guest how it went.
func (g *guest) end(ok bool) {
	g.ok = ok
	close(g.done)
	select {
	case g.call.woken <- struct{}{}:
	default:
	}
}
