package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"switchboard/internal/quote"
)

// terminal asks a human, when there is one: on anything but a terminal it asks nothing.
type terminal struct {
	in    *bufio.Reader // one for all questions, or a line that waits in its buffer is lost
	out   io.Writer
	human bool
}

func terminalOf(c *cobra.Command) *terminal {
	f, ok := c.InOrStdin().(*os.File)
	return &terminal{in: bufio.NewReader(c.InOrStdin()), out: c.ErrOrStderr(), human: ok && term.IsTerminal(int(f.Fd()))}
}

// fill asks for what is missing; what is there already is left.
func (t *terminal) fill(value *string, question string) {
	if !t.human || strings.TrimSpace(*value) != "" {
		return
	}
	fmt.Fprint(t.out, question+" ")
	line, _ := t.in.ReadString('\n')
	*value = strings.TrimSpace(line)
}

// confirm asks for a yes.
func (t *terminal) confirm(question string) bool {
	fmt.Fprint(t.out, question+" [y/N] ")
	line, _ := t.in.ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// printJSON prints a value with every character that a terminal would obey, or
// not show, as an escape: it may hold strangers' words, and stays the same JSON.
func printJSON(w io.Writer, value any) error {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, r := range string(b) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			text.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&text, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&text, `\u%04x\u%04x`, high, low)
		}
	}
	_, err = fmt.Fprintln(w, text.String())
	return err
}

// plain makes strangers' text safe for a line on a terminal; a URL fits.
func plain(text string) string { return quote.Visible(text, 2000) }

// plainLines is plain for text that has lines: an error may quote what a stranger said.
func plainLines(text string) string { return quote.VisibleLines(text, 8000, quote.Indented) }
