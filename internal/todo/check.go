package todo

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/go-json-experiment/json/jsontext"

	"switchboard/internal/refusal"
)

// Bounds of what callers send (specs/protocol.md section 5).
const (
	maxTitle     = 200      // characters
	maxKey       = 200      // characters, of idempotency keys and claim ids
	maxBody      = 64 << 10 // bytes
	maxText      = 16 << 10 // bytes, of questions, answers, errors and messages
	maxNote      = 2000     // characters, of a progress note
	maxResult    = 1 << 20  // bytes
	maxArtifacts = 100      // in one call
	maxItems     = 100      // in one batch
	maxClaim     = 100      // todos in one claim
	maxLease     = 86400 * time.Second
	defaultLease = 300 * time.Second
	maxWait      = 50 * time.Second
	maxRetry     = 30 * 24 * time.Hour
	// homePayload stands for the scope's limit where there is no scope.
	homePayload = 1 << 20
)

// plain checks text that may be empty: valid UTF-8 without NUL, which
// PostgreSQL cannot hold.
func plain(field, s string) error {
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return refusal.Invalid(field, "%s must be valid UTF-8 without U+0000", field)
	}
	return nil
}

// line checks a short text of 1 to max characters.
func line(field, s string, max int) error {
	if s == "" {
		return refusal.Invalid(field, "%s must not be empty", field)
	}
	return short(field, s, max)
}

func short(field, s string, max int) error {
	if err := plain(field, s); err != nil {
		return err
	}
	if len(s) > max && utf8.RuneCountInString(s) > max {
		return refusal.Invalid(field, "%s must not be longer than %d characters", field, max)
	}
	return nil
}

// long checks text of at most max bytes; too long is too large.
func long(field, s string, max int) error {
	if len(s) > max {
		return refusal.New(refusal.PayloadTooLarge, "%s is larger than %d bytes", field, max)
	}
	return plain(field, s)
}

// maxDepth bounds the nesting of a document, which is no recursion.
const maxDepth = 64

// document checks JSON of at most max bytes and returns it as text, nil when
// there is none. It is strict (RFC 7493): what one reader takes and another
// refuses, a member twice or half a surrogate, would spoil every answer that it
// stands in, and the leases of all todos beside it.
func document(field string, raw json.RawMessage, max int64) (*string, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if int64(len(raw)) > max {
		return nil, refusal.New(refusal.PayloadTooLarge, "%s is larger than %d bytes", field, max)
	}
	if !jsontext.Value(raw).IsValid() {
		return nil, refusal.Invalid(field, "%s is not JSON without doubt: a member twice, or text that is no valid Unicode, is refused", field)
	}
	if depthOf(raw) > maxDepth {
		return nil, refusal.Invalid(field, "%s is nested deeper than %d", field, maxDepth)
	}
	if holdsNUL(raw) {
		return nil, refusal.Invalid(field, "%s must not contain U+0000", field)
	}
	s := string(raw)
	return &s, nil
}

