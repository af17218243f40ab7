package provenance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"switchboard/internal/scope"
)

// Request is what a requester asks for, before it is signed.
type Request struct {
	From       From
	Reason     string
	Scope      scope.Asked
	Supersedes string // grant id, "" for a new line
}

// To is the persona that is asked, from its card's params.
type To struct {
	Aud     string // params.aud
	Persona string // params.persona
}

// unsigned is a data part in the making.
type unsigned struct {
	Type       string      `json:"type"`
	From       From        `json:"from"`
	Reason     string      `json:"reason"`
	Scope      scope.Asked `json:"scope"`
	Key        PublicKey   `json:"key"`
	Supersedes string      `json:"supersedes,omitempty"`
	Provenance *Provenance `json:"provenance,omitempty"`
}

// statementLife leaves time for a slow network within MaxStatementLife.
const statementLife = 5 * time.Minute

// Build signs a request for method oidc-nonce and returns the data part.
// obtain gets an ID token with exactly this nonce from the requester's issuer,
// usually through a browser; now is asked afterwards, since a person takes
// time. A part that the other side would refuse for its form is refused here,
// before anybody is sent to sign in.
func Build(ctx context.Context, k *Key, r Request, to To, now func() time.Time, obtain func(ctx context.Context, nonce string) (string, error)) (json.RawMessage, error) {
	u, p, err := r.with(k)
	if err != nil {
		return nil, err
	}
	salt, err := newSalt()
	if err != nil {
		return nil, err
	}
	idToken, err := obtain(ctx, Nonce(to.Aud, to.Persona, k.Thumbprint(), p.Digest(), salt))
	if err != nil {
		return nil, fmt.Errorf("build friend request: ID token: %w", err)
	}
	c, err := parseCompact(idToken)
	if err != nil {
		return nil, fmt.Errorf("build friend request: ID token: %w", err)
	}
	cl, err := decodeClaims(c.payload)
	if err != nil {
		return nil, fmt.Errorf("build friend request: %w", err)
	}
	claims := statementClaims(to, p.Digest(), salt, now())
	claims["iss"], claims["sub"] = cl.text("iss"), cl.text("sub")
	return u.sign(k, MethodOIDCNonce, idToken, salt, claims)
}

// BuildSignIn signs a request for method sign-in: no ID token yet, the human
// signs in at the instance that is asked.
func BuildSignIn(k *Key, r Request, to To, now time.Time) (json.RawMessage, error) {
	u, p, err := r.with(k)
	if err != nil {
		return nil, err
	}
	salt, err := newSalt()
	if err != nil {
		return nil, err
	}
	return u.sign(k, MethodSignIn, "", salt, statementClaims(to, p.Digest(), salt, now))
}

func (r Request) with(k *Key) (unsigned, Part, error) {
	u := unsigned{Type: Type, From: r.From, Reason: r.Reason, Scope: r.Scope, Key: k.Public(), Supersedes: r.Supersedes}
	raw, err := jsonv2.Marshal(u)
	if err != nil {
		return u, Part{}, fmt.Errorf("build friend request: %w", err)
	}
	p, err := DecodePart(raw)
	if err != nil {
		return u, Part{}, fmt.Errorf("build friend request: %w", err)
	}
	return u, p, nil
}

func newSalt() (string, error) {
	b := make([]byte, minSalt)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("build friend request: salt: %w", err)
	}
	return encode64(b), nil
}

func statementClaims(to To, digest, salt string, now time.Time) map[string]any {
	return map[string]any{
		"aud": to.Aud, "persona": to.Persona, "digest": digest, "salt": salt,
		"jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(statementLife).Unix(),
	}
}

func (u unsigned) sign(k *Key, method, idToken, salt string, claims map[string]any) (json.RawMessage, error) {
	statement, err := k.SignJWT(map[string]any{"typ": StatementType}, claims)
	if err != nil {
		return nil, fmt.Errorf("build friend request: statement: %w", err)
	}
	u.Provenance = &Provenance{Method: method, IDToken: idToken, Salt: salt, Statement: statement}
	raw, err := jsonv2.Marshal(u)
	if err != nil {
		return nil, fmt.Errorf("build friend request: %w", err)
	}
	if _, err := DecodePart(raw); err != nil {
		return nil, fmt.Errorf("build friend request: %w", err)
	}
	return raw, nil
}
