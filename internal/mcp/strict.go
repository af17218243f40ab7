package mcp

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"switchboard/internal/refusal"
)

// maxDepth bounds the nesting of arguments: a todo's payload is a document,
// not a recursion.
const maxDepth = 64

// checkArguments refuses, in one pass over a syntactically valid JSON text,
// what the decoder would take and nothing behind it can keep: nesting deeper
// than maxDepth, U+0000 (PostgreSQL's json has none, and one such item would
// fail a whole batch) and numbers that no double holds. Duplicate members and
// invalid UTF-8 are the decoder's to refuse.
func checkArguments(b []byte) error {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			end, nul := skipString(b, i)
			if nul {
				return refusal.New(refusal.InvalidArgument, `text must not contain \u0000`)
			}
			i = end
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return refusal.New(refusal.InvalidArgument, "arguments are nested deeper than %d", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			start := i
			for i+1 < len(b) && strings.IndexByte("0123456789+-.eE", b[i+1]) >= 0 {
				i++
			}
			// Fifteen characters without an exponent always fit.
			if n := b[start : i+1]; len(n) > 15 || bytes.ContainsAny(n, "eE") {
				if f, err := strconv.ParseFloat(string(n), 64); err != nil || math.IsInf(f, 0) {
					return refusal.New(refusal.InvalidArgument, "a number is too large")
				}
			}
		}
	}
	return nil
}

// skipString returns the index of the closing quote of the string that opens
// at b[i], and whether the string spells U+0000.
func skipString(b []byte, i int) (end int, nul bool) {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i, nul
		case '\\':
			if bytes.HasPrefix(b[i:], []byte(`\u0000`)) {
				nul = true
			}
			i++
		}
	}
	return len(b), nul
}
