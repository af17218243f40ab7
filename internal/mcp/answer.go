package mcp

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"

	"switchboard/internal/refusal"
)

// serverName is what this program calls itself towards clients.
const serverName = "switchboard"

// marshaling writes the wire members: absent lists as [], zero values under
// omitempty left out as package todo means it, times in UTC. It does not insist
// on documents that have one reading only, which is checked when they come in:
// one that was kept before must not spoil the answer for those beside it.
var marshaling = jsonv2.JoinOptions(
	jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	jsonv1.OmitEmptyWithLegacySemantics(true),
	jsonv2.FormatNilSliceAsNull(false),
	jsonv2.WithMarshalers(jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, t time.Time) error {
		return enc.WriteToken(jsontext.String(t.UTC().Format(time.RFC3339Nano)))
	})),
)

// modernMembers are the members that every modern result ends with.
func modernMembers(version string) []byte {
	info, err := json.Marshal(map[string]any{
		"resultType": mcp.ResultTypeComplete,
		"_meta":      map[string]any{mcp.MetaKeyServerInfo: map[string]string{"name": serverName, "version": version}},
	})
	if err != nil {
		panic(err) // two strings
	}
	info[0] = ','
	return info[:len(info)-1]
}

// answers hold what is written, so that an answer leaves in one piece.
var answers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// result writes a tool's result: the value as structuredContent and the same
// JSON as text, for clients that show a model nothing else.
func (x *exchange) result(v any) { x.tool(v, false) }

// failure writes an error of the domain as a tool's result, so that a model
// reads it and can do better.
func (x *exchange) failure(err error) {
	x.tool(map[string]any{"error": x.errorObject(err)}, true)
}

func (x *exchange) tool(v any, isError bool) {
	p := answers.Get().(*[]byte)
	b, err := appendContent((*p)[:0], v)
	if err != nil {
		x.h.Log.ErrorContext(x.ctx, "mcp: encode a result", "error", err)
		x.refuse(&rpcError{status: http.StatusOK, code: codeInternal, message: "something went wrong on our side"})
		return
	}
	// The answer follows the content in the same buffer.
	n := len(b)
	content := visibleJSON(b)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, x.id...)
	b = append(b, `,"result":{"content":[{"type":"text","text":`...)
	b = appendText(b, content)
	b = append(b, `}],"structuredContent":`...)
	b = append(b, content...)
	if isError {
		b = append(b, `,"isError":true`...)
	}
	if x.modern {
		b = append(b, x.h.modern...)
	}
	b = append(b, "}}"...)
	writeJSON(x.w, http.StatusOK, b[n:])
	if *p = b; cap(b) <= keepBuffer {
		answers.Put(p)
	}
}

// appendText appends JSON as a JSON string. Of what a string must not hold as it
// is, JSON without white space has only these two.
func appendText(b, content []byte) []byte {
	b = append(slices.Grow(b, len(content)+len(content)/4), '"')
	for _, c := range content {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

// reply writes a result that is no tool's, in the modern era.
func (x *exchange) reply(result map[string]any) {
	result["resultType"] = mcp.ResultTypeComplete
	result["_meta"] = map[string]any{mcp.MetaKeyServerInfo: map[string]string{"name": serverName, "version": x.h.Version}}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(x.id), "result": result})
	if err != nil {
		plainError(x.w, http.StatusInternalServerError, "something went wrong on our side")
		return
	}
	writeJSON(x.w, http.StatusOK, b)
}

// errorBody is the error of a call or of one item.
type errorBody struct {
	Code              refusal.Code `json:"code"`
	Message           string       `json:"message"`
	RetryAfterSeconds int64        `json:"retry_after_seconds,omitempty"`
	RequestID         string       `json:"request_id"`
}

// errorObject turns err into what may be told, and logs what may not.
func (x *exchange) errorObject(err error) errorBody {
	e := refusal.From(err)
	b := errorBody{Code: e.Code, Message: e.Message, RequestID: x.requestID()}
	if e.RetryAfter > 0 {
		b.RetryAfterSeconds = int64((e.RetryAfter + time.Second - 1) / time.Second)
	}
	if e.Code == refusal.Internal {
		x.h.Log.ErrorContext(x.ctx, "mcp: tools/call", "request_id", b.RequestID, "endpoint", x.caller.Endpoint.ID, "error", err)
	}
	return b
}

const requestIDHeader = "X-Request-Id"

// requestID is the id that the server gave this request, or a new one.
func (x *exchange) requestID() string {
	if x.rid == "" {
		x.rid = x.w.Header().Get(requestIDHeader)
	}
	if x.rid == "" {
		id, err := uuid.NewV7()
		if err != nil {
			id = uuid.New()
		}
		x.rid = id.String()
	}
	x.w.Header().Set(requestIDHeader, x.rid)
	return x.rid
}

// noTool answers a tool that the caller does not have.
func (x *exchange) noTool() {
	x.refuse(&rpcError{status: http.StatusBadRequest, code: codeInvalidParams, message: "Unknown tool"})
}

// refuse writes a JSON-RPC error. Errors of the message itself carry their
// status in every era; what is wrong with params is 200 before the modern one.
func (x *exchange) refuse(e *rpcError) {
	status := e.status
	if !x.modern && e.code == codeInvalidParams {
		status = http.StatusOK
	}
	writeRPCErrorData(x.w, x.id, status, e.code, e.message, e.data)
}

func writeRPCError(w http.ResponseWriter, id jsontext.Value, status, code int, message string) {
	writeRPCErrorData(w, id, status, code, message, nil)
}

func writeRPCErrorData(w http.ResponseWriter, id jsontext.Value, status, code int, message string, data any) {
	if id == nil {
		id = jsontext.Value("null")
	}
	b, err := json.Marshal(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Data    any    `json:"data,omitempty"`
		} `json:"error"`
	}{JSONRPC: "2.0", ID: json.RawMessage(id), Error: struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}{code, message, data}})
	if err != nil {
		plainError(w, http.StatusInternalServerError, "something went wrong on our side")
		return
	}
	writeJSON(w, status, b)
}

// contentType is shared by all answers: a header's values are only read.
var contentType = []string{"application/json"}
var noStore = []string{"no-store"}

// countedByServer is from which length on net/http does not find out by itself
// how long an answer is that is written at once.
const countedByServer = 2048

func writeJSON(w http.ResponseWriter, status int, b []byte) {
	hd := w.Header()
	hd["Content-Type"] = contentType
	hd["Cache-Control"] = noStore
	if len(b) >= countedByServer {
		hd["Content-Length"] = []string{strconv.Itoa(len(b))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
