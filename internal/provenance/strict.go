package provenance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gowebpki/jcs"

	"switchboard/internal/refusal"
)

// MaxBody is the largest body that carries a friend request, in bytes
// (specs/protocol.md section 3).
const MaxBody = 256 << 10

// MaxDepth is the deepest nesting of arrays and objects that ParseStrict
// takes. A request needs nine levels inside an A2A envelope.
const MaxDepth = 32

// maxInteger is 2^53-1: beyond it two readers of one number may see two values
// (RFC 7493 §2.2).
const maxInteger = 1<<53 - 1

// ErrNotJSON marks bytes that are no JSON text at all, which A2A answers with
// -32700. It is the cause of a refusal.InvalidArgument, so that other
// transports need not know it.
var ErrNotJSON = errors.New("not a JSON text")

// ParseStrict checks that b is one I-JSON text (RFC 7493) of at most limit
// bytes and returns it. It refuses what two readers could understand in two
// ways: duplicate members, lone surrogates, invalid UTF-8, noncharacters,
// numbers that a double cannot hold (integers beyond 2^53-1 however they are
// spelled, overflow, underflow), negative zero, which RFC 8785 would silently
// turn into 0, and nesting deeper than MaxDepth.
//
// Errors: refusal.PayloadTooLarge, refusal.InvalidArgument; errors.Is(err,
// ErrNotJSON) tells what is no JSON at all. The value may be decoded with a
// decoder that matches member names exactly, which encoding/json is not.
func ParseStrict(b []byte, limit int) (json.RawMessage, error) {
	if len(b) > limit {
		return nil, refusal.New(refusal.PayloadTooLarge, "the body is larger than %d bytes", limit)
	}
	if err := parse(b, true); err != nil {
		return nil, err
	}
	return json.RawMessage(b), nil
}

// parse reads b twice: leniently for what is JSON at all, then strictly.
// numbers adds the rules for numbers; tokens of issuers go without them, since
// an issuer may put what it likes into claims that nobody here reads.
func parse(b []byte, numbers bool) error {
	lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	broken := func(err error, offset int64) error { return notJSON("not a JSON text", offset, err) }
	if err := scan(b, broken, func(jsontext.Token) error { return nil }, lenient...); err != nil {
		return err
	}
	return scan(b, ambiguous, func(t jsontext.Token) error {
		switch {
		case t.Kind() == '0' && numbers:
			return checkNumber(t.String())
		case t.Kind() == '"':
			return checkString(t.String())
		}
		return nil
	})
}

// scan calls visit with every token of the single JSON text in b, and broken
// with what the decoder does not like.
func scan(b []byte, broken func(error, int64) error, visit func(jsontext.Token) error, opts ...jsontext.Options) error {
	dec := jsontext.NewDecoder(bytes.NewReader(b), opts...)
	for first := true; first || dec.StackDepth() > 0; first = false {
		t, err := dec.ReadToken()
		if err != nil {
			return broken(err, offsetOf(err, dec))
		}
		if dec.StackDepth() > MaxDepth {
			return refusal.New(refusal.InvalidArgument, "JSON nested deeper than %d at byte %d", MaxDepth, dec.InputOffset())
		}
		if err := visit(t); err != nil {
			return fmt.Errorf("byte %d: %w", dec.InputOffset(), err)
		}
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return notJSON("bytes after the JSON text", dec.InputOffset(), err)
	}
	return nil
}

func offsetOf(err error, dec *jsontext.Decoder) int64 {
	var s *jsontext.SyntacticError
	if errors.As(err, &s) {
		return s.ByteOffset
	}
	return dec.InputOffset()
}

// ambiguous names what a lenient reader has passed and a strict one has not.
func ambiguous(err error, offset int64) error {
	what := "invalid UTF-8 or a lone surrogate"
	if errors.Is(err, jsontext.ErrDuplicateName) {
		what = "duplicate member"
	}
	return refusal.New(refusal.InvalidArgument, "%s in JSON at byte %d", what, offset).Because(err)
}

func notJSON(what string, offset int64, cause error) error {
	return refusal.New(refusal.InvalidArgument, "%s at byte %d", what, offset).Because(fmt.Errorf("%w: %w", ErrNotJSON, cause))
}

// checkNumber refuses numbers that do not survive the way through a double and
// RFC 8785 as what they are.
func checkNumber(text string) error {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsInf(f, 0):
		return refusal.New(refusal.InvalidArgument, "a JSON number is too large")
	case math.Abs(f) > maxInteger:
		return refusal.New(refusal.InvalidArgument, "a JSON number is beyond 2^53-1")
	case f == 0 && text[0] == '-':
		return refusal.New(refusal.InvalidArgument, "negative zero in JSON")
	case f == 0 && strings.ContainsAny(mantissa(text), "123456789"):
		return refusal.New(refusal.InvalidArgument, "a JSON number is too small to be told from zero")
	}
	return nil
}

func mantissa(text string) string {
	m, _, _ := strings.Cut(strings.ToLower(text), "e")
	return m
}

// checkString refuses noncharacters (RFC 7493 §2.1).
func checkString(s string) error {
	for _, r := range s {
		if r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe {
			return refusal.New(refusal.InvalidArgument, "a Unicode noncharacter in JSON")
		}
	}
	return nil
}

// canonical returns the RFC 8785 form of a JSON text that parse has passed.
func canonical(b []byte) (json.RawMessage, error) {
	c, err := jcs.Transform(b)
	if err != nil {
		return nil, refusal.New(refusal.InvalidArgument, "JSON without a canonical form").Because(err)
	}
	return c, nil
}
