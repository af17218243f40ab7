package provenance

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// The methods of provenance.
const (
	MethodOIDCNonce = "oidc-nonce"
	MethodSignIn    = "sign-in"
)

// Type is the value of a part's member "type".
const Type = "friend-request"

// Bounds of a part's members, in characters or bytes.
const (
	maxName      = 100
	maxCard      = 2048
	maxReason    = 2000
	maxIDToken   = 32 << 10
	maxStatement = 8 << 10
	minSalt      = 16 // bytes: 128 random bits
	maxSalt      = 64
)

// Part is the one data part of a friend request (specs/protocol.md section 3).
// Its strings are a stranger's: bounded, not yet safe to show.
type Part struct {
	From       From
	Reason     string
	Scope      scope.Asked
	Key        PublicKey
	Supersedes string      // grant id, "" when absent
	Provenance *Provenance // nil when absent

	canonical json.RawMessage
}

// From is what the requester says it is called.
type From struct {
	Name string `json:"name"`
	Card string `json:"card,omitempty"` // shown, never fetched
}

// Provenance is the proof of who asks.
type Provenance struct {
	Method    string `json:"method"`
	IDToken   string `json:"id_token,omitempty"` // oidc-nonce only
	Salt      string `json:"salt"`
	Statement string `json:"statement"`
}

// wire is a part as it travels; pointers tell an absent member from an empty one.
type wire struct {
	Type *string `json:"type"`
	From *struct {
		Name *string `json:"name"`
		Card *string `json:"card"`
	} `json:"from"`
	Reason *string      `json:"reason"`
	Scope  *scope.Asked `json:"scope"`
	Key    *struct {
		KTY *string `json:"kty"`
		Crv *string `json:"crv"`
		X   *string `json:"x"`
		Y   *string `json:"y"`
	} `json:"key"`
	Supersedes *string `json:"supersedes"`
	Provenance *struct {
		Method    *string `json:"method"`
		IDToken   *string `json:"id_token"`
		Salt      *string `json:"salt"`
		Statement *string `json:"statement"`
	} `json:"provenance"`
}

// DecodePart decodes the received bytes of a data part: row 1 of the table as
// far as it needs no offers. Unknown and case-variant members are refused
// anywhere in it, and so are null and U+0000. Errors are
// refusal.InvalidArgument with the member in Field, or
// refusal.PayloadTooLarge.
//
// Everything is read from the canonical form of the bytes, so that 2.0e1 is
// the 20 that was digested.
func DecodePart(raw []byte) (Part, error) {
	v, err := ParseStrict(raw, MaxBody)
	if err != nil {
		return Part{}, err
	}
	if err := scan(v, ambiguous, noNull); err != nil {
		return Part{}, err
	}
	c, err := canonical(v)
	if err != nil {
		return Part{}, err
	}
	var w wire
	if err := jsonv2.Unmarshal(c, &w, jsonv2.RejectUnknownMembers(true)); err != nil {
		return Part{}, malformed(err)
	}
	p, err := w.part()
	if err != nil {
		return Part{}, err
	}
	p.canonical, err = withoutProvenance(c)
	return p, err
}

// noNull: no member of a part may be null (its digest would differ from the
// absent member's, and a reader could not tell), and Postgres holds no U+0000.
func noNull(t jsontext.Token) error {
	switch {
	case t.Kind() == 'n':
		return refusal.New(refusal.InvalidArgument, "null in a friend request")
	case t.Kind() == '"' && strings.ContainsRune(t.String(), 0):
		return refusal.New(refusal.InvalidArgument, "U+0000 in a friend request")
	}
	return nil
}

// malformed says where a part differs from the schema; the pointer holds the
// caller's own member names and is cut short.
func malformed(err error) error {
	at := ""
	var s *jsonv2.SemanticError
	if errors.As(err, &s) {
		at = strings.ReplaceAll(strings.TrimPrefix(string(s.JSONPointer), "/"), "/", ".")
		if len(at) > 60 {
			at = strings.ToValidUTF8(at[:60], "") + "…"
		}
	}
	if errors.Is(err, jsonv2.ErrUnknownName) {
		return refusal.Invalid(at, "unknown member %q", at).Because(err)
	}
	return refusal.Invalid(at, "member %q has the wrong type", at).Because(err)
}

