package a2a

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/errordetails"

	"switchboard/internal/refusal"
)

// Domain is the ErrorInfo domain of our own reasons.
const Domain = "switchboard"

// rpcError is a JSON-RPC error with the HTTP status that carries it.
type rpcError struct {
	status  int
	code    int
	message string
	reason  string
	domain  string
	retry   int // seconds
}

// Error gives the message.
func (e *rpcError) Error() string { return e.message }

// standard makes an error of A2A or JSON-RPC itself: their codes, reasons and
// domain, HTTP 200.
func standard(code int, kind error, message string) *rpcError {
	return &rpcError{status: http.StatusOK, code: code, message: message, reason: a2a.ErrorReason(kind), domain: a2a.ProtocolDomain}
}

var (
	errParseError        = standard(-32700, a2a.ErrParseError, "the body is no JSON text")
	errInvalidRequest    = standard(-32600, a2a.ErrInvalidRequest, "not a JSON-RPC 2.0 request")
	errMethodNotFound    = standard(-32601, a2a.ErrMethodNotFound, "there is no such method in this A2A version")
	errTaskNotFound      = standard(-32001, a2a.ErrTaskNotFound, "task not found")
	errTaskNotCancelable = standard(-32002, a2a.ErrTaskNotCancelable, "the task has ended and cannot be canceled")
	errPush              = standard(-32003, a2a.ErrPushNotificationNotSupported, "push notifications are not supported")
	errUnsupported       = standard(-32004, a2a.ErrUnsupportedOperation, "this operation is not supported")
	errNotAContinuation  = standard(-32004, a2a.ErrUnsupportedOperation, "a friend request takes no further messages; send a new one without taskId")
	errContentType       = standard(-32005, a2a.ErrUnsupportedContentType, "this agent takes one data part, a friend request, and no work; work is handed over through MCP once a person has approved")
	errBodyType          = standard(-32005, a2a.ErrUnsupportedContentType, "the body must be application/json")
	errExtensionRequired = standard(-32008, a2a.ErrExtensionSupportRequired, "declare "+Extension+" in A2A-Extensions")
	errVersionUnknown    = standard(-32009, a2a.ErrVersionNotSupported, "supported A2A versions are 1.0 and 0.3")
)

// notFound is the reason of refusal.NotFound, which about tasks is errTaskNotFound.
var notFound = strings.ToUpper(string(refusal.NotFound))

func invalidParams(message string) *rpcError {
	return standard(-32602, a2a.ErrInvalidParams, message)
}

// errorOf turns a refusal of a domain package into its answer.
func errorOf(err error) *rpcError {
	var ready *rpcError
	if errors.As(err, &ready) {
		return ready
	}
	e := refusal.From(err)
	out := &rpcError{
		status: http.StatusOK, code: -32602, message: e.Message, reason: strings.ToUpper(string(e.Code)), domain: Domain,
		retry: int(math.Ceil(e.RetryAfter.Seconds())),
	}
	switch {
	case e.Code.Provenance(), e.Code == refusal.Unauthenticated:
		out.status = http.StatusUnauthorized
	case e.Code == refusal.PayloadTooLarge:
		out.status = http.StatusRequestEntityTooLarge
	case e.Code == refusal.RateLimited, e.Code == refusal.QuotaExceeded:
		out.status = http.StatusTooManyRequests
		out.retry = max(out.retry, 1)
	case e.Code == refusal.Internal, e.Code == refusal.Unavailable:
		out.code = -32603
	}
	return out
}

func (e *rpcError) details() []*errordetails.Typed {
	d := []*errordetails.Typed{errordetails.NewErrorInfo(e.reason, e.domain, nil)}
	if e.retry > 0 {
		d = append(d, errordetails.NewTyped("type.googleapis.com/google.rpc.RetryInfo", map[string]any{"retryDelay": strconv.Itoa(e.retry) + "s"}))
	}
	return d
}

type errorBody struct {
	Code    int                   `json:"code"`
	Message string                `json:"message"`
	Data    []*errordetails.Typed `json:"data"`
}

type answer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *errorBody      `json:"error,omitempty"`
}

func (c *call) fail(err error) {
	e := errorOf(err)
	if e.reason == notFound { // the persona went off while this request was on its way
		unknown(c.w)
		return
	}
	if e.code == -32603 {
		c.Log.ErrorContext(c.r.Context(), "a2a", "error", err)
	}
	head := c.w.Header()
	switch e.status {
	case http.StatusUnauthorized:
		challenge := "Bearer"
		if e.reason == "UNAUTHENTICATED" {
			challenge += ` resource_metadata="` + c.PublicURL + "/.well-known/oauth-protected-resource/a2a/" + c.persona.Slug + `"`
		}
		head.Set("WWW-Authenticate", challenge)
	case http.StatusTooManyRequests:
		head.Set("Retry-After", strconv.Itoa(e.retry))
	}
	c.write(e.status, answer{JSONRPC: "2.0", ID: c.id(), Error: &errorBody{Code: e.code, Message: e.message, Data: e.details()}})
}

func (c *call) succeed(result any) {
	c.write(http.StatusOK, answer{JSONRPC: "2.0", ID: c.id(), Result: result})
}

func (c *call) write(status int, a answer) {
	b, err := json.Marshal(a)
	if err != nil {
		c.Log.ErrorContext(c.r.Context(), "encode A2A answer", "error", err)
		c.w.WriteHeader(http.StatusInternalServerError)
		return
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b)
}
