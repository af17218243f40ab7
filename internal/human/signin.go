package human

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/oauth2"

	"switchboard/internal/activity"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
)

// SignInLife is how long a person may take at the issuer; the cookie lives as long.
const SignInLife = 10 * time.Minute

const sealContext = "human sign-in"

// CallbackPath is where issuers send people back to.
const CallbackPath = "/login/callback"

// attempt is what has to come back unchanged; it lives sealed in a cookie, so
// that a visit of /login writes nothing here.
type attempt struct {
	Issuer   string    `json:"issuer"`
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	ReturnTo string    `json:"return_to,omitempty"`
	Keep     string    `json:"keep,omitempty"` // the caller's, of BeginFor
	Until    time.Time `json:"until"`
}

// errNoEntry is the one answer to all who may not come in, whatever the reason, so that it tells nothing.
var errNoEntry = refusal.New(refusal.Forbidden, "You are signed in at your provider, but this instance has no place for you. Ask its operator to list you.")

var errStartAgain = refusal.New(refusal.Unauthenticated, "The sign-in took too long or was started in another browser. Please start again.")

// Begin starts sign-in at an issuer ("" with a single issuer = that one). forward holds prompt, login_hint;
// returnTo is a path on this instance. It answers the authorization URL and an opaque state for a short-lived cookie.
func (s *Store) Begin(ctx context.Context, issuer string, forward url.Values, returnTo string) (redirect, state string, err error) {
	entry, err := s.issuer(issuer)
	if err != nil {
		return "", "", err
	}
	return s.begin(ctx, entry, sealContext, attempt{Nonce: newToken(""), ReturnTo: LocalPath(returnTo)}, forward)
}

// begin completes an attempt, seals it for the cookie, and makes the authorization request of it.
func (s *Store) begin(ctx context.Context, entry *provenance.Issuer, purpose string, a attempt, forward url.Values, options ...oauth2.AuthCodeOption) (redirect, state string, err error) {
	config, err := s.client(ctx, entry)
	if err != nil {
		return "", "", err
	}
	now, err := s.now(ctx)
	if err != nil {
		return "", "", err
	}
	a.Issuer, a.State, a.Verifier, a.Until = entry.Issuer, newToken(""), oauth2.GenerateVerifier(), now.Add(SignInLife)
	plain, err := json.Marshal(a)
	if err != nil {
		return "", "", fmt.Errorf("begin sign-in: %w", err)
	}
	sealed, err := s.config.Sealer.Seal(plain, purpose)
	if err != nil {
		return "", "", fmt.Errorf("begin sign-in: %w", err)
	}
	options = append(options, oauth2.S256ChallengeOption(a.Verifier), oauth2.SetAuthURLParam("nonce", a.Nonce))
	for name, values := range forward {
		if len(values) > 0 && (name == "prompt" || name == "login_hint" || s.config.Dev && strings.HasPrefix(name, "dev_")) {
			options = append(options, oauth2.SetAuthURLParam(name, values[0]))
		}
	}
	return config.AuthCodeURL(a.State, options...), base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Finish verifies the answer and makes a session. token goes into the cookie; it is kept as SHA-256.
func (s *Store) Finish(ctx context.Context, state string, answer url.Values, userAgent string) (token, returnTo string, err error) {
	now, err := s.now(ctx)
	if err != nil {
		return "", "", err
	}
	a, err := s.open(state, sealContext, answer, now)
	if err != nil {
		return "", "", err
	}
	entry, err := s.answered(a, answer)
	if err != nil {
		return "", a.ReturnTo, err
	}
	claims, authTime, err := s.redeem(ctx, entry, a, answer.Get("code"), now)
	if err != nil {
		return "", a.ReturnTo, err
	}
	person, err := s.admit(entry, claims)
	if err != nil {
		return "", a.ReturnTo, err
	}
	token, err = s.enter(ctx, person, authTime, userAgent)
	return token, a.ReturnTo, err
}

// answered checks that the answer is a yes, and by the issuer that was asked.
func (s *Store) answered(a attempt, answer url.Values) (*provenance.Issuer, error) {
	entry, err := s.issuer(a.Issuer)
	if err != nil {
		return nil, errStartAgain.Because(err)
	}
	// RFC 9207. Entries for many tenants are told apart by the token alone.
	if iss := answer.Get("iss"); iss != "" && !entry.Names(iss, "") && !strings.Contains(entry.Issuer, "{") {
		return nil, refusal.New(refusal.Unauthenticated, "The answer came from another provider than the one you were sent to.")
	}
	if code := answer.Get("error"); code != "" {
		return nil, refusal.New(refusal.Unauthenticated, "Your provider did not sign you in.").Because(fmt.Errorf("issuer %s: error %q", entry.Issuer, code))
	}
	return entry, nil
}

// open unseals the cookie and checks that it belongs to this answer.
func (s *Store) open(state, purpose string, answer url.Values, now time.Time) (attempt, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil || len(sealed) == 0 {
		return attempt{}, errStartAgain
	}
	plain, err := s.config.Sealer.Open(sealed, purpose)
	if err != nil {
		return attempt{}, errStartAgain.Because(err)
	}
	var a attempt
	if err := json.Unmarshal(plain, &a); err != nil {
		return attempt{}, errStartAgain.Because(err)
	}
	if now.After(a.Until) || subtle.ConstantTimeCompare([]byte(a.State), []byte(answer.Get("state"))) != 1 {
		return attempt{}, errStartAgain
	}
	return a, nil
}

var errUnverified = refusal.New(refusal.Unauthenticated, "Your provider's answer could not be verified. Please start again.")

// exchange redeems the issuer's code for an ID token, which is not verified here.
func (s *Store) exchange(ctx context.Context, entry *provenance.Issuer, a attempt, code string) (idToken string, err error) {
	config, err := s.client(ctx, entry)
	if err != nil {
		return "", err
	}
	answer, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, s.config.Client), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return "", errUnverified.Because(fmt.Errorf("redeem code at %s: %w", entry.Issuer, err))
	}
	idToken, _ = answer.Extra("id_token").(string)
	return idToken, nil
}

