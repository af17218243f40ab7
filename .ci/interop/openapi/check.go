package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	wrong "github.com/pb33f/libopenapi-validator/errors"
)

// failed counts the checks that did not hold.
var failed int

func check(what string, ok bool, seen ...any) {
	if ok {
		fmt.Println("ok  ", what)
		return
	}
	failed++
	fmt.Println("FAIL", what+":", fmt.Sprint(seen...))
}

// judge sends a client's requests on and holds each exchange against the document.
type judge struct {
	validator.Validator
	mu    sync.Mutex
	seen  int
	wrong []error
}

func newJudge(file string) (*judge, []error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, []error{err}
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		return nil, []error{err}
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		return nil, errs
	}
	return &judge{Validator: v}, nil
}

func (j *judge) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.URL.Path == "/login" || r.URL.Path == "/login/callback" || r.URL.Path == "/authorize" {
		return answer, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	validate := j.ValidateHttpRequestResponse
	if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
		validate = j.ValidateHttpResponse // the request was meant to be wrong
	}
	_, about := validate(r, answer)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen++
	for _, e := range about {
		j.wrong = append(j.wrong, fmt.Errorf("%s %s: %s", r.Method, r.URL.Path, explained(e)))
	}
	return answer, nil
}

func explained(e *wrong.ValidationError) string {
	text := e.Message + ": " + e.Reason
	for _, s := range e.SchemaValidationErrors {
		text += "; " + s.Reason + " at " + s.FieldPath
	}
	return text
}

func (j *judge) verdict() error { return errors.Join(j.wrong...) }
