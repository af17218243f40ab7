package friend

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/activity"
	"switchboard/internal/address"
	"switchboard/internal/endpoint"
	"switchboard/internal/persona"
	"switchboard/internal/postgres"
	"switchboard/internal/provenance"
	"switchboard/internal/todo"
)

// Personas is what this package needs of package persona.
type Personas interface {
	// BySlug answers refusal.NotFound for unknown and off personas alike.
	BySlug(ctx context.Context, slug string) (persona.Persona, error)
	Get(ctx context.Context, owner, id uuid.UUID) (persona.Persona, error)
	// Hold is Get that keeps the persona as it is until tx ends.
	Hold(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID) (persona.Persona, error)
}

// Endpoints is what this package needs of package endpoint.
type Endpoints interface {
	VendPeer(ctx context.Context, tx pgx.Tx, spec endpoint.PeerSpec) error
	ChangePeer(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID, c endpoint.Change) error
	Changed(id uuid.UUID)
	RegisterKey(ctx context.Context, tx pgx.Tx, jkt string, jwk json.RawMessage, persona string, identity []byte) error
}

// Todos is what this package needs of package todo.
type Todos interface {
	OpenConsent(ctx context.Context, tx pgx.Tx, owner, friendRequest uuid.UUID, title string) (uuid.UUID, error)
	FinishConsent(ctx context.Context, tx pgx.Tx, owner, friendRequest uuid.UUID, outcome todo.State, result json.RawMessage) error
	CancelByEndpoint(ctx context.Context, tx pgx.Tx, owner, endpoint uuid.UUID, reason string) (int, error)
	RetitleConsent(ctx context.Context, tx pgx.Tx, owner, todo uuid.UUID, title string) error
	Woken(owner uuid.UUID)
}

// Notice is something that people should hear of outside their browser. Owner
// is the target human, Identity the requester's identity hash.
type Notice struct {
	Kind      string // friend_request.received, friend_request.decided, grant.changed, grant.ending
	Owner     uuid.UUID
	Identity  []byte
	Persona   string
	RequestID uuid.UUID
	GrantID   uuid.UUID // zero when there is none
	State     string    // of the request or grant, after
	Event     string    // grant.changed: what happened, as the activity names it (grant.narrowed, grant.left, ...)
	ExpiresAt time.Time
}

// Notifier writes a notice to the outbox in the acting transaction.
type Notifier interface {
	Notify(ctx context.Context, tx pgx.Tx, n Notice) error
}

// Wake carries hints between replicas; *postgres.Wake is one.
type Wake interface {
	Subscribe(topic string) (<-chan struct{}, func())
	Notify(topic string)
}

// Options are what a Store works with. Notify, Wake and Logger may be nil.
type Options struct {
	PublicURL string // without trailing slash
	Dev       bool   // loopback is exempt from address limits
	Verifier  *provenance.Verifier
	Sealer    *provenance.Sealer
	Personas  Personas
	Endpoints Endpoints
	Todos     Todos
	Record    func(ctx context.Context, tx pgx.Tx, events ...activity.Event) error
	Notify    Notifier
	Wake      Wake
	// SignInRedirects are hosts, besides loopback, to which method sign-in may
	// send a code, over https.
	SignInRedirects []string
	Logger          *slog.Logger
}

// Store holds friend requests, grants and blocks.
type Store struct {
	pool      *pgxpool.Pool
	o         Options
	addresses *address.Limit
	followers *followers
}

// New returns a Store on the pool. Every field of Options but the optional ones
// must be set.
func New(pool *pgxpool.Pool, o Options) *Store {
	o.PublicURL = strings.TrimSuffix(o.PublicURL, "/")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{pool: pool, o: o, addresses: address.NewLimit(addressPerMinute), followers: newFollowers()}
}

// attempts bounds how often a transaction is run again after a deadlock.
const attempts = 4

// inTx runs f in a transaction and returns nil only after COMMIT. Any error of f
// rolls everything back.
func (s *Store) inTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	var err error
	for range attempts {
		err = pgx.BeginFunc(ctx, s.pool, f)
		if !postgres.Retryable(err) {
			return err
		}
	}
	return err
}

// queryer is a pool or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// clock returns the database's time, the only one that decides.
func clock(ctx context.Context, q queryer) (time.Time, error) {
	var now time.Time
	if err := q.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return now.UTC(), nil
}

// lock takes a transaction-level advisory lock named by its parts. Callers that
// take several take "identity" before "persona".
func lock(ctx context.Context, tx pgx.Tx, kind string, id []byte) error {
	h := sha256.New()
	h.Write([]byte("switchboard friend " + kind + "\x00"))
	h.Write(id)
	key := int64(binary.BigEndian.Uint64(h.Sum(nil))) //nolint:gosec // any 64 bits will do
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, key); err != nil {
		return fmt.Errorf("lock the %s: %w", kind, err)
	}
	return nil
}

// hashOf returns SHA-256 over parts that cannot run into one another.
func hashOf(parts ...string) []byte {
	sum := sha256.Sum256([]byte(postgres.BindCursor(parts...)))
	return sum[:]
}

func newID() (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("make an id: %w", err)
	}
	return id, nil
}

// notify tells the outbox, when there is one.
func (s *Store) notify(ctx context.Context, tx pgx.Tx, n Notice) error {
	if s.o.Notify == nil {
		return nil
	}
	if err := s.o.Notify.Notify(ctx, tx, n); err != nil {
		return fmt.Errorf("write a notice: %w", err)
	}
	return nil
}

func (s *Store) record(ctx context.Context, tx pgx.Tx, e activity.Event) error {
	if err := s.o.Record(ctx, tx, e); err != nil {
		return fmt.Errorf("record %s: %w", e.Kind, err)
	}
	return nil
}

// The actors of activity events.
func actorHuman(id uuid.UUID) string   { return "human:" + id.String() }
func actorIdentity(hash []byte) string { return "identity:" + hex.EncodeToString(hash) }

const actorSystem = "system"
