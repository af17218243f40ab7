// Package refusal is the one error type that crosses rooms: a stable code for
// programs, a message for people outside, and a cause that stays inside.
//
// Domain packages return *Error for everything a caller can be told; any other
// error is a fault of ours and leaves the process only as Internal with a
// constant message. Codes and their HTTP statuses are those of the wire
// contract (specs/protocol.md, sections 3 and 5).
package refusal

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Code is a stable, lower-case name that outsiders may switch on.
type Code string

// The codes of the wire contract.
const (
	Unauthenticated Code = "unauthenticated"
	Forbidden       Code = "forbidden"
	NotFound        Code = "not_found"
	Conflict        Code = "conflict"
	LeaseLost       Code = "lease_lost"
	InvalidArgument Code = "invalid_argument"
	PayloadTooLarge Code = "payload_too_large"
	RateLimited     Code = "rate_limited"
	QuotaExceeded   Code = "quota_exceeded"
	Unavailable     Code = "unavailable"
	Internal        Code = "internal"
	// PreconditionFailed answers an If-Match that no longer holds (RFC 9110 §13.1.1).
	PreconditionFailed Code = "precondition_failed"
	// MethodNotAllowed answers a method that a known path has not (RFC 9110 §15.5.6).
	MethodNotAllowed Code = "method_not_allowed"
)

// The provenance reasons; each is HTTP 401.
const (
	ProvenanceMissing Code = "provenance_missing"
	IssuerUntrusted   Code = "issuer_untrusted"
	IDTokenSignature  Code = "id_token_signature"
	IDTokenAudience   Code = "id_token_audience"
	NonceMismatch     Code = "nonce_mismatch"
	StatementInvalid  Code = "statement_invalid"
	IDTokenExpired    Code = "id_token_expired"
	StatementReplayed Code = "statement_replayed"
	IssuerCondition   Code = "issuer_condition"
)

var statusOf = map[Code]int{
	Unauthenticated:    http.StatusUnauthorized,
	Forbidden:          http.StatusForbidden,
	NotFound:           http.StatusNotFound,
	Conflict:           http.StatusConflict,
	LeaseLost:          http.StatusConflict,
	InvalidArgument:    http.StatusUnprocessableEntity,
	PayloadTooLarge:    http.StatusRequestEntityTooLarge,
	RateLimited:        http.StatusTooManyRequests,
	QuotaExceeded:      http.StatusTooManyRequests,
	Unavailable:        http.StatusServiceUnavailable,
	Internal:           http.StatusInternalServerError,
	PreconditionFailed: http.StatusPreconditionFailed,
	MethodNotAllowed:   http.StatusMethodNotAllowed,
	ProvenanceMissing:  http.StatusUnauthorized,
	IssuerUntrusted:    http.StatusUnauthorized,
	IDTokenSignature:   http.StatusUnauthorized,
	IDTokenAudience:    http.StatusUnauthorized,
	NonceMismatch:      http.StatusUnauthorized,
	StatementInvalid:   http.StatusUnauthorized,
	IDTokenExpired:     http.StatusUnauthorized,
	StatementReplayed:  http.StatusUnauthorized,
	IssuerCondition:    http.StatusUnauthorized,
}

// HTTP returns the status that carries the code over REST.
func (c Code) HTTP() int {
	if s, ok := statusOf[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Provenance reports whether c is one of the reasons of the provenance table,
// whose answers over A2A are HTTP 401.
func (c Code) Provenance() bool {
	switch c {
	case ProvenanceMissing, IssuerUntrusted, IDTokenSignature, IDTokenAudience, NonceMismatch,
		StatementInvalid, IDTokenExpired, StatementReplayed, IssuerCondition:
		return true
	}
	return false
}

// Error is a refusal: Message may be shown to anyone who made the call, Cause
// goes to the log only.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // zero when the caller need not be told
	Field      string        // name of the offending member, when there is one
	Cause      error
}

// New makes a refusal with a message for outside.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes an InvalidArgument about one member of the input.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: InvalidArgument, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Because returns a copy of e that carries an inside cause.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// After returns a copy of e that tells the caller when to try again.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// Error gives code and message, and the cause for the log.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the inside cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, refusal.New(code, "")) compare by code alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// From returns err as a refusal: itself when it is one, else Internal with a
// constant message and err as the cause, so that no inside text gets out.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Message: "something went wrong on our side", Cause: err}
}

// CodeOf returns the code of err, Internal for an error that is no refusal and
// "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}
