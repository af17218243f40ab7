package oauth

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"switchboard/internal/endpoint"
)

// maxForm bounds every body here, in bytes.
const maxForm = 64 << 10

// form are parameters, each of which came at most once.
type form map[string]string

// readForm reads the body of a POST. What is wrong is invalid_request.
func readForm(w http.ResponseWriter, r *http.Request) (form, int, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, http.StatusBadRequest, invalid("the body must be application/x-www-form-urlencoded")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, http.StatusRequestEntityTooLarge, invalid("the body is larger than 64 KiB")
	}
	if err != nil {
		return nil, http.StatusBadRequest, invalid("the body cannot be read")
	}
	f, err := parseForm(string(body))
	return f, http.StatusBadRequest, err
}

// parseForm refuses what two readers could understand in two ways: parameters
// more than once (RFC 6749 §3.2), semicolons, broken escapes. An empty value is
// no value (RFC 6749 §3.1).
func parseForm(text string) (form, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, invalid("the parameters cannot be read")
	}
	f := form{}
	for name, list := range values {
		if len(list) > 1 {
			return nil, invalid("a parameter was given more than once")
		}
		if list[0] != "" {
			f[name] = list[0]
		}
	}
	return f, nil
}

// scope splits a scope parameter (RFC 6749 §3.3); nil when there is none.
func (f form) scope() []string {
	list := strings.Split(f["scope"], " ")
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" })
	if len(list) == 0 {
		return nil
	}
	return list
}

func invalid(description string) *endpoint.OAuthError {
	return &endpoint.OAuthError{Code: "invalid_request", Description: description}
}
