package mcp

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The JSON-RPC codes that this transport writes itself.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
)

// rpcError is an answer below the tools: a JSON-RPC code and the status that
// carries it in the modern era.
type rpcError struct {
	status  int
	code    int
	message string
	data    any
}

// envelope is one JSON-RPC message, taken apart as far as routing needs.
type envelope struct {
	id     jsontext.Value // nil for a notification
	method string
	params jsontext.Value // nil when absent

	name      string         // params.name
	hasName   bool           //
	arguments jsontext.Value // params.arguments, nil when absent
	meta      jsontext.Value // params._meta, nil when absent
	stray     string         // a member of params that tools/call does not define
}

// lenient lets the envelope be read although something deep inside it is
// wrong, so that a bad argument gets a tool's answer and not a parse error.
// Everything that is acted on is read strictly afterwards.
var lenient = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// parseEnvelope takes a body apart. The parts alias body.
func parseEnvelope(body []byte) (envelope, *rpcError) {
	var e envelope
	bad := func(code int, message string) (envelope, *rpcError) {
		return e, &rpcError{status: 400, code: code, message: message}
	}
	r := readText(body)
	defer r.done()
	switch r.dec.PeekKind() {
	case '[':
		return bad(codeInvalidRequest, "batches are not supported; send one message a request")
	case '{':
	default:
		return bad(codeParse, "the body is not a JSON object")
	}
	var v2 bool
	var seen [4]bool
	once := func(i int) bool { was := seen[i]; seen[i] = true; return !was }
	var structural, params *rpcError
	_, err := r.dec.ReadToken()
	for err == nil && r.dec.PeekKind() != '}' {
		var name []byte
		if name, err = r.name(); err != nil {
			break
		}
		if string(name) == "params" {
			if !once(3) {
				structural = &rpcError{status: 400, code: codeInvalidRequest, message: "duplicate member in the JSON-RPC message"}
			}
			params, err = e.readParams(r, body)
			continue
		}
		var v jsontext.Value
		if v, err = r.dec.ReadValue(); err != nil {
			break
		}
		ok := true
		switch string(name) {
		case "jsonrpc":
			ok = once(0)
			version, _ := stringOf(v)
			v2 = version == "2.0"
		case "id":
			ok = once(1)
			if !goodID(v) {
				structural = &rpcError{status: 400, code: codeInvalidRequest, message: "id must be a string or an integer"}
				break
			}
			e.id = bytes.Clone(v)
		case "method":
			ok = once(2)
			e.method, _ = stringOf(v)
		case "result", "error":
			structural = &rpcError{status: 400, code: codeInvalidRequest, message: "this server sends no requests and takes no responses"}
		default:
			structural = &rpcError{status: 400, code: codeInvalidRequest, message: "unknown member in the JSON-RPC message"}
		}
		if !ok {
			structural = &rpcError{status: 400, code: codeInvalidRequest, message: "duplicate member in the JSON-RPC message"}
		}
	}
	if err == nil {
		_, err = r.dec.ReadToken()
	}
	if err == nil {
		if _, err = r.dec.ReadToken(); errors.Is(err, io.EOF) {
			err = nil
		} else {
			err = io.ErrUnexpectedEOF
		}
	}
	switch {
	case err != nil:
		return bad(codeParse, "the body is not a JSON text")
	case structural != nil:
		return e, structural
	case !v2:
		return bad(codeInvalidRequest, `jsonrpc must be "2.0"`)
	case e.method == "":
		return bad(codeInvalidRequest, "method is missing")
	}
	return e, params
}

// readParams takes params apart, which r comes to next. An error says that the
// body is no JSON; what else is wrong is refused once the message is known to be
// one.
func (e *envelope) readParams(r *reader, body []byte) (refused *rpcError, err error) {
	wrong := func(message string) *rpcError {
		return &rpcError{status: 400, code: codeInvalidParams, message: message}
	}
	if r.dec.PeekKind() != '{' {
		v, err := r.dec.ReadValue()
		e.params = inside(body, v, r.dec.InputOffset())
		return wrong("params must be an object"), err
	}
	if _, err = r.dec.ReadToken(); err != nil {
		return nil, err
	}
	start := r.dec.InputOffset() - 1
	var seen [3]bool
	for r.dec.PeekKind() != '}' {
		name, err := r.name()
		if err != nil {
			return nil, err
		}
		v, err := r.dec.ReadValue()
		if err != nil {
			return nil, err
		}
		at := -1
		switch string(name) {
		case "name":
			at = 0
			e.name, e.hasName = stringOf(v)
		case "arguments":
			at = 1
			e.arguments = inside(body, v, r.dec.InputOffset())
		case "_meta":
			at = 2
			e.meta = inside(body, v, r.dec.InputOffset())
		default:
			e.stray = string(name)
		}
		if at >= 0 {
			if seen[at] {
				refused = wrong("duplicate member in params")
			}
			seen[at] = true
		}
	}
	_, err = r.dec.ReadToken()
	end := r.dec.InputOffset()
	e.params = jsontext.Value(body[start:end:end])
	return refused, err
}

// inside returns v, which the decoder has just read up to offset end of whole,
// as a part of whole: what ReadValue returned does not outlive the next read.
func inside(whole []byte, v jsontext.Value, end int64) jsontext.Value {
	return jsontext.Value(whole[int(end)-len(v) : end : end])
}

// reader reads a JSON text that lies in memory. Readers are used again, because
// making a decoder costs as much as reading an envelope.
type reader struct {
	in   bytes.Buffer
	dec  *jsontext.Decoder
	size int
}

var readers = sync.Pool{New: func() any {
	r := &reader{}
	r.dec = jsontext.NewDecoder(&r.in)
	return r
}}

// readText returns a reader of text. Its user calls done in the end.
func readText(text []byte) *reader {
	r := readers.Get().(*reader)
	r.in, r.size = *bytes.NewBuffer(text), len(text)
	r.dec.Reset(&r.in, lenient)
	return r
}

// done gives the reader back. It goes on pointing to its text until it reads
// another one, so those of large texts are let go.
func (r *reader) done() {
	if r.size <= keepBuffer {
		readers.Put(r)
	}
}

// name reads the name of a member. It is good until the next read.
func (r *reader) name() ([]byte, error) {
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if b, ok := verbatim(v); ok {
		return b, nil
	}
	b, _ := jsontext.AppendUnquote(nil, v) // what is no UTF-8 is replaced
	return b, nil
}

// verbatim is what a string spells as far as that stands in it as it is, which is
// nearly always.
func verbatim(v jsontext.Value) ([]byte, bool) {
	b := v[1 : len(v)-1]
	for _, c := range b {
		if c == '\\' || c >= utf8.RuneSelf {
			return nil, false
		}
	}
	return b, true
}

// stringOf is the string that v spells, and false when it is none.
func stringOf(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	if b, ok := verbatim(v); ok {
		return string(b), true
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return "", false
	}
	return string(b), true
}

// goodID reports whether v may be the id of a request: a string or an integer.
func goodID(v jsontext.Value) bool {
	const longest = 1024
	if len(v) > longest {
		return false
	}
	switch v.Kind() {
	case '"':
		_, ok := stringOf(v)
		return ok
	case '0':
		_, err := strconv.ParseInt(string(v), 10, 64)
		return err == nil
	}
	return false
}
