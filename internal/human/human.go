package human

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/activity"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
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

// Arrivals is told of each new resident in the transaction that makes it (package todo makes the inbox).
type Arrivals interface {
	HumanCreated(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error
}

// Requesters knows whose friend requests are stored here (package friend);
// such people may sign in as guests.
type Requesters interface {
	KnownRequester(ctx context.Context, identity []byte) (bool, error)
}

// IDTokens finds issuers' endpoints and checks their signatures (provenance.Keys).
type IDTokens interface {
	Discover(ctx context.Context, i *provenance.Issuer) (provenance.Discovery, error)
	VerifyToken(ctx context.Context, i *provenance.Issuer, token string) ([]byte, error)
}

// Sealer keeps the state of a sign-in unreadable and unforgeable in a cookie (provenance.Sealer).
type Sealer interface {
	Seal(plaintext []byte, context string) ([]byte, error)
	Open(sealed []byte, context string) ([]byte, error)
}

// Config is what a store needs from outside. All members but Requesters, Record, Erase and Dev are required.
type Config struct {
	PublicURL  string
	Issuers    []provenance.Issuer // those with Login let people sign in
	IDTokens   IDTokens
	Client     *http.Client // for token endpoints; provenance.GuardedClient
	Sealer     Sealer
	Residents  Residents
	Arrivals   Arrivals
	Requesters Requesters                                             // nil: no guests
	Record     func(context.Context, pgx.Tx, ...activity.Event) error // nil: no activity
	Erase      []Eraser                                               // of the other packages, in this order, when an account is erased
	Dev        bool                                                   // forwards dev_* parameters, allows loopback webhooks
}

// Store is the humans of one instance.
type Store struct {
	pool    *pgxpool.Pool
	config  Config
	issuers []provenance.Issuer // those with Login
	cookie  string
}

// New checks the configuration and returns the store.
func New(pool *pgxpool.Pool, c Config) (*Store, error) {
	s := &Store{pool: pool, config: c, cookie: CookieName(c.PublicURL)}
	for _, i := range c.Issuers {
		if i.Login != nil {
			s.issuers = append(s.issuers, i)
		}
	}
	switch {
	case len(s.issuers) == 0:
		return nil, errors.New("issuers: none has a login client, so nobody could sign in")
	case c.Residents.empty():
		return nil, errors.New("residents: the list is empty, so nobody could live on this instance")
	case c.IDTokens == nil || c.Client == nil || c.Sealer == nil || c.Arrivals == nil:
		return nil, errors.New("package human is not wired completely")
	}
	if c.Record == nil {
		s.config.Record = func(context.Context, pgx.Tx, ...activity.Event) error { return nil }
	}
	return s, nil
}

// LoginIssuer is a place where people can sign in.
type LoginIssuer struct{ Issuer, Name string }

// Issuers lists where people can sign in: issuer and display name.
func (s *Store) Issuers() []LoginIssuer {
	out := make([]LoginIssuer, 0, len(s.issuers))
	for _, i := range s.issuers {
		name := i.Name
		if name == "" {
			name = i.Issuer
		}
		out = append(out, LoginIssuer{Issuer: i.Issuer, Name: name})
	}
	return out
}

const humanColumns = `h.id, h.name, h.email, h.issuer, h.subject, h.identity, h.resident, h.created_at, h.notifications, h.version`

// scanner is what a row and rows have in common.
type scanner interface{ Scan(dest ...any) error }

// scanHuman reads a human. Whom the operator has taken off the list is a guest
// from then on, whatever they were when they signed in.
func (s *Store) scanHuman(row scanner, more ...any) (Human, error) {
	var h Human
	var notifications []byte
	dest := append([]any{&h.ID, &h.Name, &h.Email, &h.Issuer, &h.Subject, &h.Identity, &h.Resident, &h.CreatedAt, &notifications, &h.Version}, more...)
	if err := row.Scan(dest...); err != nil {
		return Human{}, err
	}
	if err := json.Unmarshal(notifications, &h.Notifications); err != nil {
		return Human{}, fmt.Errorf("read notification settings: %w", err)
	}
	h.Resident = h.Resident && s.config.Residents.has(provenance.Person{Issuer: h.Issuer, Subject: h.Subject, Email: h.Email})
	return h, nil
}

var errNobody = refusal.New(refusal.NotFound, "there is no such human")

// Get returns the human; refusal.NotFound when there is none.
func (s *Store) Get(ctx context.Context, id uuid.UUID) (Human, error) {
	h, err := s.scanHuman(s.pool.QueryRow(ctx, `SELECT `+humanColumns+` FROM human h WHERE h.id = $1`, id))
	return h, found(err, "get human")
}

// Hold keeps a human from being erased until tx has ended, for whoever makes
// something of theirs; refusal.NotFound when there is no such human.
func (s *Store) Hold(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	var there bool
	return found(tx.QueryRow(ctx, `SELECT true FROM human WHERE id = $1 FOR KEY SHARE`, id).Scan(&there), "hold human")
}

// ByIdentity finds the human of an identity hash; refusal.NotFound when nobody.
func (s *Store) ByIdentity(ctx context.Context, identity []byte) (Human, error) {
	h, err := s.scanHuman(s.pool.QueryRow(ctx, `
		SELECT `+humanColumns+`
		FROM human_identity i JOIN human h ON h.id = i.human
		WHERE i.identity = $1`, identity))
	return h, found(err, "find human by identity")
}

func found(err error, what string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errNobody
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Update changes what a human may change about themselves; nil leaves as is. ifVersion that is no longer
// current is refusal.PreconditionFailed.
func (s *Store) Update(ctx context.Context, id uuid.UUID, name *string, n *Notifications, ifVersion *int64) (Human, error) {
	if name != nil {
		trimmed := strings.TrimSpace(*name)
		if trimmed == "" || utf8.RuneCountInString(trimmed) > 200 || strings.ContainsFunc(trimmed, unicode.IsControl) || !utf8.ValidString(trimmed) {
			return Human{}, refusal.Invalid("name", "name must be 1 to 200 characters of plain text")
		}
		name = &trimmed
	}
	var notifications []byte
	if n != nil {
		if err := s.checkNotifications(*n); err != nil {
			return Human{}, err
		}
		var err error
		if notifications, err = json.Marshal(n); err != nil {
			return Human{}, fmt.Errorf("write notification settings: %w", err)
		}
	}
	h, err := s.scanHuman(s.pool.QueryRow(ctx, `
		UPDATE human h
		SET name = coalesce($2, h.name), named = h.named OR $2::text IS NOT NULL,
		    notifications = coalesce($3::jsonb, h.notifications), version = h.version + 1
		WHERE h.id = $1 AND ($4::bigint IS NULL OR h.version = $4)
		RETURNING `+humanColumns, id, name, notifications, ifVersion))
	if errors.Is(err, pgx.ErrNoRows) && ifVersion != nil {
		if _, err := s.Get(ctx, id); err != nil {
			return Human{}, err
		}
		return Human{}, refusal.New(refusal.PreconditionFailed, "your profile has changed since you read it")
	}
	return h, found(err, "update human")
}

// MailOff switches a human's e-mail off; who has none on, or is gone, stays as they are.
func (s *Store) MailOff(ctx context.Context, id uuid.UUID) error {
	_, err := s.pool.Exec(ctx, `
		UPDATE human SET notifications = jsonb_set(notifications, '{email}', 'false'), version = version + 1
		WHERE id = $1 AND notifications @> '{"email": true}'`, id)
	if err != nil {
		return fmt.Errorf("switch e-mail off: %w", err)
	}
	return nil
}

func (s *Store) checkNotifications(n Notifications) error {
	if n.Digest != "" && n.Digest != "daily" {
		return refusal.Invalid("notifications.digest", `digest must be "" or "daily"`)
	}
	if n.Webhook == "" {
		return nil
	}
	u, err := url.Parse(n.Webhook)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || len(n.Webhook) > 2000 {
		return refusal.Invalid("notifications.webhook", "webhook must be an https URL without user and fragment")
	}
	ours := s.config.Dev && u.Scheme == "http" && loopback(u.Hostname())
	if u.Scheme != "https" && !ours {
		return refusal.Invalid("notifications.webhook", "webhook must be an https URL without user and fragment")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
