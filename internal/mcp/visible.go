package mcp

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"switchboard/internal/quote"
)

// visibleJSON spells characters that hide or reorder text as escapes. The JSON
// keeps its value, and whoever reads it as text, a model first of all, sees
// that they are there.
func visibleJSON(b []byte) []byte {
	at := firstHidden(b)
	if at < 0 {
		return b
	}
	out := make([]byte, at, len(b)+64)
	copy(out, b)
	for i := at; i < len(b); {
		if b[i] < del {
			out = append(out, b[i])
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case !hidden(r):
			out = append(out, b[i:i+n]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}

// del is the only hidden character that JSON text holds in one byte.
const del = 0x7f

func firstHidden(b []byte) int {
	for i := 0; i < len(b); {
		if b[i] < del {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if hidden(r) {
			return i
		}
		i += n
	}
	return -1
}

// hidden reports whether r is a control, format (bidi, zero-width, tags),
// separator or private character: nothing that one sees. Emoji need the joiner;
// its escape keeps their value.
func hidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) || r >= 0xfe00 && r <= 0xfe0d || r >= 0xe0100 && r <= 0xe01ef
}

// bounded shortens what is repeated to a caller in a message.
func bounded(s string) string {
	const most = 64
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	r := []rune(s)
	return string(r[:most]) + "…"
}

// label makes a stranger's name or title fit for a line.
func label(s string) string {
	const most = 300 // longer than anything that is stored as a title
	return quote.Visible(s, most)
}

// prose makes a stranger's text plain and leaves its lines and spaces alone,
// because it may be a program or a table: only what hides or reorders is
// written out, as package quote writes it.
func prose(s string) string {
	if strings.IndexFunc(s, disguised) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if disguised(r) {
			fmt.Fprintf(&b, "⟦U+%04X⟧", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func disguised(r rune) bool { return r != '\n' && r != '\t' && r != '\r' && hidden(r) }
