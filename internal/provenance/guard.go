package provenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// MaxFetch is the most that GuardedClient reads of an answer, in bytes.
const MaxFetch = 64 << 10

// FetchTimeout bounds a whole fetch, body included.
const FetchTimeout = 5 * time.Second

// Errors of GuardedClient.
var (
	ErrAddress  = errors.New("address not allowed for outgoing requests")
	ErrRedirect = errors.New("redirects are not followed")
	ErrScheme   = errors.New("only https is allowed for outgoing requests")
	ErrTooLarge = errors.New("answer larger than 64 KiB")
)

// GuardedClient returns the client for everything that this instance fetches:
// issuers' keys, configured directories, client metadata, notification hooks
// (specs/protocol.md, design: no outgoing request on a stranger's word). It
// speaks https only, follows no redirect, goes through no proxy, reads at most
// MaxFetch bytes in FetchTimeout, and checks the address that it really dials,
// after the name was resolved: a name may answer differently each time it is
// asked. In dev, loopback is allowed too, and http there.
func GuardedClient(dev bool) *http.Client {
	dialer := &net.Dialer{
		Timeout: FetchTimeout,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return checkAddress(address, dev)
		},
	}
	return &http.Client{
		Timeout:       FetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return ErrRedirect },
		Transport: guard{dev: dev, next: &http.Transport{
			Proxy:                  nil, // a proxy would dial for us, past the check
			DialContext:            dialer.DialContext,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    FetchTimeout,
			MaxResponseHeaderBytes: MaxFetch,
			MaxIdleConns:           16,
			IdleConnTimeout:        30 * time.Second,
		}},
	}
}

type guard struct {
	dev  bool
	next http.RoundTripper
}

// RoundTrip checks the scheme and bounds the body.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && (!g.dev || r.URL.Scheme != "http" || !loopback(r.URL.Hostname())) {
		return nil, fmt.Errorf("fetch from %s: %w", r.URL.Hostname(), ErrScheme)
	}
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: MaxFetch}
	return resp, nil
}

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read fails when there is more than the bound, where a plain limit would cut
// the answer short and let it pass for whole.
func (b *boundedBody) Read(p []byte) (int, error) {
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if n > b.left {
		return b.left, ErrTooLarge
	}
	b.left -= n
	return n, err
}

// loopback reports whether host is this machine by its name or address.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// reserved are networks that Go's own predicates do not cover: nothing public
// answers there, or something behind a translator does.
var reserved = func() []netip.Prefix {
	var list []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}()

// checkAddress refuses everything that is not a public unicast address; the
// clouds' metadata services are link-local or unique local.
func checkAddress(address string, dev bool) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrAddress, address)
	}
	a := ap.Addr().WithZone("").Unmap()
	if a.IsLoopback() {
		if dev {
			return nil
		}
		return fmt.Errorf("%w: loopback", ErrAddress)
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLinkLocalUnicast() {
		return fmt.Errorf("%w: not public", ErrAddress)
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return fmt.Errorf("%w: reserved", ErrAddress)
		}
	}
	return nil
}
