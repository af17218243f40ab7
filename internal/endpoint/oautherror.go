package endpoint

import "net/http"

// OAuthError is an RFC 6749 §5.2 error: invalid_client (401), invalid_target,
// invalid_scope, invalid_grant, invalid_request, invalid_dpop_proof,
// unsupported_grant_type (400). Cause goes to the log only.
type OAuthError struct {
	Code, Description string
	Cause             error
}

// Error gives code and description, and the cause for the log.
func (e *OAuthError) Error() string {
	s := e.Code + ": " + e.Description
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the inside cause.
func (e *OAuthError) Unwrap() error { return e.Cause }

// Status returns the HTTP status that carries the error.
func (e *OAuthError) Status() int {
	switch e.Code {
	case errClient.Code:
		return http.StatusUnauthorized
	case errSlow.Code:
		return http.StatusTooManyRequests
	}
	return http.StatusBadRequest
}

func (e *OAuthError) because(cause error) *OAuthError {
	return &OAuthError{Code: e.Code, Description: e.Description, Cause: cause}
}

// The answers. Each is one body whatever the reason, so that nobody learns from
// it what exists or whose it is.
var (
	errClient = &OAuthError{Code: "invalid_client", Description: "client authentication failed"}
	errTarget = &OAuthError{Code: "invalid_target", Description: "the resource is not open to this client"}
	errScope  = &OAuthError{Code: "invalid_scope", Description: "the scope is beyond what was granted"}
	errGrant  = &OAuthError{Code: "invalid_grant", Description: "the grant is invalid, expired or was used before"}
	errSlow   = &OAuthError{Code: "slow_down", Description: "the key asks for tokens too often; one is good for 15 minutes"}
	errProof  = &OAuthError{Code: "invalid_dpop_proof", Description: "the DPoP proof is missing or invalid"}
)
