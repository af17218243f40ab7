package notify

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"switchboard/internal/scope"
)

// sentences puts a scope into one fixed sentence a verb, the same that the pages
// show.
func sentences(s scope.Scope) []string {
	q, l := list(s.Queues), s.Limits
	out := make([]string, 0, len(s.Verbs))
	for _, v := range s.Verbs {
		switch v {
		case scope.CreateFor:
			if l.PerHour == 0 || l.MaxOpen == 0 {
				out = append(out, "may add no todos: a limit is 0")
				continue
			}
			out = append(out, fmt.Sprintf("may add up to %s an hour to %s, with at most %d open at once", todos(l.PerHour), q, l.MaxOpen))
		case scope.TodoStatus:
			out = append(out, "may follow its own todos in "+q+": state, progress, questions, result")
		case scope.ListCreated:
			out = append(out, "may list its own todos in "+q+", and no others")
		case scope.Answer:
			out = append(out, "may answer what is asked about its own todos in "+q)
		case scope.CancelTodo:
			out = append(out, "may cancel its own todos in "+q)
		}
	}
	return out
}

func todos(n int64) string {
	if n == 1 {
		return "1 todo"
	}
	return fmt.Sprintf("%d todos", n)
}

func list(words []string) string {
	switch len(words) {
	case 0:
		return "no queue"
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

func date(t time.Time) string { return t.UTC().Format("2 January 2006") }

// unlink writes addresses in strangers' text so that no mail program turns them
// into links: "Approve at https://…" must not be clickable below our name.
func unlink(text string) string {
	runes := []rune(strings.ReplaceAll(text, "://", "[://]"))
	var b strings.Builder
	at := func(i int) rune {
		if i < 0 || i >= len(runes) {
			return ' '
		}
		return runes[i]
	}
	for i, r := range runes {
		switch {
		case strings.ContainsRune(".。．｡", r) && wordy(at(i-1)) && unicode.IsLetter(at(i+1)) && wordy(at(i+2)),
			r == '@' && wordy(at(i-1)) && wordy(at(i+1)):
			b.WriteString("[" + string(r) + "]")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func wordy(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' }

// quoteWidth is how wide a quoted line may be.
const quoteWidth = 70

// quoteLines puts strangers' words behind "> ", line by line. Long lines are
// broken here: were it left to the reader's program, the rest of a line would
// stand without the mark, as if it were ours.
func quoteLines(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(unlink(text), "\n") {
		for _, piece := range wrap(line, quoteWidth) {
			b.WriteString(strings.TrimRight("> "+piece, " ") + "\n")
		}
	}
	return b.String()
}

// wrap breaks a line at spaces, and within words that are too long.
func wrap(line string, width int) []string {
	var out []string
	runes := []rune(line)
	for len(runes) > width {
		end, skip := width, 0
		for i := width; i > width/2; i-- {
			if runes[i] == ' ' {
				end, skip = i, 1
				break
			}
		}
		out = append(out, string(runes[:end]))
		runes = runes[end+skip:]
	}
	return append(out, string(runes))
}
