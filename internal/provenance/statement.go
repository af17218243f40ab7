package provenance

import (
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"switchboard/internal/refusal"
)

// StatementType is the typ of a statement's header, exactly.
const StatementType = "friend-statement+jwt"

// maxID bounds a jti.
const maxID = 128

// statement is the short JWS by the agent's key: this key, for this human, asks
// this persona for this. Claims beyond these are ignored, as RFC 7519 §4 has it.
type statement struct {
	Iss     *string `json:"iss"`
	Sub     *string `json:"sub"`
	Aud     string  `json:"aud"`
	Persona string  `json:"persona"`
	Digest  string  `json:"digest"`
	Salt    string  `json:"salt"`
	JTI     string  `json:"jti"`
	Iat     *int64  `json:"iat"`
	Exp     *int64  `json:"exp"`
	Nbf     *int64  `json:"nbf"`
}

func (s statement) expires() time.Time { return time.Unix(*s.Exp, 0) }

func badStatement(format string, args ...any) *refusal.Error {
	e := refusal.New(refusal.StatementInvalid, format, args...)
	e.Message = "the statement is not a good one: " + e.Message
	return e
}

// verifyStatement does row 7 as far as both methods share it: signature by the
// part's key, target, digest, salt, life and iat.
func verifyStatement(t Target, p Part) (statement, error) {
	var s statement
	payload, err := VerifyJWT(p.Provenance.Statement, p.Key, StatementType)
	if err != nil {
		return s, badStatement("it must be signed by key with EdDSA or ES256 and typ %s", StatementType).Because(err)
	}
	if err := parse(payload, true); err != nil {
		return s, badStatement("its claims are no I-JSON: %v", err)
	}
	c, err := canonical(payload)
	if err != nil {
		return s, badStatement("its claims are no I-JSON: %v", err)
	}
	if err := jsonv2.Unmarshal(c, &s); err != nil {
		return s, badStatement("a claim has the wrong type").Because(err)
	}
	if s.Iat == nil || s.Exp == nil || s.JTI == "" || len(s.JTI) > maxID {
		return s, badStatement("iat, exp and a jti of up to %d bytes must be there", maxID)
	}
	for _, c := range []struct{ name, have, want string }{
		{"aud", s.Aud, t.Aud}, {"persona", s.Persona, t.Persona}, {"digest", s.Digest, p.Digest()}, {"salt", s.Salt, p.Provenance.Salt},
	} {
		if c.have != c.want {
			return s, badStatement("its %s is not this request's", c.name)
		}
	}
	if *s.Exp <= *s.Iat || *s.Exp-*s.Iat > int64(MaxStatementLife/time.Second) {
		return s, badStatement("exp must lie after iat, by at most 600 seconds")
	}
	soon := t.Now.Add(Leeway).Unix()
	if *s.Iat > soon || (s.Nbf != nil && *s.Nbf > soon) {
		return s, badStatement("its iat is in the future")
	}
	return s, nil
}

// checkExpiry is the statement's part of row 9.
func (s statement) checkExpiry(now time.Time) error {
	if now.After(s.expires().Add(Leeway)) {
		return badStatement("it has expired")
	}
	return nil
}
