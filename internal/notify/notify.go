package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"switchboard/internal/activity"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/provenance"
)

// Humans is what this package needs of package human.
type Humans interface {
	Get(ctx context.Context, id uuid.UUID) (human.Human, error)
	ByIdentity(ctx context.Context, identity []byte) (human.Human, error)
	MailOff(ctx context.Context, id uuid.UUID) error
}

// Friends is what this package needs of package friend, to say what a
// notification is about at the moment when it is sent.
type Friends interface {
	GetIncoming(ctx context.Context, owner, id uuid.UUID) (friend.Request, error)
	Grant(ctx context.Context, owner, id uuid.UUID) (friend.Grant, error)
}

// Sealer keeps the secrets of webhooks; *provenance.Sealer is one.
type Sealer interface {
	Seal(plaintext []byte, context string) ([]byte, error)
	Open(sealed []byte, context string) ([]byte, error)
}

// Options are what a Store works with. PublicURL and Sealer are required.
type Options struct {
	PublicURL string // without trailing slash
	Dev       bool   // webhooks may be on loopback
	SMTP      string // smtp://user:password@host:port or smtps://…; "" for no e-mail
	MailFrom  string // sender, required with SMTP
	Sealer    Sealer
	Humans    Humans  // may be given later, by Join
	Friends   Friends // may be given later, by Join
	Todos     Todos   // nil: nobody is told of workers' questions
	Record    func(ctx context.Context, tx pgx.Tx, events ...activity.Event) error
	Log       *slog.Logger
	// PollEvery is how often a replica looks for something to send; 1 s when zero.
	PollEvery time.Duration
	// Retry is the pause after the given number of failed attempts at a delivery.
	// The default grows from seconds to hours.
	Retry func(failed int) time.Duration
}

// Store is the outbox and what carries it out.
type Store struct {
	pool    *pgxpool.Pool
	o       Options
	host    string // of PublicURL, for Message-IDs
	river   *river.Client[pgx.Tx]
	mail    *mailer // nil when the instance sends no e-mail
	hooks   *http.Client
	metrics metrics
}

// queue is River's name for our work.
const queue = "notify"

// How long an attempt may take, and after how long a job whose worker has
// vanished is taken up again.
const (
	attemptTimeout = 60 * time.Second
	rescueAfter    = 2 * time.Minute
	pollEvery      = time.Second
)

// New checks the options and returns the store. It sends nothing before Run.
func New(pool *pgxpool.Pool, o Options) (*Store, error) {
	o.PublicURL = strings.TrimSuffix(o.PublicURL, "/")
	u, err := url.Parse(o.PublicURL)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, errors.New("public_url is not a URL")
	case o.Sealer == nil:
		return nil, errors.New("package notify is not wired completely: no sealer")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Record == nil {
		o.Record = func(context.Context, pgx.Tx, ...activity.Event) error { return nil }
	}
	if o.PollEvery == 0 {
		o.PollEvery = pollEvery
	}
	if o.Retry == nil {
		o.Retry = retryAfter
	}
	s := &Store{pool: pool, o: o, host: u.Hostname(), hooks: provenance.GuardedClient(o.Dev), metrics: newMetrics()}
	if o.SMTP != "" {
		if s.mail, err = newMailer(o.SMTP, o.MailFrom, s.host); err != nil {
			return nil, err
		}
	}
	workers := river.NewWorkers()
	for _, err := range []error{
		river.AddWorkerSafely(workers, &routeWorker{s: s}),
		river.AddWorkerSafely(workers, &deliverWorker{s: s}),
		river.AddWorkerSafely(workers, &digestWorker{s: s}),
	} {
		if err != nil {
			return nil, fmt.Errorf("register the workers: %w", err)
		}
	}
	s.river, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{queue: {MaxWorkers: 8}},
		Workers: workers,
		ID:      uuid.NewString(), // River's own is made of host name and time, which replicas may share
		// LISTEN does not work behind transaction pooling, and a second is soon
		// enough for a message to a person.
		PollOnly:             true,
		FetchPollInterval:    o.PollEvery,
		FetchCooldown:        min(o.PollEvery, river.FetchCooldownDefault),
		JobTimeout:           attemptTimeout,
		RescueStuckJobsAfter: rescueAfter,
		SoftStopTimeout:      10 * time.Second,
		// REINDEX is for a table's owner; the serving role owns nothing.
		ReindexerIndexNames: []string{},
		Logger:              o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("make the River client: %w", err)
	}
	return s, nil
}

// Join gives the neighbours that could not be made before this store, because
// package friend needs it to write notices. It must be called before Run.
func (s *Store) Join(h Humans, f Friends) { s.o.Humans, s.o.Friends = h, f }

// Run carries out what has been committed until ctx ends, and returns when what
// was under way has ended too. Any number of replicas may run it.
func (s *Store) Run(ctx context.Context) error {
	if s.o.Humans == nil || s.o.Friends == nil {
		return errors.New("package notify is not wired completely: no humans or friends")
	}
	if err := s.river.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the River client: %w", err)
	}
	if s.o.Todos != nil {
		var ended sync.WaitGroup
		ended.Go(func() { s.questions(ctx) })
		defer ended.Wait()
	}
	stopped := s.river.Stopped()
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-stopped:
			return nil
		case <-tick.C:
			if err := s.forget(ctx); err != nil && ctx.Err() == nil {
				s.o.Log.WarnContext(ctx, "notify: forget old notifications", "error", err)
			}
		}
	}
}

// keep is how long rows stay: longer than any repeat of the same notice.
const keep = "60 days"

// forget deletes what can no longer be repeated.
func (s *Store) forget(ctx context.Context) error {
	for _, table := range []string{"notification_delivery", "notification"} {
		if _, err := s.pool.Exec(ctx, `DELETE FROM `+table+` WHERE created_at < clock_timestamp() - $1::interval`, keep); err != nil {
			return fmt.Errorf("forget rows of %s: %w", table, err)
		}
	}
	return nil
}

// Erase removes what is kept about a human, in the transaction that erases the
// account.
func (s *Store) Erase(ctx context.Context, tx pgx.Tx, human uuid.UUID) error {
	for _, statement := range []string{
		`DELETE FROM notification_channel WHERE human = $1`,
		`DELETE FROM notification_delivery WHERE human = $1`,
		`DELETE FROM notification WHERE owner = $1`,
	} {
		if _, err := tx.Exec(ctx, statement, human); err != nil {
			return fmt.Errorf("erase notifications: %w", err)
		}
	}
	return nil
}

// retries are the pauses between attempts; about a day in all, as the Standard
// Webhooks specification recommends.
var retries = []time.Duration{
	5 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 8 * time.Hour, 10 * time.Hour,
}

func retryAfter(failed int) time.Duration {
	d := retries[min(max(failed, 1), len(retries))-1]
	return d + rand.N(d/5) //nolint:gosec // spreads load, keeps no secret
}
