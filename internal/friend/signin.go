package friend

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/address"
	"switchboard/internal/persona"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// Bounds of method sign-in, so that links cost their senders more than us.
const (
	signInsPerAddress = 10
	signInsPerPersona = 50
	codeFor           = time.Minute
)

// SignInIssuers lists the issuers at which a requester of this persona can sign
// in here; method sign-in works when there is one.
func (s *Store) SignInIssuers(p persona.Persona) []*provenance.Issuer {
	var issuers []*provenance.Issuer
	may := allowed(p)
	for _, i := range s.o.Verifier.Issuers() {
		if i.Provenance != nil && i.Login != nil && may(i) {
			issuers = append(issuers, i)
		}
	}
	return issuers
}

// submitSignIn stores a request whose human has still to sign in. Who that will
// be is not known, so rows 3 to 6, 11 and 12 come later.
func (s *Store) submitSignIn(ctx context.Context, sub Submission, a ask, t provenance.Target) (r Request, repeated bool, err error) {
	proof, err := s.o.Verifier.VerifySignIn(t, a.part)
	if err != nil {
		return Request{}, false, err
	}
	if len(s.SignInIssuers(a.persona)) == 0 {
		return Request{}, false, refusal.New(refusal.IssuerUntrusted, "nobody can sign in here for this persona")
	}
	message := messageHash(nil, a.jkt, a.persona.ID, sub.MessageID)
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := lock(ctx, tx, "key", []byte(a.jkt)); err != nil {
			return err
		}
		if err := lock(ctx, tx, "persona", a.persona.ID[:]); err != nil {
			return err
		}
		r, repeated, err = s.repeated(ctx, tx, message, a.digest)
		if err != nil || repeated {
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		if err := acceptOnce(ctx, tx, replay{"jti", []string{a.jkt, proof.StatementID}, proof.StatementUntil}); err != nil {
			return err
		}
		if err := s.capSignIns(ctx, tx, a.persona.ID, sub.Address, now); err != nil {
			return err
		}
		if err := s.insertRequest(ctx, tx, a, AwaitingSignIn, now, signInFor, nil); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO friend_sign_in (request_id, owner, persona_id, part, nonce, address, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			a.id, a.persona.Owner, a.persona.ID, []byte(sub.Part), proof.Nonce, address.Network(sub.Address).String(), now.Add(signInFor)); err != nil {
			return fmt.Errorf("store the sign-in: %w", err)
		}
		if err := s.o.Endpoints.RegisterKey(ctx, tx, a.jkt, a.part.Key.JWK(), a.persona.Slug, nil); err != nil {
			return fmt.Errorf("register the agent's key: %w", err)
		}
		if err := remember(ctx, tx, message, a.digest, a.persona.Owner, a.id); err != nil {
			return err
		}
		r, err = s.request(ctx, tx, `WHERE r.owner = $1 AND r.id = $2`, a.persona.Owner, a.id)
		return err
	})
	return r, repeated, err
}

// capSignIns bounds links per address and persona.
func (s *Store) capSignIns(ctx context.Context, tx pgx.Tx, personaID uuid.UUID, from netip.Addr, now time.Time) error {
	var here, there int
	err := tx.QueryRow(ctx, `
		SELECT
			(SELECT count(*) FROM friend_sign_in WHERE address = $1 AND expires_at > $3),
			(SELECT count(*) FROM friend_sign_in WHERE persona_id = $2 AND expires_at > $3)`,
		address.Network(from).String(), personaID, now).Scan(&here, &there)
	if err != nil {
		return fmt.Errorf("count the sign-ins: %w", err)
	}
	if there >= signInsPerPersona || here >= signInsPerAddress && !s.exempt(from) {
		return refusal.New(refusal.RateLimited, "too many friend requests wait for a sign-in").After(signInFor)
	}
	return nil
}

// SignInQuery is what the sender appended to the link.
type SignInQuery struct {
	RedirectURI, CodeChallenge, CodeChallengeMethod string
}

// SignInPage is what the page behind the link shows and needs.
type SignInPage struct {
	Request Request
	Persona string               // what the persona asked is called
	Nonce   string               // for the authorization request
	Issuers []*provenance.Issuer // where the human may sign in
}

var challenge = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// check refuses a query that could send a code anywhere but to the sender's own
// machine or a host that the operator listed.
func (q SignInQuery) check(hosts []string) error {
	if q.CodeChallengeMethod != "S256" || !challenge.MatchString(q.CodeChallenge) {
		return refusal.Invalid("code_challenge", "code_challenge with code_challenge_method=S256 must be there")
	}
	u, err := url.Parse(q.RedirectURI)
	if err != nil || u.User != nil || u.Fragment != "" || u.Opaque != "" || len(q.RedirectURI) > 2048 {
		return refusal.Invalid("redirect_uri", "redirect_uri must be a loopback URL")
	}
	ip, err := netip.ParseAddr(u.Hostname())
	switch {
	case u.Scheme == "http" && (err == nil && ip.IsLoopback() || u.Hostname() == "localhost"): // browsers look that name up nowhere
	case u.Scheme == "https" && slices.Contains(hosts, u.Host):
	default:
		return refusal.Invalid("redirect_uri", "redirect_uri must be a loopback URL such as http://127.0.0.1:7777/callback")
	}
	return nil
}

