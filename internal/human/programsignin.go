package human

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/refusal"
)

// programSignInLife is how long the code of a program's sign-in is good, for
// people too who carry it over from a browser on another machine.
const programSignInLife = 5 * time.Minute

const sealContextProgram = "human program sign-in"

// ProgramSignIn is what a program on somebody's computer asks for in their
// browser: an API token called Name. Its code goes to RedirectURI, on loopback
// (RFC 8252 section 7.3), and is redeemed by the verifier of Challenge (RFC
// 7636, S256).
type ProgramSignIn struct {
	Name        string `json:"name"`
	RedirectURI string `json:"redirect_uri"`
	Challenge   string `json:"code_challenge"`
}

// Check refuses what no program of ours asks for, as refusal.InvalidArgument.
func (p ProgramSignIn) Check() error {
	if _, err := plainName(p.Name); err != nil {
		return err
	}
	u, err := url.Parse(p.RedirectURI)
	if err != nil || len(p.RedirectURI) > 200 || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return refusal.Invalid("redirect_uri", "redirect_uri is not one of a program on this computer")
	}
	if at, err := netip.ParseAddrPort(u.Host); err != nil || !at.Addr().IsLoopback() {
		return refusal.Invalid("redirect_uri", "redirect_uri is not one of a program on this computer")
	}
	if b, err := base64.RawURLEncoding.Strict().DecodeString(p.Challenge); err != nil || len(b) != sha256.Size {
		return refusal.Invalid("code_challenge", "code_challenge with code_challenge_method=S256 is needed")
	}
	return nil
}

// allowed is a yes on its way to the program. Nothing is stored of it, so one
// that is not redeemed leaves nothing behind.
type allowed struct {
	ProgramSignIn
	Human uuid.UUID `json:"human"`
	Key   string    `json:"key"` // of Once
	Until time.Time `json:"until"`
}

// AllowProgram makes the code that stands for the human's yes. Like any API
// token this takes a resident who signed in lately: refusal.Forbidden otherwise.
func (s *Store) AllowProgram(ctx context.Context, by Session, p ProgramSignIn) (code string, err error) {
	if err := p.Check(); err != nil {
		return "", err
	}
	if !by.Fresh || !by.Human.Resident {
		return "", refusal.New(refusal.Forbidden, "sign in again: this needs a sign-in within the last 12 hours")
	}
	now, err := s.now(ctx)
	if err != nil {
		return "", err
	}
	plain, err := json.Marshal(allowed{ProgramSignIn: p, Human: by.Human.ID, Key: uuid.NewString(), Until: now.Add(programSignInLife)})
	if err != nil {
		return "", fmt.Errorf("allow program: %w", err)
	}
	sealed, err := s.config.Sealer.Seal(plain, sealContextProgram)
	if err != nil {
		return "", fmt.Errorf("allow program: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// RedeemProgram makes the API token that a code stands for, once, for whoever
// has the verifier. Everything wrong with a code is one refusal.InvalidArgument.
func (s *Store) RedeemProgram(ctx context.Context, code, verifier, redirectURI string) (t APIToken, token string, err error) {
	bad := refusal.Invalid("code", "the code is wrong, was used, or is older than five minutes; sign in again")
	var a allowed
	sealed, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil {
		return APIToken{}, "", bad
	}
	plain, err := s.config.Sealer.Open(sealed, sealContextProgram)
	if err != nil {
		return APIToken{}, "", bad.Because(err)
	}
	if err := json.Unmarshal(plain, &a); err != nil {
		return APIToken{}, "", bad.Because(err)
	}
	sum := sha256.Sum256([]byte(verifier))
	if subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(a.Challenge)) != 1 || redirectURI != a.RedirectURI {
		return APIToken{}, "", bad
	}
	now, err := s.now(ctx)
	if err != nil {
		return APIToken{}, "", err
	}
	if now.After(a.Until) {
		return APIToken{}, "", bad
	}
	first, err := s.Once(ctx, a.Human, a.Key)
	if err != nil {
		return APIToken{}, "", err
	}
	if !first {
		return APIToken{}, "", bad
	}
	t, token, err = s.CreateAPIToken(ctx, a.Human, a.Name)
	if errors.Is(err, errNobody) { // erased since
		return APIToken{}, "", bad
	}
	return t, token, err
}
