package main

import (
	"fmt"
	"strings"
	"unicode"
)

// plain makes text of strangers safe for a terminal: control, bidi and
// zero-width characters become visible.
func plain(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar {
			fmt.Fprintf(&b, "\\u{%04x}", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