func (w wire) part() (Part, error) {
	var p Part
	if w.Type == nil || *w.Type != Type {
		return p, refusal.Invalid("type", "type must be %q", Type)
	}
	if w.From == nil || w.From.Name == nil {
		return p, refusal.Invalid("from.name", "from.name is missing")
	}
	p.From.Name = *w.From.Name
	if err := bounded("from.name", p.From.Name, maxName); err != nil {
		return p, err
	}
	if w.From.Card != nil {
		p.From.Card = *w.From.Card
		if err := checkCard(p.From.Card); err != nil {
			return p, err
		}
	}
	if w.Reason == nil {
		return p, refusal.Invalid("reason", "reason is missing")
	}
	p.Reason = *w.Reason
	if err := bounded("reason", p.Reason, maxReason); err != nil {
		return p, err
	}
	if w.Scope == nil {
		return p, refusal.Invalid("scope", "scope is missing")
	}
	p.Scope = *w.Scope
	if err := p.Scope.Check(); err != nil {
		return p, err
	}
	if err := w.key(&p); err != nil {
		return p, err
	}
	if w.Supersedes != nil {
		p.Supersedes = *w.Supersedes
		if len(p.Supersedes) != 36 || uuid.Validate(p.Supersedes) != nil {
			return p, refusal.Invalid("supersedes", "supersedes must be the id of a grant")
		}
	}
	return p, w.provenance(&p)
}

func (w wire) key(p *Part) error {
	k := w.Key
	if k == nil || k.KTY == nil || k.Crv == nil || k.X == nil {
		return refusal.Invalid("key", "key must hold exactly the members of RFC 7638")
	}
	p.Key = PublicKey{KTY: *k.KTY, Crv: *k.Crv, X: *k.X}
	if k.Y != nil {
		if *k.Y == "" {
			return refusal.Invalid("key", "key.y must not be empty")
		}
		p.Key.Y = *k.Y
	}
	return p.Key.check()
}

// provenance checks the members that each method has; an absent one leaves
// p.Provenance nil, for row 2 to refuse.
func (w wire) provenance(p *Part) error {
	in := w.Provenance
	if in == nil {
		return nil
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	out := &Provenance{Method: text(in.Method), IDToken: text(in.IDToken), Salt: text(in.Salt), Statement: text(in.Statement)}
	switch out.Method {
	case MethodOIDCNonce:
		if err := bounded("provenance.id_token", out.IDToken, maxIDToken); err != nil {
			return err
		}
	case MethodSignIn:
		if in.IDToken != nil {
			return refusal.Invalid("provenance.id_token", "method %s takes no id_token", MethodSignIn)
		}
	case "":
		return refusal.Invalid("provenance.method", "provenance.method is missing")
	default:
		return refusal.Invalid("provenance.method", "provenance.method must be %s or %s", MethodOIDCNonce, MethodSignIn)
	}
	if err := bounded("provenance.statement", out.Statement, maxStatement); err != nil {
		return err
	}
	salt, err := decode64(out.Salt)
	if err != nil || len(salt) < minSalt || len(salt) > maxSalt {
		return refusal.Invalid("provenance.salt", "provenance.salt must be %d to %d random bytes in base64url without padding", minSalt, maxSalt)
	}
	p.Provenance = out
	return nil
}

func bounded(field, s string, most int) error {
	switch n := utf8.RuneCountInString(s); {
	case n == 0:
		return refusal.Invalid(field, "%s is missing or empty", field)
	case n > most:
		return refusal.Invalid(field, "%s is longer than %d characters", field, most)
	}
	return nil
}

func checkCard(card string) error {
	if err := bounded("from.card", card, maxCard); err != nil {
		return err
	}
	u, err := url.Parse(card)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil {
		return refusal.Invalid("from.card", "from.card must be an http or https URL")
	}
	return nil
}

// withoutProvenance returns the canonical text of a part as it is digested.
func withoutProvenance(c json.RawMessage) (json.RawMessage, error) {
	var members map[string]jsontext.Value
	if err := jsonv2.Unmarshal(c, &members); err != nil {
		return nil, malformed(err)
	}
	delete(members, "provenance")
	return canonicalOf(members), nil
}

// Canonical returns the RFC 8785 text of the received part without its
// provenance: exactly what was digested, to be kept with the request.
func (p Part) Canonical() json.RawMessage { return p.canonical }

// Digest returns b64url(SHA-256(JCS(part without "provenance"))).
func (p Part) Digest() string { return hash64(p.canonical) }
