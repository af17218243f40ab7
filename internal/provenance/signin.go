package provenance

import (
	"context"
	"time"

	"switchboard/internal/refusal"
)

// SignIn is a request of method sign-in whose statement stands; its human has
// not signed in yet.
type SignIn struct {
	KeyThumbprint  string
	Digest         string
	Nonce          string // for the authorization request at the human's issuer
	StatementID    string
	StatementUntil time.Time // (key, jti) must be remembered until then
}

// VerifySignIn does rows 2, 7 and 9 for a request of method sign-in when it is
// sent: a statement by the part's key, without iss and sub, in time.
func (v *Verifier) VerifySignIn(t Target, p Part) (*SignIn, error) {
	s, err := signInStatement(t, p)
	if err != nil {
		return nil, err
	}
	if err := s.checkExpiry(t.Now); err != nil {
		return nil, err
	}
	jkt, digest := p.Key.Thumbprint(), p.Digest()
	return &SignIn{
		KeyThumbprint: jkt, Digest: digest, Nonce: Nonce(t.Aud, t.Persona, jkt, digest, p.Provenance.Salt),
		StatementID: s.JTI, StatementUntil: s.expires().Add(Leeway),
	}, nil
}

func signInStatement(t Target, p Part) (statement, error) {
	if p.Provenance == nil {
		return statement{}, missing()
	}
	if p.Provenance.Method != MethodSignIn {
		return statement{}, refusal.Invalid("provenance.method", "provenance.method must be %s here", MethodSignIn)
	}
	s, err := verifyStatement(t, p)
	if err != nil {
		return statement{}, err
	}
	if s.Iss != nil || s.Sub != nil {
		return statement{}, badStatement("with method %s it has no iss and no sub", MethodSignIn)
	}
	return s, nil
}

// CompleteSignIn does rows 3 to 7 when the human has signed in: idToken is what
// this instance itself obtained, with SignIn.Nonce, as client clientID of the
// issuer's entry. CheckTimes and CheckConditions follow, as for the other
// method; the statement's own expiry is not looked at again.
func (v *Verifier) CompleteSignIn(ctx context.Context, t Target, p Part, idToken, clientID string) (*Verified, error) {
	s, err := signInStatement(t, p)
	if err != nil {
		return nil, err
	}
	tok, err := v.token(ctx, t, p, idToken, func(_ *Issuer, aud string) bool { return clientID != "" && aud == clientID })
	if err != nil {
		return nil, err
	}
	return tok.verified(p, idToken, s)
}
