package oauth

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const maxURL = 1024 // bytes of a client id or redirect

var privateScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// forbiddenSchemes run something, or show something in our name, instead of
// handing the answer to a program.
var forbiddenSchemes = []string{"javascript", "data", "vbscript", "file", "blob", "about", "view-source", "ws", "wss", "ftp", "mailto", "tel"}

// checkRedirect refuses a redirect to which no code may go: https, http on
// loopback (RFC 8252 §7.3), or a scheme of the client's own (§7.1).
func checkRedirect(text string) (*url.URL, error) {
	if len(text) > maxURL || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
		return nil, errors.New("redirect_uri is too long or has characters that a URL has not")
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return nil, errors.New("redirect_uri is no absolute URL")
	}
	if u.Fragment != "" || strings.Contains(text, "#") || u.User != nil {
		return nil, errors.New("redirect_uri must have neither fragment nor user")
	}
	switch u.Scheme {
	case "https":
		if u.Hostname() == "" {
			return nil, errors.New("redirect_uri has no host")
		}
	case "http":
		if !loopback(u) {
			return nil, errors.New("redirect_uri must be https, except on loopback")
		}
	default:
		if !privateScheme.MatchString(u.Scheme) || slices.Contains(forbiddenSchemes, u.Scheme) {
			return nil, errors.New("redirect_uri has a scheme that is not allowed")
		}
	}
	return u, nil
}

func loopback(u *url.URL) bool {
	switch u.Hostname() {
	case "127.0.0.1", "::1", "localhost":
		return true
	}
	return false
}

// matchRedirect finds the registered redirect that the sent one is: the same
// string, or on loopback the same but for the port.
func matchRedirect(registered []string, sent string) (match string, ok bool) {
	u, err := checkRedirect(sent)
	if err != nil {
		return "", false
	}
	for _, r := range registered {
		if r == sent {
			return r, true
		}
	}
	if u.Scheme != "http" {
		return "", false
	}
	for _, r := range registered {
		v, err := checkRedirect(r)
		if err == nil && v.Scheme == "http" && v.Hostname() == u.Hostname() && v.EscapedPath() == u.EscapedPath() && v.RawQuery == u.RawQuery {
			return r, true
		}
	}
	return "", false
}

// withAnswer adds the answer to a redirect's query.
func withAnswer(redirect string, answer url.Values) string {
	separator := "?"
	switch at := strings.IndexByte(redirect, '?'); {
	case at == len(redirect)-1:
		separator = ""
	case at >= 0:
		separator = "&"
	}
	return redirect + separator + answer.Encode()
}

// formTarget is what a content security policy has to allow so that a form's
// answer may lead to the redirect. Its grammar has no IPv6 addresses.
func formTarget(u *url.URL) string {
	if u.Scheme != "http" && u.Scheme != "https" || strings.Contains(u.Host, "[") {
		return u.Scheme + ":"
	}
	return u.Scheme + "://" + u.Host
}
