// Package human: sign-in, sessions, identities, API tokens.
// CONTRACT FILE: the owner of this room spreads it over files and deletes it.
package human

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Human is the accountable principal.
type Human struct {
	ID            uuid.UUID
	Name          string
	Email         string // "" unless the issuer entry is authoritative for it and it is verified
	Issuer        string
	Subject       string
	Identity      []byte // identity hash, the same as provenance computes for a request of this person
	Resident      bool   // may own agents, queues, personas; else a guest who sees only own requests and grants
	CreatedAt     time.Time
	Notifications Notifications
	Version       int64
}

// Notifications are a human's settings, carried out by package notify.
type Notifications struct {
	Email   bool   `json:"email"`
	Webhook string `json:"webhook,omitempty"` // https URL
	Digest  string `json:"digest,omitempty"`  // "", "daily"
}

// Session is a signed-in browser.
type Session struct {
	ID                  uuid.UUID
	Human               Human
	AuthTime            time.Time // when the issuer last authenticated the person
	Fresh               bool      // signed in within 12 hours: may approve, vend, resume, unblock, make tokens
	CSRF                string    // token for forms
	CreatedAt, LastSeen time.Time
	UserAgent           string
}

type Store struct{}

// Begin starts sign-in at an issuer ("" with a single issuer = that one). forward holds prompt, login_hint;
// returnTo is a path on this instance. It answers the authorization URL and an opaque state for a short-lived cookie.
func (s *Store) Begin(ctx context.Context, issuer string, forward url.Values, returnTo string) (redirect, state string, err error) {
	panic("contract")
}

// Finish verifies the answer and makes a session. token goes into the cookie; it is kept as SHA-256.
func (s *Store) Finish(ctx context.Context, state string, answer url.Values, userAgent string) (token, returnTo string, err error) {
	panic("contract")
}

// Authenticate resolves a session cookie; refusal.Unauthenticated otherwise. It slides the 12 h idle limit.
func (s *Store) Authenticate(ctx context.Context, token string) (Session, error)  { panic("contract") }
func (s *Store) SignOut(ctx context.Context, token string) error                  { panic("contract") }
func (s *Store) Sessions(ctx context.Context, human uuid.UUID) ([]Session, error) { panic("contract") }
func (s *Store) EndSession(ctx context.Context, human, session uuid.UUID) error   { panic("contract") }

// Issuers lists where people can sign in: issuer and display name.
func (s *Store) Issuers() []LoginIssuer { panic("contract") }

type LoginIssuer struct{ Issuer, Name string }

func (s *Store) Get(ctx context.Context, id uuid.UUID) (Human, error) { panic("contract") }

// ByIdentity finds the human of an identity hash; refusal.NotFound when nobody.
func (s *Store) ByIdentity(ctx context.Context, identity []byte) (Human, error) { panic("contract") }
func (s *Store) Update(ctx context.Context, id uuid.UUID, name *string, n *Notifications, ifVersion *int64) (Human, error) {
	panic("contract")
}

// APIToken is a human's sba_ token: it may read, narrow, pause, revoke and decline.
type APIToken struct {
	ID        uuid.UUID
	Name      string
	CreatedAt time.Time
	LastUsed  *time.Time
}

func (s *Store) CreateAPIToken(ctx context.Context, human uuid.UUID, name string) (t APIToken, token string, err error) {
	panic("contract")
}
func (s *Store) APITokens(ctx context.Context, human uuid.UUID) ([]APIToken, error) {
	panic("contract")
}
func (s *Store) DeleteAPIToken(ctx context.Context, human, id uuid.UUID) error { panic("contract") }
func (s *Store) AuthenticateAPIToken(ctx context.Context, token string) (Human, error) {
	panic("contract")
}

// Arrivals is told of each new resident in the transaction that makes it (package todo makes the inbox).
type Arrivals interface {
	HumanCreated(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error
}
