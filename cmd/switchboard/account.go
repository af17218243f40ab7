package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"switchboard/internal/refusal"
)

// account is a human's instance and API token, kept in a private file. The token
// may read, narrow, pause, revoke and decline; everything else is a browser's.
type account struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	Name  string `json:"name,omitempty"` // what the settings call the token, where login made it
}

func accountFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "switchboard", "account.json"), nil
}

func loadAccount() (account, error) {
	a := account{URL: os.Getenv("SWITCHBOARD_URL"), Token: os.Getenv("SWITCHBOARD_TOKEN")}
	if a.URL != "" && a.Token != "" {
		u, err := instanceURL(a.URL)
		a.URL = u
		return a, err
	}
	path, err := accountFile()
	if err != nil {
		return a, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return a, refusal.New(refusal.Unauthenticated, "not signed in; run: switchboard login <URL of your instance>")
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	a.URL, err = instanceURL(a.URL)
	return a, err
}

// instanceURL checks where a token may go: over https, and over http to this machine only.
func instanceURL(text string) (string, error) {
	u, err := url.Parse(strings.TrimSuffix(text, "/"))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", fmt.Errorf("%q is no URL of an instance", text)
	}
	ip, _ := netip.ParseAddr(u.Hostname())
	if u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip.IsLoopback()) {
		return u.String(), nil
	}
	return "", fmt.Errorf("%q is not https, and a token goes nowhere without it (http is for loopback only)", text)
}

// keep checks that the token is good and writes the account down.
func (a account) keep(ctx context.Context) (name string, err error) {
	var me struct{ Name string }
	if err := a.get(ctx, "/v1/me", &me); err != nil {
		return "", err
	}
	path, err := accountFile()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	return me.Name, os.WriteFile(path, text, 0o600)
}

// do calls the REST interface; a problem becomes an error with its code.
func (a account) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.URL+path, content)
	if err != nil {
		return nil, err
	}
	if a.Token != "" {
		r.Header.Set("Authorization", "Bearer "+a.Token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	// The interface never redirects; who does would have the token carried along.
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w; is %s the instance that you mean, and does it run?", err, a.URL)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		var p struct{ Code, Detail string }
		if json.Unmarshal(b, &p) == nil && p.Code != "" {
			return nil, a.hinted(refusal.New(refusal.Code(p.Code), "%s", p.Detail))
		}
		return nil, fmt.Errorf("%s answers HTTP %d", a.URL, resp.StatusCode)
	}
	return b, nil
}

// hinted adds what mends a refusal.
func (a account) hinted(err *refusal.Error) error {
	switch err.Code {
	case refusal.Unauthenticated:
		return fmt.Errorf("%w; run: switchboard login %s", err, a.URL)
	case refusal.Forbidden:
		return fmt.Errorf("%w; a person does it in the browser: %s", err, a.URL)
	}
	return err
}

func (a account) get(ctx context.Context, path string, into any) error {
	b, err := a.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// all reads a list page by page.
func (a account) all(ctx context.Context, path string) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for cursor := ""; ; {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor string            `json:"next_cursor"`
		}
		if err := a.get(ctx, path+sep+"limit=100&cursor="+url.QueryEscape(cursor), &page); err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if cursor = page.NextCursor; cursor == "" {
			return out, nil
		}
	}
}