// waiting is an unredeemed sign-in.
type waiting struct {
	request Request
	part    []byte
	nonce   string
}

func (s *Store) waiting(ctx context.Context, q queryer, id uuid.UUID) (waiting, error) {
	var w waiting
	err := q.QueryRow(ctx, `
		SELECT part, nonce FROM friend_sign_in WHERE request_id = $1 AND expires_at > clock_timestamp()`, id).Scan(&w.part, &w.nonce)
	if errors.Is(err, pgx.ErrNoRows) {
		return w, noRequest()
	}
	if err != nil {
		return w, fmt.Errorf("read the sign-in: %w", err)
	}
	w.request, err = s.request(ctx, q, `WHERE r.id = $1 AND r.state = 'awaiting_sign_in'`, id)
	return w, err
}

// SignInPage returns what the page behind a link shows; refusal.NotFound when
// the link is unknown, redeemed or older than ten minutes.
func (s *Store) SignInPage(ctx context.Context, id uuid.UUID, q SignInQuery) (SignInPage, error) {
	w, err := s.waiting(ctx, s.pool, id)
	if err != nil {
		return SignInPage{}, err
	}
	if err := q.check(s.o.SignInRedirects); err != nil {
		return SignInPage{}, err
	}
	p, err := s.o.Personas.BySlug(ctx, w.request.Persona)
	if err != nil {
		return SignInPage{}, err
	}
	return SignInPage{Request: w.request, Persona: p.Name, Nonce: w.nonce, Issuers: s.SignInIssuers(p)}, nil
}

// SignInAnswer is what came back from the human's issuer: an ID token that this
// instance obtained as client ClientID with SignInPage.Nonce.
type SignInAnswer struct {
	SignInQuery
	IDToken, ClientID string
}

// SignInComplete verifies the ID token (rows 3 to 6, 9, 11) and returns a code for
// the redirect. The code is good for a minute, once, and only for the holder of
// the request's key and of the PKCE verifier: a link mailed to somebody else
// completes nothing. A later sign-in replaces an earlier one.
func (s *Store) SignInComplete(ctx context.Context, id uuid.UUID, answer SignInAnswer) (code string, err error) {
	if err := answer.check(s.o.SignInRedirects); err != nil {
		return "", err
	}
	w, err := s.waiting(ctx, s.pool, id)
	if err != nil {
		return "", err
	}
	p, err := s.o.Personas.BySlug(ctx, w.request.Persona)
	if err != nil {
		return "", err
	}
	part, err := provenance.DecodePart(w.part)
	if err != nil {
		return "", fmt.Errorf("read a stored request: %w", err)
	}
	now, err := clock(ctx, s.pool)
	if err != nil {
		return "", err
	}
	v, err := s.o.Verifier.CompleteSignIn(ctx, s.target(p, now), part, answer.IDToken, answer.ClientID)
	if err != nil {
		return "", err
	}
	if err := v.CheckTimes(now); err != nil {
		return "", err
	}
	if err := v.CheckConditions(); err != nil {
		return "", err
	}
	a := ask{id: id}
	if err := s.prove(&a, v); err != nil {
		return "", err
	}
	code = rand.Text() + rand.Text()
	tag, err := s.pool.Exec(ctx, `
		UPDATE friend_sign_in SET
			code_hash = $2, code_until = clock_timestamp() + $3::interval, redirect_uri = $4, code_challenge = $5,
			identity = $6, issuer = $7, issuer_entry = $8, subject = $9, email = $10, name = $11,
			claims = $12, id_token = $13, nonce_until = $14
		WHERE request_id = $1 AND expires_at > clock_timestamp()`,
		id, codeHash(code), codeFor, answer.RedirectURI, answer.CodeChallenge,
		a.who.Hash, a.who.Issuer, a.entry.Issuer, a.who.Subject, a.who.Email, a.who.Name,
		string(a.claims), a.idToken, v.NonceUntil)
	if err != nil {
		return "", fmt.Errorf("store the code: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return "", noRequest()
	}
	return code, nil
}

func codeHash(code string) []byte {
	sum := sha256.Sum256([]byte(code))
	return sum[:]
}

// Redemption is a code exchange at the token endpoint, its client assertion
// already verified.
type Redemption struct {
	Code, Verifier, RedirectURI string
	Persona                     string // slug, from resource
	Key                         string // jkt of the client assertion
}

// badCode is the one answer to a code that is wrong in whatever way.
func badCode() error {
	return refusal.Invalid("code", "the code is unknown, used or too old, or not yours")
}

// RedeemSignIn makes the request pending: rows 10 and 12, then as Submit. A code
// that is wrong in any way is refusal.InvalidArgument with one message (OAuth's
// invalid_grant); row 12 refuses with its own codes.
func (s *Store) RedeemSignIn(ctx context.Context, red Redemption) (Request, error) {
	a, nonce, err := s.redeemable(ctx, red)
	if err != nil {
		return Request{}, err
	}
	var r Request
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := lock(ctx, tx, "identity", a.who.Hash); err != nil {
			return err
		}
		if err := lock(ctx, tx, "persona", a.persona.ID[:]); err != nil {
			return err
		}
		if err := s.clearSignIn(ctx, tx, a, red.Code); err != nil {
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		if err := acceptOnce(ctx, tx, nonce); err != nil {
			return err
		}
		r, err = s.place(ctx, tx, now, a)
		return err
	})
	if err != nil {
		return Request{}, err
	}
	s.changed(r.Owner, r.ID)
	return r, nil
}

