package requester

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"switchboard/internal/refusal"
)

const (
	maxCard   = 64 << 10 // cards, catalogs, token answers
	maxAnswer = 8 << 20  // A2A and MCP answers: a hundred todos with their results
)

// Requester makes the calls. New returns one that is ready.
type Requester struct {
	http    *http.Client
	now     func() time.Time // the requester's own clock; the target judges it with leeway
	retries []time.Duration  // pauses before the next attempts while a target is away
}

// New returns a requester whose every call ends within timeout; 0 means a
// minute, which is longer than a waiting call of the contract takes.
func New(timeout time.Duration) *Requester {
	if timeout == 0 {
		timeout = time.Minute
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = timeout
	return &Requester{
		now:     time.Now,
		retries: []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second},
		http: &http.Client{
			Transport: bounded{transport},
			Timeout:   timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}
}

// patiently calls do again while it answers that the target is away.
func (q *Requester) patiently(ctx context.Context, do func() error) error {
	for attempt := 0; ; attempt++ {
		err := do()
		if refusal.CodeOf(err) != refusal.Unavailable || attempt == len(q.retries) {
			return err
		}
		if err := pause(ctx, q.retries[attempt]); err != nil {
			return err
		}
	}
}

// away makes a failed connection the refusal that it amounts to; a refusal
// stays what it is, and so does the error of a caller who gave up.
func away(ctx context.Context, err error) error {
	var known *refusal.Error
	if err == nil || errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	return refusal.New(refusal.Unavailable, "the instance cannot be reached: %v", err)
}

// bounded is beneath the libraries too: it ends every answer at maxAnswer, for
// those that read whole bodies, and goes only where checkURL lets it, wherever
// an issuer's configuration points.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := checkURL(req.URL.String()); err != nil {
		return nil, err
	}
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// checkURL refuses what is no absolute https URL; http is let through for loopback.
func checkURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no URL", text)
	}
	switch {
	case u.Host == "" || u.User != nil || u.Fragment != "":
		return nil, fmt.Errorf("%q is no plain absolute URL", text)
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return u, nil
	}
	return nil, fmt.Errorf("%q is not https (http is for loopback only)", text)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// within reports whether target is base itself or lies below it.
func within(target, base string) bool {
	return target == base || strings.HasPrefix(target, base+"/")
}

// answer is a whole HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends and reads at most limit bytes of the answer.
func (q *Requester) do(req *http.Request, limit int64) (answer, error) {
	if _, err := checkURL(req.URL.String()); err != nil {
		return answer{}, err
	}
	resp, err := q.http.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", req.Method, req.URL.Redacted(), unwrapURL(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: read: %w", req.Method, req.URL.Redacted(), err)
	}
	if int64(len(body)) > limit {
		return answer{}, fmt.Errorf("%s %s: the answer is larger than %d KiB", req.Method, req.URL.Redacted(), limit>>10)
	}
	return answer{resp.StatusCode, resp.Header, body}, nil
}

// unwrapURL drops the *url.Error, whose text repeats method and URL.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// errNoDocument says that a server answers and has no such document.
var errNoDocument = errors.New("HTTP 404")

// getJSON fetches a public document of at most 64 KiB into out.
func (q *Requester) getJSON(ctx context.Context, target string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("get %q: %w", target, err)
	}
	req.Header.Set("Accept", "application/json, application/linkset+json")
	a, err := q.do(req, maxCard)
	if err != nil {
		return err
	}
	if a.status == http.StatusNotFound {
		return fmt.Errorf("GET %s: %w", target, errNoDocument)
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("GET %s: HTTP %d", target, a.status)
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return fmt.Errorf("GET %s: no JSON of the expected form: %w", target, err)
	}
	return nil
}

// postForm posts to an OAuth endpoint.
func (q *Requester) postForm(ctx context.Context, target string, form url.Values, header http.Header) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, fmt.Errorf("post %q: %w", target, err)
	}
	for name := range header {
		req.Header.Set(name, header.Get(name))
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	return q.do(req, maxCard)
}

func jsonBody(value any) (io.Reader, error) {
	b, err := json.Marshal(value)
	return bytes.NewReader(b), err
}

// pause waits, or returns early with the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