// depthOf is how deep valid JSON is nested.
func depthOf(raw []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// holdsNUL reports whether valid JSON has the escape \u0000 in a string.
func holdsNUL(raw []byte) bool {
	for {
		i := bytes.Index(raw, []byte(`\u0000`))
		if i < 0 {
			return false
		}
		slashes := 0
		for j := i; j >= 0 && raw[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 1 {
			return true
		}
		raw = raw[i+1:]
	}
}

// canonical returns JSON with sorted members and no insignificant white space, so
// that equal content digests equally however it was written.
func canonical(raw *string) []byte {
	if raw == nil {
		return nil
	}
	if b, ok := sortedASCII(*raw); ok {
		return b
	}
	return reencoded(*raw)
}

// reencoded is JSON as encoding/json writes what it has read.
func reencoded(raw string) []byte {
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return []byte(raw)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return []byte(raw)
	}
	return b
}

var sorted = jsontext.ReorderRawObjects(true)

// sortedASCII is what reencoded says, in a fraction of the time, of what most
// documents are made of. Escapes, other characters (by which it sorts otherwise) and
// those that encoding/json escapes are left to it: what has been digested once must
// come out the same for as long as its key is remembered.
func sortedASCII(raw string) ([]byte, bool) {
	for i := range len(raw) {
		switch c := raw[i]; {
		case c == '\\', c >= utf8.RuneSelf, c == '<', c == '>', c == '&':
			return nil, false
		}
	}
	b, err := jsontext.AppendFormat(make([]byte, 0, len(raw)), []byte(raw), sorted)
	return b, err == nil
}

// digest hashes parts so that no two lists of parts have the same bytes.
func digest[T ~string | ~[]byte](parts ...T) []byte {
	b := make([]byte, 0, 512) // most fit, and then nothing is allocated
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// short16 is the first 16 bytes of a digest, which do for telling contents apart and
// are stored as a UUID is.
func short16(sum []byte) (id uuid.UUID) {
	copy(id[:], sum)
	return id
}

// keyName stands for an idempotency key of a line; todo_key_name in SQL.
func keyName(line uuid.UUID, key string) uuid.UUID {
	b := make([]byte, 0, 128)
	b = append(b, line[:]...)
	b = append(b, key...)
	sum := sha256.Sum256(b)
	return short16(sum[:])
}

// moment is a time's part in a digest, "" when there is none.
func moment(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,200})?$`)

func checkTrace(s string) error {
	if s != "" && (!traceparent.MatchString(s) || plain("traceparent", s) != nil) {
		return refusal.Invalid("traceparent", "traceparent is not one of W3C Trace Context")
	}
	return nil
}

// leaseLength checks a lease's length; 0 means otherwise.
func leaseLength(d, otherwise time.Duration) (time.Duration, error) {
	if d == 0 {
		return otherwise, nil
	}
	if d < time.Second || d > maxLease {
		return 0, refusal.Invalid("lease_seconds", "lease_seconds must be from 1 to 86400")
	}
	return d, nil
}

func checkWait(d time.Duration) error {
	if d < 0 || d > maxWait {
		return refusal.Invalid("wait_seconds", "wait_seconds must be from 0 to 50")
	}
	return nil
}

// pageSize checks a limit; 0 means 50.
func pageSize(limit int) (int, error) {
	if limit == 0 {
		return 50, nil
	}
	if limit < 1 || limit > 100 {
		return 0, refusal.Invalid("limit", "limit must be from 1 to 100")
	}
	return limit, nil
}

// checkArtifacts returns the artifacts as JSON by name, the last of a name only.
func checkArtifacts(as []Artifact) (names, bodies []string, size int, err error) {
	if len(as) > maxArtifacts {
		return nil, nil, 0, refusal.Invalid("artifacts", "artifacts must not be more than %d", maxArtifacts)
	}
	at := make(map[string]int, len(as))
	for _, a := range as {
		if err := line("artifacts.name", a.Name, maxTitle); err != nil {
			return nil, nil, 0, err
		}
		if err := short("artifacts.media_type", a.MediaType, maxTitle); err != nil {
			return nil, nil, 0, err
		}
		given := 0
		if a.Text != nil {
			given++
			if err := long("artifacts.text", *a.Text, maxResult); err != nil {
				return nil, nil, 0, err
			}
		}
		if len(a.Data) > 0 {
			given++
			if _, err := document("artifacts.data", a.Data, maxResult); err != nil {
				return nil, nil, 0, err
			}
		}
		if a.URL != "" {
			given++
			if err := line("artifacts.url", a.URL, 4096); err != nil {
				return nil, nil, 0, err
			}
		}
		if given != 1 {
			return nil, nil, 0, refusal.Invalid("artifacts", "an artifact has exactly one of text, data and url")
		}
		b, err := json.Marshal(a)
		if err != nil {
			return nil, nil, 0, refusal.Invalid("artifacts", "artifacts.data is not JSON").Because(err)
		}
		size += len(b)
		if i, ok := at[a.Name]; ok {
			bodies[i] = string(b)
			continue
		}
		at[a.Name] = len(names)
		names = append(names, a.Name)
		bodies = append(bodies, string(b))
	}
	if size > maxResult {
		return nil, nil, 0, refusal.New(refusal.PayloadTooLarge, "artifacts are larger than %d bytes", maxResult)
	}
	return names, bodies, size, nil
}

func checkProgress(p *Progress) (*string, error) {
	if p == nil {
		return nil, nil
	}
	if p.Percent != nil && !(*p.Percent >= 0 && *p.Percent <= 100) {
		return nil, refusal.Invalid("progress.percent", "progress.percent must be from 0 to 100")
	}
	if err := short("progress.note", p.Note, maxNote); err != nil {
		return nil, err
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, refusal.Invalid("progress", "progress is not JSON").Because(err)
	}
	s := string(b)
	return &s, nil
}
