package mcp

import (
	jsonv2 "github.com/go-json-experiment/json"

	"switchboard/internal/todo"
)

// VisibleJSON and Prose are for tests of the outside kind.
var (
	VisibleJSON   = visibleJSON
	Prose         = prose
	AppendContent = appendContent
	AppendText    = appendText
	ParseID       = parseID
)

// Marshal is what AppendContent must say, the long way.
func Marshal(v any) ([]byte, error) { return jsonv2.Marshal(v, marshaling) }

// ClaimedList is the result of claim_next.
func ClaimedList(todos ...todo.Claimed) any { return claimedList{Todos: todos} }