// redeem exchanges the code and verifies the ID token.
func (s *Store) redeem(ctx context.Context, entry *provenance.Issuer, a attempt, code string, now time.Time) ([]byte, time.Time, error) {
	idToken, err := s.exchange(ctx, entry, a, code)
	if err != nil {
		return nil, time.Time{}, err
	}
	payload, err := s.config.IDTokens.VerifyToken(ctx, entry, idToken)
	if err != nil {
		return nil, time.Time{}, errUnverified.Because(fmt.Errorf("verify ID token of %s: %w", entry.Issuer, err))
	}
	authTime, err := checkClaims(payload, entry, a.Nonce, now)
	if err != nil {
		return nil, time.Time{}, errUnverified.Because(fmt.Errorf("ID token of %s: %w", entry.Issuer, err))
	}
	return payload, authTime, nil
}

// admit turns claims into a person, under the entry's own conditions.
func (s *Store) admit(entry *provenance.Issuer, claims []byte) (provenance.Person, error) {
	if err := entry.CheckConditions(claims); err != nil {
		return provenance.Person{}, errNoEntry.Because(err)
	}
	p, err := entry.Person(claims)
	if err != nil {
		return provenance.Person{}, errNoEntry.Because(err)
	}
	return p, nil
}

// enter finds or makes the human and starts the session, all in one transaction.
func (s *Store) enter(ctx context.Context, p provenance.Person, authTime time.Time, userAgent string) (string, error) {
	resident := s.config.Residents.has(p)
	if !resident {
		known := false
		if s.config.Requesters != nil {
			var err error
			if known, err = s.config.Requesters.KnownRequester(ctx, p.Identity); err != nil {
				return "", fmt.Errorf("look for friend requests: %w", err)
			}
		}
		if !known {
			return "", errNoEntry
		}
	}
	var token string
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		h, err := s.upsert(ctx, tx, p, resident)
		if err != nil {
			return err
		}
		token, err = s.newSession(ctx, tx, h, authTime, userAgent)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("sign in: %w", err)
	}
	return token, nil
}

