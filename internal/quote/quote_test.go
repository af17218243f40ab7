package quote_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"switchboard/internal/quote"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Hand you pull requests.":           "Hand you pull requests.",
		"Grüße, \u4e16\u754c, नमस्ते, שלום": "Grüße, \u4e16\u754c, नमस्ते, שלום",
		"😀 fine":                                 "😀 fine",
		"a\u202Eevil":                            "a⟦U+202E⟧evil",
		"pay\u200Bpal":                           "pay⟦U+200B⟧pal",
		"\u2066x\u2069":                          "⟦U+2066⟧x⟦U+2069⟧",
		"tag\U000E0041":                          "tag⟦U+E0041⟧",
		"a\u00A0b\u3000c":                        "a⟦U+00A0⟧b⟦U+3000⟧c",
		"nul\x00esc\x1b[31m":                     "nul⟦U+0000⟧esc⟦U+001B⟧[31m",
		"bad\xffutf":                             "bad⟦0xFF⟧utf",
		"one\r\ntwo\nthree\u2028four":            "one two three four",
		"  lots \t  of \n space  ":               "lots of space",
		"⟦U+0041⟧":                               "⟦U+27E6⟧U+0041⟦U+27E7⟧",
		"\u0301x":                                "⟦U+0301⟧x",
		"e\u0301":                                "e\u0301",
		"z" + strings.Repeat("\u0302", 50) + "!": "z\u0302\u0302\u0302\u0302⟦U+0302⟧!",
		"\uE000\U000F0000\u3164\u2800":           "⟦U+E000⟧⟦U+F0000⟧⟦U+3164⟧⟦U+2800⟧",
		"":                                       "",
	} {
		require.Equal(t, want, quote.Visible(in, 100), "%q", in)
	}
	require.Equal(t, "abc…", quote.Visible("abcd", 3))
	require.Equal(t, "abc", quote.Visible("abc", 3))
	require.Empty(t, quote.Visible("abc", 0))
}

func TestVisibleLines_KeepsParagraphs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "one\ntwo\n\nthree", quote.VisibleLines("\n\none\r\ntwo\n \n\n\n\nthree\n\n", 100, quote.Kept))
}

func TestVisibleLines_KeepsIndentation(t *testing.T) {
	t.Parallel()
	require.Equal(t, "{\n  \"a\": 1\n}", quote.VisibleLines("{\n  \"a\":   1\n}", 100, quote.Indented))
	require.Equal(t, "a\n"+strings.Repeat(" ", 32)+"b", quote.VisibleLines("a\n"+strings.Repeat(" ", 500)+"b", 100, quote.Indented))
}

func FuzzVisible(f *testing.F) {
	for _, s := range []string{"plain", "a\u202Eb", "\xff", "e\u0301\u0301\u0301\u0301\u0301\u0301", "\r\n\r\n\r\n", "⟦"} {
		f.Add(s, 10, true)
		f.Add(s, 3, false)
	}
	f.Fuzz(func(t *testing.T, s string, most int, kept bool) {
		if most > 1000 {
			most %= 1000
		}
		lines := quote.AsSpace
		if kept {
			lines = quote.Kept
		}
		out := quote.VisibleLines(s, most, lines)
		require.True(t, utf8.ValidString(out))
		require.LessOrEqual(t, utf8.RuneCountInString(out), 10*5*(max(most, 0)+1), "bounded, with its marks and written-out characters")
		marks, breaks := 0, 0
		for _, r := range out {
			if unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc) {
				marks++
			} else {
				marks = 0
			}
			if r == '\n' {
				breaks++
			} else {
				breaks = 0
			}
			require.LessOrEqual(t, marks, 4)
			require.LessOrEqual(t, breaks, 2)
			require.True(t, kept || r != '\n')
			require.False(t, r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)), "%U", r)
		}
	})
}
