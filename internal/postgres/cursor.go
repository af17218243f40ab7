package postgres

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"switchboard/internal/refusal"
)

const (
	// maxCursor bounds what a stranger may hand in; ours are a tenth of it.
	maxCursor = 1024
	// cursorTag is how many bytes of the SHA-256 bind a cursor.
	cursorTag = 16
)

// EncodeCursor returns an opaque cursor for the row with this sort key. It is
// good only with the same bind, in which the caller of a list writes who asks
// and with which filter: `BindCursor("todos", owner, queue, state)`.
//
// The tag is no secret's: whoever knows the scheme can make a cursor for a list
// of their own. So a key is a position within what the caller may see anyway,
// and never an authority.
func EncodeCursor(bind string, key ...string) string {
	body := []byte{}
	for _, k := range key {
		body = binary.AppendUvarint(body, uint64(len(k)))
		body = append(body, k...)
	}
	return base64.RawURLEncoding.EncodeToString(append(cursorSum(bind, body), body...))
}

// DecodeCursor returns the n parts of the sort key in a cursor, each valid
// UTF-8 without NUL. A cursor of another caller or filter, or no cursor at all,
// is refused as an invalid argument. The empty cursor is the caller's to handle:
// it means the first page.
func DecodeCursor(bind, cursor string, n int) ([]string, error) {
	refuse := func(cause string) ([]string, error) {
		return nil, refusal.Invalid("cursor", "cursor is not one that this list returned for this caller and filter").Because(errors.New(cause))
	}
	if len(cursor) > maxCursor {
		return refuse("too long")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) < cursorTag {
		return refuse("not base64url or too short")
	}
	tag, body := raw[:cursorTag], raw[cursorTag:]
	if subtle.ConstantTimeCompare(tag, cursorSum(bind, body)) != 1 {
		return refuse("bound to something else")
	}
	key := make([]string, 0, n)
	for len(body) > 0 {
		size, width := binary.Uvarint(body)
		if width <= 0 || size > uint64(len(body)-width) {
			return refuse("malformed key")
		}
		part := body[width : width+int(size)]
		if !utf8.Valid(part) || bytes.IndexByte(part, 0) >= 0 {
			return refuse("key is not text")
		}
		key = append(key, string(part))
		body = body[width+int(size):]
	}
	if len(key) != n {
		return refuse("wrong number of parts")
	}
	return key, nil
}

// BindCursor joins the parts of a bind so that no two lists of parts are equal.
func BindCursor(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		var n [binary.MaxVarintLen64]byte
		b.Write(n[:binary.PutUvarint(n[:], uint64(len(p)))])
		b.WriteString(p)
	}
	return b.String()
}

// EncodeCursorAt is [EncodeCursor] for lists sorted by time and then id.
func EncodeCursorAt(bind string, at time.Time, id uuid.UUID) string {
	return EncodeCursor(bind, at.UTC().Format(time.RFC3339Nano), id.String())
}

// DecodeCursorAt reads what [EncodeCursorAt] wrote, to the microsecond, which is
// PostgreSQL's resolution.
func DecodeCursorAt(bind, cursor string) (time.Time, uuid.UUID, error) {
	key, err := DecodeCursor(bind, cursor, 2)
	if err != nil {
		return time.Time{}, uuid.Nil, err
	}
	at, atErr := time.Parse(time.RFC3339Nano, key[0])
	id, idErr := uuid.Parse(key[1])
	if err := errors.Join(atErr, idErr); err != nil {
		return time.Time{}, uuid.Nil, refusal.Invalid("cursor", "cursor is not one that this list returned").Because(err)
	}
	return at, id, nil
}

func cursorSum(bind string, body []byte) []byte {
	h := sha256.New()
	h.Write([]byte(BindCursor("switchboard cursor v1", bind)))
	h.Write(body)
	return h.Sum(nil)[:cursorTag]
}