// clearSignIn takes the waiting row away; place writes the pending one under the
// same id. A code that was used, replaced or withdrawn meanwhile is no longer
// there.
func (s *Store) clearSignIn(ctx context.Context, tx pgx.Tx, a ask, code string) error {
	tag, err := tx.Exec(ctx, `
		DELETE FROM friend_sign_in
		WHERE request_id = $1 AND code_hash = $2 AND code_until > clock_timestamp() AND expires_at > clock_timestamp()`, a.id, codeHash(code))
	if err != nil {
		return fmt.Errorf("redeem the sign-in: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return badCode()
	}
	tag, err = tx.Exec(ctx, `DELETE FROM friend_request WHERE owner = $1 AND id = $2 AND state = 'awaiting_sign_in'`, a.persona.Owner, a.id)
	if err != nil {
		return fmt.Errorf("redeem the sign-in: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return badCode()
	}
	return nil
}

// redeemable finds what a code stands for and checks that it is the caller's.
func (s *Store) redeemable(ctx context.Context, red Redemption) (ask, replay, error) {
	var id, personaID uuid.UUID
	var part []byte
	var nonce, redirectURI, codeChallenge, entry string
	var claims []byte
	var nonceUntil time.Time
	a := ask{method: provenance.MethodSignIn}
	err := s.pool.QueryRow(ctx, `
		SELECT request_id, persona_id, part, nonce, redirect_uri, code_challenge, issuer_entry, identity, issuer, subject, email, name, claims, id_token, nonce_until
		FROM friend_sign_in
		WHERE code_hash = $1 AND code_until > clock_timestamp() AND expires_at > clock_timestamp()`, codeHash(red.Code)).
		Scan(&id, &personaID, &part, &nonce, &redirectURI, &codeChallenge, &entry, &a.who.Hash, &a.who.Issuer, &a.who.Subject, &a.who.Email, &a.who.Name, &claims, &a.idToken, &nonceUntil)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, replay{}, badCode()
	}
	if err != nil {
		return a, replay{}, fmt.Errorf("look for the code: %w", err)
	}
	sum := sha256.Sum256([]byte(red.Verifier))
	proved := subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(codeChallenge)) == 1
	if !proved || redirectURI != red.RedirectURI {
		return a, replay{}, badCode()
	}
	if a.part, err = provenance.DecodePart(part); err != nil {
		return a, replay{}, fmt.Errorf("read a stored request: %w", err)
	}
	a.id, a.claims, a.digest, a.jkt = id, json.RawMessage(claims), a.part.Digest(), a.part.Key.Thumbprint()
	if a.jkt != red.Key {
		return a, replay{}, badCode()
	}
	if a.part.Supersedes != "" {
		if a.supersedes, err = uuid.Parse(a.part.Supersedes); err != nil {
			return a, replay{}, fmt.Errorf("read a stored request: %w", err)
		}
	}
	if a.entry = s.entry(entry); a.entry == nil {
		return a, replay{}, badCode() // the operator has taken the issuer out meanwhile
	}
	if a.persona, err = s.o.Personas.BySlug(ctx, red.Persona); err != nil || a.persona.ID != personaID {
		return a, replay{}, badCode()
	}
	if a.requested, err = scope.Resolve(a.part.Scope, a.persona.Offers); err != nil {
		return a, replay{}, err
	}
	return a, replay{"nonce", []string{nonce}, nonceUntil}, nil
}

func (s *Store) entry(name string) *provenance.Issuer {
	for _, i := range s.o.Verifier.Issuers() {
		if i.Issuer == name {
			return i
		}
	}
	return nil
}
