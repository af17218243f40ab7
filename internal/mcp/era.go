package mcp

import (
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mark3labs/mcp-go/mcp"
)

// The eras that are served, newest first. The newest is modern: no handshake,
// every request says what it is. The others begin with initialize, which we do
// not insist on.
const modernVersion = mcp.ProtocolVersion20260728

var versions = []string{modernVersion, mcp.ProtocolVersion20251125, mcp.ProtocolVersion20250618, mcp.ProtocolVersion20250326}

// The members of _meta that a modern request carries.
const (
	metaVersion      = mcp.MetaKeyProtocolVersion
	metaCapabilities = mcp.MetaKeyClientCapabilities
	metaInfo         = mcp.MetaKeyClientInfo
)

// requestMeta is what _meta says about a request.
type requestMeta struct {
	version          string
	capabilities     jsontext.Kind // 0 when absent
	info             jsontext.Kind
	traceparent      string
	broken, repeated bool
}

func readMeta(v jsontext.Value) requestMeta {
	var m requestMeta
	if v == nil {
		return m
	}
	if v.Kind() != '{' {
		m.broken = true
		return m
	}
	r := readText(v)
	defer r.done()
	_, err := r.dec.ReadToken()
	for err == nil && r.dec.PeekKind() != '}' {
		var name []byte
		if name, err = r.name(); err != nil {
			break
		}
		var value jsontext.Value
		if value, err = r.dec.ReadValue(); err != nil {
			break
		}
		switch string(name) {
		case metaVersion:
			m.repeated = m.repeated || m.version != ""
			m.version, _ = stringOf(value)
		case metaCapabilities:
			m.repeated = m.repeated || m.capabilities != 0
			m.capabilities = value.Kind()
		case metaInfo:
			m.info = value.Kind()
		case "traceparent":
			m.traceparent, _ = stringOf(value)
		}
	}
	m.broken = err != nil
	return m
}

// checkEra finds out which era a request belongs to and refuses one whose
// headers and body disagree: an intermediary that routed by the headers and we
// who act on the body must have seen the same request.
func checkEra(hd http.Header, e envelope, m requestMeta) (modern bool, refused *rpcError) {
	mismatch := func(message string) *rpcError {
		return &rpcError{status: http.StatusBadRequest, code: codeHeaderMismatch, message: "Header mismatch: " + message}
	}
	said := hd.Values(mcp.HeaderProtocolVersion)
	if len(said) > 1 {
		return false, mismatch("more than one MCP-Protocol-Version header")
	}
	header := hd.Get(mcp.HeaderProtocolVersion)
	modern = mcp.IsModernProtocol(header) || mcp.IsModernProtocol(m.version)
	switch {
	case m.broken || m.repeated:
		return modern, &rpcError{status: http.StatusBadRequest, code: codeInvalidParams, message: "_meta could not be read"}
	case !modern && header != "" && e.method != "initialize" && !slices.Contains(versions, header):
		return false, unsupported(header)
	case !modern:
		if m.version != "" && header != "" && m.version != header {
			return false, mismatch("MCP-Protocol-Version and " + metaVersion + " differ")
		}
		return false, nil
	case header == "":
		return true, mismatch("MCP-Protocol-Version is missing")
	case m.version == "":
		return true, &rpcError{status: http.StatusBadRequest, code: codeInvalidParams, message: "_meta lacks " + metaVersion}
	case header != m.version:
		return true, mismatch("MCP-Protocol-Version and " + metaVersion + " differ")
	case !slices.Contains(versions, header):
		return true, unsupported(header)
	}
	return true, checkModern(hd, e, m, mismatch)
}

// checkModern checks what else the modern era demands of a request.
func checkModern(hd http.Header, e envelope, m requestMeta, mismatch func(string) *rpcError) *rpcError {
	if e.id == nil {
		return nil // headers of notifications are not defined
	}
	method := hd.Values(mcp.HeaderMethod)
	switch {
	case len(method) != 1:
		return mismatch("Mcp-Method must be there once")
	case method[0] != e.method:
		return mismatch("Mcp-Method and method differ")
	}
	if e.method == "tools/call" || e.method == "resources/read" {
		want := e.name
		if e.method == "resources/read" {
			want = uriOf(e)
		}
		name := hd.Values(mcp.HeaderName)
		if len(name) != 1 {
			return mismatch("Mcp-Name must be there once")
		}
		if decoded, ok := mcp.DecodeHeaderValue(name[0]); !ok || decoded != want {
			return mismatch("Mcp-Name and what params name differ")
		}
	}
	switch {
	case m.capabilities != '{':
		return &rpcError{status: http.StatusBadRequest, code: codeInvalidParams, message: "_meta lacks " + metaCapabilities}
	case m.info != 0 && m.info != '{':
		return &rpcError{status: http.StatusBadRequest, code: codeInvalidParams, message: metaInfo + " must be an object"}
	}
	return nil
}

func unsupported(version string) *rpcError {
	if len(version) > 64 {
		version = version[:64]
	}
	return &rpcError{status: http.StatusBadRequest, code: codeUnsupportedVersion, message: "Unsupported protocol version",
		data: map[string]any{"supported": versions, "requested": version}}
}
