package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errDeadListen says that a notification to ourselves did not come back.
var errDeadListen = errors.New("LISTEN is dead: our own notification did not come back")

// listen keeps a connection that listens, until ctx ends.
func (w *Wake) listen(ctx context.Context) {
	failures := 0
	for {
		begin := time.Now()
		err := w.listenOnce(ctx)
		w.listening.Store(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > 10*w.o.PingEvery {
			failures = 0
		}
		failures++
		w.o.Logger.WarnContext(ctx, "listen for wake-ups", "error", err, "failures", failures)
		if pause(ctx, backoff(failures)) != nil {
			return
		}
	}
}

// listenOnce listens on one connection until it fails or turns out dead.
func (w *Wake) listenOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := connect(ctx, w.url, Options{ApplicationName: "switchboard-listen"})
	if err != nil {
		return err
	}
	defer closeConn(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+wakeChannel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}

	// A connection can die without a sign, and behind a pooler LISTEN succeeds
	// and nothing ever comes. Only a message that arrives proves that it works.
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		w.watchPings(ctx, cancel)
	}()
	defer func() { cancel(nil); <-watched }()

	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("wait for a notification: %w", errors.Join(err, context.Cause(ctx)))
		}
		name, topics := decodePayload(n.Payload)
		if name == w.name {
			// Our own subscribers were woken by Notify itself; that it came back
			// is what counts, and every one of ours is as good as a ping.
			select {
			case w.pongs <- struct{}{}:
			default:
			}
			continue
		}
		w.heard.Store(time.Now().UnixNano())
		for _, t := range topics {
			w.wakeLocal(t)
		}
	}
}

// watchPings sends a ping each period and cancels when none of our
// notifications came back in one.
func (w *Wake) watchPings(ctx context.Context, cancel context.CancelCauseFunc) {
	select {
	case <-w.pongs: // of an earlier connection
	default:
	}
	ticker := time.NewTicker(w.o.PingEvery)
	defer ticker.Stop()
	for {
		w.out.putPing()
		alive := false
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-w.pongs:
				alive = true
				if !w.listening.Load() {
					// Others are heard within a period; until then there may be some.
					w.heard.Store(time.Now().UnixNano())
					w.listening.Store(true)
					// What was sent while nobody listened is lost.
					w.wakeAll()
				}
			case <-ticker.C:
				waiting = false
			}
		}
		if !alive {
			cancel(errDeadListen)
			return
		}
	}
}