// upsert returns the human of the identity, made when new, with name, e-mail and residence as of this sign-in.
func (s *Store) upsert(ctx context.Context, tx pgx.Tx, p provenance.Person, resident bool) (Human, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Human{}, err
	}
	name := clean(p.Name)
	if name == "" {
		name = clean(p.Email)
	}
	if name == "" {
		name = clean(p.Subject)
	}
	// Of two first sign-ins at once, the second waits here and then finds the first one's row.
	tag, err := tx.Exec(ctx, `INSERT INTO human_identity (identity, human) VALUES ($1, $2) ON CONFLICT DO NOTHING`, p.Identity, id)
	if err != nil {
		return Human{}, err
	}
	made := tag.RowsAffected() == 1
	if made {
		_, err = tx.Exec(ctx, `
			INSERT INTO human (id, name, email, issuer, subject, identity, resident, arrived)
			VALUES ($1, $2, $3, $4, $5, $6, $7, false)`, id, name, p.Email, p.Issuer, p.Subject, p.Identity, resident)
	} else {
		err = tx.QueryRow(ctx, `SELECT human FROM human_identity WHERE identity = $1`, p.Identity).Scan(&id)
	}
	if err != nil {
		return Human{}, err
	}
	var arrived bool
	if err := tx.QueryRow(ctx, `SELECT arrived FROM human WHERE id = $1 FOR UPDATE`, id).Scan(&arrived); err != nil {
		return Human{}, err
	}
	h, err := s.scanHuman(tx.QueryRow(ctx, `
		UPDATE human h
		SET name = CASE WHEN h.named THEN h.name ELSE $2 END, email = $3, resident = $4, arrived = h.arrived OR $4,
		    -- A request that nobody sees is no approval: who has just come to live here hears by e-mail, where
		    -- there is a verified address, until they turn it off. Guests have no settings to do so.
		    notifications = CASE WHEN $4 AND NOT h.arrived AND $3 <> '' AND h.notifications = '{}' THEN '{"email": true}' ELSE h.notifications END
		WHERE h.id = $1
		RETURNING `+humanColumns, id, name, p.Email, resident))
	if err != nil {
		return Human{}, err
	}
	if resident && !arrived {
		if err := s.config.Arrivals.HumanCreated(ctx, tx, id); err != nil {
			return Human{}, err
		}
	}
	if made {
		err = s.config.Record(ctx, tx, activity.Event{
			Owner: id, Kind: "human.created", Actor: "human:" + id.String(), Object: "human", ObjectID: id,
			Detail: map[string]any{"resident": resident}, Personal: map[string]string{"name": name, "email": p.Email},
		})
	}
	return h, err
}

// issuer finds an entry that people can sign in at.
func (s *Store) issuer(name string) (*provenance.Issuer, error) {
	if name == "" && len(s.issuers) == 1 {
		return &s.issuers[0], nil
	}
	for i := range s.issuers {
		if s.issuers[i].Issuer == name {
			return &s.issuers[i], nil
		}
	}
	return nil, refusal.Invalid("issuer", "choose where to sign in")
}

func (s *Store) client(ctx context.Context, entry *provenance.Issuer) (*oauth2.Config, error) {
	d, err := s.config.IDTokens.Discover(ctx, entry)
	if err != nil {
		return nil, refusal.New(refusal.Unavailable, "The sign-in provider does not answer. Please try again in a moment.").Because(err)
	}
	c := &oauth2.Config{
		ClientID: entry.Login.ClientID, ClientSecret: entry.Login.ClientSecret,
		Endpoint:    oauth2.Endpoint{AuthURL: d.AuthorizationEndpoint, TokenURL: d.TokenEndpoint},
		RedirectURL: s.config.PublicURL + CallbackPath,
		Scopes:      strings.Fields(entry.Login.Scope),
	}
	if len(c.Scopes) == 0 {
		c.Scopes = []string{"openid", "email", "profile"}
	}
	if c.ClientSecret == "" {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams // a public client has nothing to put into a header
	}
	return c, nil
}

func (s *Store) now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return now, nil
}

// LocalPath returns p when it is a path on this instance that a person may be sent to, else "/".
func LocalPath(p string) string {
	// Browsers read a backslash as a slash and drop tabs and newlines, which would make "//elsewhere" of it.
	if len(p) > 2000 || !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsFunc(p, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' }) {
		return "/"
	}
	u, err := url.Parse(p)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, "/login") || u.Path == "/logout" {
		return "/"
	}
	return p
}
