package provenance

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"time"

	"switchboard/internal/refusal"
)

// Leeway is how far clocks may differ for ID tokens, statements and client
// assertions, and for nothing else.
const Leeway = time.Minute

// MaxTokenAge is how old an ID token may be, from its iat.
const MaxTokenAge = 600 * time.Second

// MaxStatementLife is the longest time from iat to exp of a statement.
const MaxStatementLife = 600 * time.Second

// Target is what a request is checked against.
type Target struct {
	Aud     string    // this instance's PUBLIC_URL
	Persona string    // slug
	Allowed Allowed   // the persona's "who may ask"
	Now     time.Time // from the database
}

// Verifier checks provenance against the operator's issuers.
type Verifier struct {
	issuers []*Issuer
	keys    *Keys
}

// NewVerifier makes a Verifier of validated entries (see ParseIssuers).
func NewVerifier(issuers []Issuer, keys *Keys) *Verifier {
	v := &Verifier{keys: keys}
	for i := range issuers {
		v.issuers = append(v.issuers, &issuers[i])
	}
	return v
}

// Issuers lists the entries in the operator's order.
func (v *Verifier) Issuers() []*Issuer { return v.issuers }

// Entry finds the entry that names iss, nil when none does. tid is the token's
// tenant claim, "" when there is none.
func (v *Verifier) Entry(iss, tid string) *Issuer {
	for _, i := range v.issuers {
		if i.names(iss, tid) {
			return i
		}
	}
	return nil
}

// Verified is a request whose provenance stands as far as rows 2 to 7 go;
// CheckTimes and CheckConditions do rows 9 and 11 after the idempotency of
// row 8.
type Verified struct {
	Method         string
	Issuer         *Issuer // the entry
	IssuerName     string  // canonical issuer, never an alias
	Subject        string
	Identity       []byte // SHA-256 over the entry's identity claims; the same as at sign-in
	Name           string // what the issuer says the person is called; "" when it says nothing
	Email          string // "" unless verified and the entry is authoritative for its domain
	Claims         json.RawMessage
	IDToken        string // evidence: to be sealed, never returned
	KeyThumbprint  string
	Digest         string
	Nonce          string
	NonceUntil     time.Time // the nonce must be remembered until then (row 10)
	StatementID    string    // jti
	StatementUntil time.Time // (key, jti) must be remembered until then (row 10)

	statement statement
}

// token is an ID token after rows 3 to 6.
type token struct {
	entry   *Issuer
	claims  claims
	payload []byte
	person  Person
	nonce   string
}

// Verify does rows 2 to 7 of the table for method oidc-nonce, in order; the
// first that fails names the reason. Besides the reasons of the table it
// answers refusal.Unavailable when the issuer's keys cannot be had.
func (v *Verifier) Verify(ctx context.Context, t Target, p Part) (*Verified, error) {
	if p.Provenance == nil {
		return nil, missing()
	}
	if p.Provenance.Method != MethodOIDCNonce {
		return nil, refusal.Invalid("provenance.method", "provenance.method must be %s here", MethodOIDCNonce)
	}
	tok, err := v.token(ctx, t, p, p.Provenance.IDToken, func(i *Issuer, aud string) bool { return i.accepts(aud) })
	if err != nil {
		return nil, err
	}
	s, err := verifyStatement(t, p)
	if err != nil {
		return nil, err
	}
	if s.Iss == nil || s.Sub == nil || *s.Iss != tok.claims.text("iss") || *s.Sub != tok.claims.text("sub") {
		return nil, badStatement("its iss and sub must be the ID token's")
	}
	return tok.verified(p, p.Provenance.IDToken, s)
}

func missing() error {
	return refusal.New(refusal.ProvenanceMissing, "a friend request must carry provenance")
}

