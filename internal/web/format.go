package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"switchboard/internal/quote"
)

// functions are what templates can call.
func (s *site) functions() template.FuncMap {
	return template.FuncMap{
		"asset":    func(name string) string { return s.assets.names[name] },
		"said":     func(text string) string { return quote.Visible(text, 200) },
		"saidlong": func(text string) string { return quote.VisibleLines(text, 8000, quote.Kept) },
		"browser":  browser,
		"brief":    func(text string, n int) string { return quote.Visible(text, n) },
		"ago":      func(t time.Time) template.HTML { return timeTag(t, relative(time.Until(t))) },
		"date":     func(t time.Time) template.HTML { return timeTag(t, t.UTC().Format("2 January 2006")) },
		"moment":   func(t time.Time) template.HTML { return timeTag(t, t.UTC().Format("2 Jan 2006, 15:04 UTC")) },
		"issuer":   s.issuerName,
		"host":     hostOf,
		"n":        number,
		"plural":   plural,
		"bytes":    size,
		"json":     prettyJSON,
		"short":    short,
		"icon":     icon,
		"dict":     dict,
		"verb":     verbWords,
		"join":     func(list []string) string { return strings.Join(list, ", ") },
		"public":   func() string { return s.PublicURL },
		"id":       func(id uuid.UUID) string { return id.String() },
		"once":     func() string { return uuid.NewString() },
		"state":    stateWords,
		"inc":      func(n int) int { return n + 1 },
		"set":      func(id uuid.UUID) bool { return id != uuid.Nil },
		"upper":    capital,
		"days":     daysLeft,
		"percent":  percent,
		"client":   clientName,
		"perms":    permissions,
		"event":    newEventRow,
	}
}

// issuerName is what people call an issuer: the operator's name for it, else its host.
func (s *site) issuerName(issuer string) string {
	for _, i := range s.Issuers {
		if i.Issuer == issuer && i.Name != "" {
			return i.Name
		}
	}
	return hostOf(issuer)
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return quote.Visible(address, 80)
	}
	return quote.Visible(u.Host, 80)
}

func timeTag(t time.Time, text string) template.HTML {
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // digits and words of ours
		t.Format(time.RFC3339), t.Format("Monday, 2 January 2006, 15:04:05 UTC"), template.HTMLEscapeString(text)))
}

// relative says how far off a moment is; d is positive for what lies ahead.
func relative(d time.Duration) string {
	ahead := d > 0
	d = d.Abs()
	var text string
	switch {
	case d < 45*time.Second:
		if ahead {
			return "in a moment"
		}
		return "just now"
	case d < 59*time.Minute+30*time.Second:
		text = plural(int64(d.Round(time.Minute)/time.Minute), "minute")
	case d < 23*time.Hour+30*time.Minute:
		text = plural(int64(d.Round(time.Hour)/time.Hour), "hour")
	default:
		text = plural(int64(d.Round(24*time.Hour)/(24*time.Hour)), "day")
	}
	if ahead {
		return "in " + text
	}
	return text + " ago"
}

// number writes an integer with thin groups: 65 536.
func number(v any) string {
	digits := fmt.Sprint(v)
	if len(digits) <= 4 {
		return digits
	}
	var b strings.Builder
	for i, r := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteRune('\u202F')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// plural writes a count with its noun.
func plural(v any, noun string) string {
	text := number(v)
	if text == "1" {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "y") && noun != "day" {
		return text + " " + strings.TrimSuffix(noun, "y") + "ies"
	}
	return text + " " + noun + "s"
}

// size writes bytes in the largest unit that stays exact to a tenth.
func size(v any) string {
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	if err != nil {
		return ""
	}
	for _, u := range []struct {
		unit string
		size int64
	}{{"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64), ".0") + " " + u.unit
		}
	}
	return plural(n, "byte")
}

// percent writes a share, "" for none.
func percent(p *float64) string {
	if p == nil {
		return ""
	}
	return strconv.FormatFloat(*p, 'f', 0, 64)
}

// clientName is a token's client without the prefix that all keys share.
func clientName(client string) string {
	return short(quote.Visible(strings.TrimPrefix(client, "urn:ietf:params:oauth:jwk-thumbprint:sha-256:"), 300))
}

// short abbreviates what only machines compare.
func short(v any) string {
	text := fmt.Sprint(v)
	if len(text) <= 14 {
		return text
	}
	return text[:8] + "…" + text[len(text)-4:]
}

// capital begins a sentence.
func capital(v any) string {
	text := fmt.Sprint(v)
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(r)) + text[size:]
}

// sentence makes a refusal's message one: a capital first and a full stop last.
func sentence(text string) string {
	text = capital(text)
	if text != "" && !strings.ContainsAny(text[len(text)-1:], ".!?") {
		text += "."
	}
	return text
}

func dict(pairs ...any) map[string]any {
	out := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		out[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return out
}

var stateNames = map[string]string{
	"input_required": "needs an answer", "awaiting_sign_in": "waiting for sign-in",
}

// stateWords writes a state for people.
func stateWords(v any) string {
	text := fmt.Sprint(v)
	if words, ok := stateNames[text]; ok {
		return words
	}
	return strings.ReplaceAll(text, "_", " ")
}

// prettyJSON writes a value for reading, its strings made visible.
func prettyJSON(v any) string {
	if raw, ok := v.(json.RawMessage); ok {
		var b bytes.Buffer
		if json.Indent(&b, raw, "", "  ") == nil {
			return quote.VisibleLines(b.String(), 20000, quote.Indented)
		}
		return quote.VisibleLines(string(raw), 20000, quote.Indented)
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return ""
	}
	return quote.VisibleLines(string(b), 20000, quote.Indented)
}
