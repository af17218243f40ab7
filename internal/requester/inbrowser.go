package requester

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
)

// InBrowser has the human allow something on a page of issuer's: it makes the
// page of a loopback redirect and a state, shows it, and returns the code that
// came back and the redirect that it came to (RFC 8252). An answer may also be
// typed: the address at which a browser on another machine ended, because our
// loopback is not its own. What is typed and is no such address is told to
// puzzled. typed may be nil.
func InBrowser(ctx context.Context, issuer string, page func(redirect, state string) string, show func(url string) error, typed <-chan string, puzzled func()) (code, redirect string, err error) {
	l, err := listen(ctx, callbackPath(nil))
	if err != nil {
		return "", "", err
	}
	defer l.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	state := rand.Text()
	if err := show(page(l.redirect, state)); err != nil {
		return "", "", fmt.Errorf("show the page: %w", err)
	}
	go l.take(ctx, typed, state, puzzled)
	code, err = l.wait(ctx, state, issuer)
	return code, l.redirect, err
}

// take passes typed addresses on as if the browser had come; it ends with ctx.
func (l *loopback) take(ctx context.Context, typed <-chan string, state string, puzzled func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case line, ok := <-typed:
			if !ok {
				return
			}
			u, err := url.Parse(strings.TrimSpace(line))
			if err != nil || u.Query().Get("state") != state {
				puzzled()
				continue
			}
			select {
			case l.answers <- u.Query():
			case <-ctx.Done():
			}
		}
	}
}