// token does rows 3 to 6. accepted decides row 5: for a request that came with
// its token, the clients of the entry; for one that this instance obtained
// itself, its own client.
func (v *Verifier) token(ctx context.Context, t Target, p Part, idToken string, accepted func(*Issuer, string) bool) (token, error) {
	c, err := parseCompact(idToken)
	if err != nil {
		return token{}, badToken("it does not parse").Because(err)
	}
	if c.typ != "" && c.typ != "JWT" && c.typ != "jwt" {
		// RFC 8725 §3.11: a token of another type (at+jwt, logout+jwt) must not pass for an ID token.
		return token{}, badToken("its typ is not that of an ID token")
	}
	cl, err := decodeClaims(c.payload)
	if err != nil {
		return token{}, err
	}
	// Row 3. Nothing is verified yet; iss only picks the entry to verify with.
	entry := v.Entry(cl.text("iss"), cl.text("tid"))
	if entry == nil || entry.Provenance == nil || t.Allowed == nil || !t.Allowed(entry) {
		return token{}, refusal.New(refusal.IssuerUntrusted, "this persona takes no friend requests from people of that issuer")
	}
	// Row 4.
	if err := v.keys.verify(ctx, entry, c); err != nil {
		return token{}, err
	}
	// Row 5.
	aud := cl.audience()
	if !accepted(entry, aud) {
		return token{}, refusal.New(refusal.IDTokenAudience, "the ID token is for a client that this instance does not accept for provenance")
	}
	if _, there := cl["azp"]; there && cl.text("azp") != aud {
		return token{}, refusal.New(refusal.IDTokenAudience, "the ID token's azp differs from its aud")
	}
	// Row 6.
	if cl.text("sub") == "" {
		return token{}, refusal.New(refusal.NonceMismatch, "the ID token has no sub")
	}
	nonce := Nonce(t.Aud, t.Persona, p.Key.Thumbprint(), p.Digest(), p.Provenance.Salt)
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(cl.text("nonce"))) != 1 {
		return token{}, refusal.New(refusal.NonceMismatch, "the ID token's nonce does not belong to this request, persona, instance, key and salt")
	}
	person, err := entry.Person(c.payload)
	if err != nil {
		return token{}, err
	}
	return token{entry: entry, claims: cl, payload: c.payload, person: person, nonce: nonce}, nil
}

func badToken(why string) *refusal.Error {
	return refusal.New(refusal.IDTokenSignature, "the ID token is not a good one of its issuer: %s", why)
}

// verified puts token and statement together.
func (tok token) verified(p Part, idToken string, s statement) (*Verified, error) {
	snapshot, err := canonical(tok.payload)
	if err != nil {
		return nil, badToken("it does not parse").Because(err)
	}
	v := &Verified{
		Method: p.Provenance.Method, Issuer: tok.entry, IssuerName: tok.person.Issuer,
		Subject: tok.person.Subject, Identity: tok.person.Identity, Name: tok.person.Name, Email: tok.person.Email,
		Claims: snapshot, IDToken: idToken,
		KeyThumbprint: p.Key.Thumbprint(), Digest: p.Digest(), Nonce: tok.nonce,
		StatementID: s.JTI, StatementUntil: s.expires().Add(Leeway), statement: s,
	}
	// Row 9 refuses the token at exp and at iat + MaxTokenAge, whichever comes
	// first, so a nonce need not be kept longer than the one that is surely
	// past both, however far away exp is.
	if exp, ok := tok.claims.at("exp"); ok {
		v.NonceUntil = exp.Add(Leeway)
		if iat, ok := tok.claims.at("iat"); ok && v.NonceUntil.Sub(iat) > 24*time.Hour {
			v.NonceUntil = iat.Add(24 * time.Hour)
		}
	}
	return v, nil
}

// CheckTimes is row 9: the ID token's exp, iat and, where the entry sets a
// limit, auth_time; then the statement's exp. now is from the database.
func (v *Verified) CheckTimes(now time.Time) error {
	if err := v.checkTokenTimes(now); err != nil {
		return err
	}
	if v.Method == MethodSignIn {
		return nil // its statement was in time when it was sent; the link has a limit of its own
	}
	return v.statement.checkExpiry(now)
}

func (v *Verified) checkTokenTimes(now time.Time) error {
	c, err := decodeClaims(v.Claims)
	if err != nil {
		return err
	}
	late := func(why string) error {
		return refusal.New(refusal.IDTokenExpired, "the ID token is not fresh: %s; sign in again", why)
	}
	exp, ok := c.at("exp")
	if !ok || now.After(exp.Add(Leeway)) {
		return late("it has expired")
	}
	iat, ok := c.at("iat")
	switch {
	case !ok || iat.After(now.Add(Leeway)):
		return late("its iat is missing or in the future")
	case now.Sub(iat) > MaxTokenAge+Leeway:
		return late("it was issued more than 10 minutes ago")
	}
	if _, there := c["nbf"]; there {
		if nbf, ok := c.at("nbf"); !ok || nbf.After(now.Add(Leeway)) {
			return late("it is not valid yet")
		}
	}
	limit := v.Issuer.Provenance.MaxAuthAge
	if limit == 0 {
		return nil
	}
	auth, ok := c.at("auth_time")
	switch {
	case !ok || auth.After(now.Add(Leeway)):
		return late("its auth_time is missing or in the future")
	case now.Sub(auth) > limit+Leeway:
		return late("the sign-in itself is too long ago")
	}
	return nil
}

// CheckConditions is row 11.
func (v *Verified) CheckConditions() error {
	if err := v.Issuer.CheckConditions(v.Claims); err != nil {
		return err
	}
	c, err := decodeClaims(v.Claims)
	if err != nil {
		return err
	}
	return v.Issuer.checkStepUp(c)
}
