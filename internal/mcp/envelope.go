package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

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
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), lenient)
	switch dec.PeekKind() {
	case '[':
		return bad(codeInvalidRequest, "batches are not supported; send one message a request")
	case '{':
	default:
		return bad(codeParse, "the body is not a JSON object")
	}
	var version string
	var seen [4]bool
	once := func(i int) bool { was := seen[i]; seen[i] = true; return !was }
	var structural *rpcError
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != '}' {
		var name string
		if name, err = readName(dec); err != nil {
			break
		}
		var v jsontext.Value
		if v, err = dec.ReadValue(); err != nil {
			break
		}
		ok := true
		switch name {
		case "jsonrpc":
			ok = once(0)
			version, _ = stringOf(v)
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
		case "params":
			ok = once(3)
			e.params = inside(body, v, dec.InputOffset())
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
		_, err = dec.ReadToken()
	}
	if err == nil {
		if _, err = dec.ReadToken(); errors.Is(err, io.EOF) {
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
	case version != "2.0":
		return bad(codeInvalidRequest, `jsonrpc must be "2.0"`)
	case e.method == "":
		return bad(codeInvalidRequest, "method is missing")
	}
	return e, e.readParams()
}

// readParams takes params apart.
func (e *envelope) readParams() *rpcError {
	if e.params == nil {
		return nil
	}
	wrong := func(message string) *rpcError {
		return &rpcError{status: 400, code: codeInvalidParams, message: message}
	}
	if e.params.Kind() != '{' {
		return wrong("params must be an object")
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(e.params), lenient)
	_, err := dec.ReadToken()
	var seen [3]bool
	for err == nil && dec.PeekKind() != '}' {
		var name string
		if name, err = readName(dec); err != nil {
			break
		}
		var v jsontext.Value
		if v, err = dec.ReadValue(); err != nil {
			break
		}
		at := -1
		switch name {
		case "name":
			at = 0
			e.name, e.hasName = stringOf(v)
		case "arguments":
			at = 1
			e.arguments = inside(e.params, v, dec.InputOffset())
		case "_meta":
			at = 2
			e.meta = inside(e.params, v, dec.InputOffset())
		default:
			e.stray = name
		}
		if at >= 0 {
			if seen[at] {
				return wrong("duplicate member in params")
			}
			seen[at] = true
		}
	}
	if err != nil {
		return wrong("params could not be read")
	}
	return nil
}

// inside returns v, which the decoder has just read up to offset end of whole,
// as a part of whole: what ReadValue returned does not outlive the next read.
func inside(whole []byte, v jsontext.Value, end int64) jsontext.Value {
	return jsontext.Value(whole[int(end)-len(v) : end : end])
}

func readName(dec *jsontext.Decoder) (string, error) {
	t, err := dec.ReadToken()
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// stringOf is the string that v spells, and false when it is none.
func stringOf(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
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
		_, err := json.Number(v).Int64()
		return err == nil
	}
	return false
}
