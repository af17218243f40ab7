package quote

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Newlines says what becomes of line breaks.
type Newlines int

// The treatments of line breaks.
const (
	// AsSpace joins lines with a single space: for names, titles and anything that stands in a row of ours.
	AsSpace Newlines = iota
	// Kept leaves them, at most two in a row: for reasons and bodies shown as a block.
	Kept
	// Indented leaves spaces at the start of a line too, up to 32: for JSON and code.
	Indented
)

// maxIndent is how far Indented lets a line begin to the right.
const maxIndent = 32

// maxMarks is how many combining marks one character may carry. Scripts that
// need them use up to four; more is made to run over neighbouring lines.
const maxMarks = 4

// Ellipsis ends text that was longer than allowed.
const Ellipsis = "…"

// Visible returns s for a place in a line: at most the given number of characters, line breaks
// as spaces, and every character that is not seen, or that changes how others
// are seen, written out as ⟦U+202E⟧.
func Visible(s string, most int) string { return VisibleLines(s, most, AsSpace) }

// VisibleLines is Visible with a choice of what becomes of line breaks.
func VisibleLines(s string, most int, lines Newlines) string {
	if most <= 0 {
		return ""
	}
	w := writer{most: most, lines: lines}
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == '\r' && strings.HasPrefix(s[i:], "\r\n") {
			i++ // one break
			continue
		}
		bad := r == utf8.RuneError && size == 1
		if !w.character(r, bad, s[i:i+size]) {
			break
		}
		i += size
	}
	return strings.TrimRight(w.text.String(), " \n")
}

// writer holds what the next character depends on.
type writer struct {
	text   strings.Builder
	most   int
	lines  Newlines
	count  int // characters of the source, or 1 for each that is written out
	marks  int // combining marks on the current character
	breaks int // line breaks in a row
	indent int // spaces at the start of the line
	space  bool
}

// character adds one and reports whether more may follow.
func (w *writer) character(r rune, bad bool, raw string) bool {
	switch {
	case bad:
		return w.plain(fmt.Sprintf("⟦0x%02X⟧", raw[0]))
	case r == '\n' || r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029:
		return w.lineBreak()
	case (r == ' ' || r == '\t') && w.lines == Indented && w.breaks > 0 && w.indent < maxIndent:
		w.text.WriteByte(' ') // costs nothing: it is bounded by the lines
		w.indent++
		return true
	case r == ' ' || r == '\t':
		if w.space || w.breaks > 0 || w.text.Len() == 0 {
			return true // runs of spaces push text out of sight
		}
		ok := w.plain(" ")
		w.space = ok
		return ok
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc) && !written(r):
		return w.mark(r)
	case written(r):
		return w.plain(fmt.Sprintf("⟦U+%04X⟧", r))
	}
	return w.plain(string(r))
}

func (w *writer) plain(text string) bool {
	if w.count >= w.most {
		w.text.WriteString(Ellipsis)
		return false
	}
	w.text.WriteString(text)
	w.count++
	w.marks, w.breaks, w.indent, w.space = 0, 0, 0, false
	return true
}

func (w *writer) lineBreak() bool {
	if w.text.Len() == 0 {
		return true
	}
	if w.lines == AsSpace {
		return w.character(' ', false, " ")
	}
	if w.breaks >= 2 {
		return true
	}
	breaks := w.breaks
	ok := w.plain("\n")
	w.breaks = breaks + 1
	return ok
}

// mark adds a combining mark to the character before it. The first one too many
// is written out, the rest is left away.
func (w *writer) mark(r rune) bool {
	w.marks++
	marks := w.marks
	ok := true
	switch {
	case w.text.Len() == 0 || w.space || w.breaks > 0 || marks == maxMarks+1:
		// On nothing, it would sit on our own text.
		ok = w.plain(fmt.Sprintf("⟦U+%04X⟧", r))
	case marks <= maxMarks:
		w.text.WriteRune(r)
	}
	w.marks = marks
	return ok
}

// written reports whether a character is written out: it cannot be seen, or
// turns, joins or hides others.
func written(r rune) bool {
	switch {
	case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs):
		return true // bidi controls, zero-width joiners, tags, soft hyphen, private use
	case r != ' ' && unicode.Is(unicode.Zs, r):
		return true // look like a space and are none
	case r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0100 && r <= 0xE01EF, r >= 0x180B && r <= 0x180F:
		return true // variation selectors
	case r == 0x115F, r == 0x1160, r == 0x3164, r == 0xFFA0, r == 0x17B4, r == 0x17B5, r == 0x034F, r == 0x2800, r == 0x2065:
		return true // fillers that show nothing
	case r == '⟦', r == '⟧':
		return true // our own brackets
	case !unicode.IsGraphic(r):
		return true // unassigned
	}
	return false
}
