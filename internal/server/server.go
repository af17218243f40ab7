package server

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"switchboard/internal/a2a"
	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/mcp"
	"switchboard/internal/notify"
	"switchboard/internal/oauth"
	"switchboard/internal/persona"
	"switchboard/internal/postgres"
	"switchboard/internal/provenance"
	"switchboard/internal/rest"
	"switchboard/internal/todo"
	"switchboard/internal/web"
)

// answerWithin is how long a client may take to read an answer.
const answerWithin = time.Minute

// Server is one process of an instance.
type Server struct {
	writeWithin time.Duration
	tools       http.Handler // of package mcp
	config      Config
	log         *slog.Logger
	pool        *pgxpool.Pool
	wake        *postgres.Wake
	todos       *todo.Store
	public      http.Handler
	private     http.Handler
	work        []func(context.Context) error // background loops, ended by their context

	// Addr and PrivateAddr are where the listeners are once Run has begun.
	publicListener, privateListener net.Listener
}

// New opens the database, refuses a schema that this program does not know, and
// joins the rooms. The caller runs it, and closes it when Run was never called.
func New(ctx context.Context, c Config, version string, log *slog.Logger) (*Server, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.DirectDatabaseURL == "" {
		c.DirectDatabaseURL = c.DatabaseURL
	}
	pool, err := postgres.Open(ctx, c.DatabaseURL, postgres.Options{TransactionPooling: c.Pooled})
	if err != nil {
		return nil, fmt.Errorf("database_url: %w", err)
	}
	if err := postgres.CheckSchema(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	s := &Server{writeWithin: answerWithin, config: c, log: log, pool: pool, wake: postgres.NewWake(c.DirectDatabaseURL, postgres.WakeOptions{Logger: log})}
	if err := s.join(ctx, version); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close finishes the batches under way and lets go of the database.
func (s *Server) Close() {
	if s.todos != nil {
		if err := s.todos.Close(context.Background()); err != nil {
			s.log.Error("close the queue", "error", err)
		}
	}
	s.wake.Close()
	s.pool.Close()
}

// join makes the domain packages, gives each what it needs of the others, and
// mounts the transports.
func (s *Server) join(ctx context.Context, version string) error {
	c := s.config
	sealer, err := provenance.NewSealer(c.SealKeys[0], c.SealKeys[1:]...)
	if err != nil {
		return err
	}
	guarded := provenance.GuardedClient(c.Dev)
	keys := provenance.NewKeys(guarded)
	verifier := provenance.NewVerifier(c.Issuers, keys)

	s.todos, err = todo.Open(ctx, s.pool, s.wake, todo.Options{Logger: s.log})
	if err != nil {
		return err
	}
	todos := s.todos
	var humans *human.Store
	personas := persona.New(s.pool, persona.Options{
		Queues: todos, Record: activity.Record, Dependents: []persona.Dependents{endpoint.Dependents, friend.Dependents},
		Owner: func(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error { return humans.Hold(ctx, tx, owner) },
	})
	endpoints := endpoint.New(s.pool, endpoint.Options{
		PublicURL: c.PublicURL, Personas: personas, Record: activity.Record,
		OnChange: func(owner, _ uuid.UUID) { todos.Woken(owner) },
	})
	notices, err := notify.New(s.pool, notify.Options{
		PublicURL: c.PublicURL, Dev: c.Dev, SMTP: c.SMTP, MailFrom: c.MailFrom, Sealer: sealer, Todos: todos, Record: activity.Record, Log: s.log,
	})
	if err != nil {
		return err
	}
	friends := friend.New(s.pool, friend.Options{
		PublicURL: c.PublicURL, Dev: c.Dev, Verifier: verifier, Sealer: sealer, Personas: personas, Endpoints: endpoints, Todos: todos,
		Record: activity.Record, Notify: notices, Wake: s.wake, SignInRedirects: c.SignInRedirects, Logger: s.log,
	})
	humans, err = human.New(s.pool, human.Config{
		PublicURL: c.PublicURL, Issuers: c.Issuers, IDTokens: keys, Client: guarded, Sealer: sealer, Residents: c.Residents,
		Arrivals: todos, Requesters: friends, Record: activity.Record, Dev: c.Dev,
		Erase: erasers(personas, notices, friends, endpoints, todos),
	})
	if err != nil {
		return err
	}
	notices.Join(humans, friends)
	events := activity.NewStore(s.pool)
	signer, err := derivedKey(c.SealKeys[0], activityHeads)
	if err != nil {
		return err
	}
	sealing, err := activity.NewSealer(s.pool, signer, s.log)
	if err != nil {
		return err
	}

	directory := persona.NewDirectory(personas, c.PublicURL, c.Directories, guarded, s.log)
	address := clientAddress(c.TrustedProxies)
	bearer := requesterOf(endpoints, c.PublicURL)
	cards := a2a.New(a2a.Deps{
		PublicURL: c.PublicURL, Personas: personas, Friends: friends, Keys: persona.NewCardKeys(s.pool, sealer),
		Issuers: verifier.Issuers(), Dev: c.Dev, Log: s.log, Requester: bearer, Tokens: endpoints, ClientAddress: address,
		SignIn: func(p persona.Persona) bool { return len(friends.SignInIssuers(p)) > 0 },
	})
	tools, err := mcp.New(mcp.Deps{
		PublicURL: c.PublicURL, Version: version, Endpoints: endpoints, Todos: todos,
		Directory: directory, Friends: friends, Humans: humans, Cards: cards, Log: s.log,
	})
	if err != nil {
		return err
	}
	issuers := make([]web.Issuer, 0, len(c.Issuers))
	for _, i := range c.Issuers {
		if i.Provenance != nil {
			issuers = append(issuers, web.Issuer{Issuer: i.Issuer, Name: i.Name})
		}
	}
	mux := http.NewServeMux()
	cards.Routes(mux)
	oauth.New(oauth.Deps{
		PublicURL: c.PublicURL, Endpoints: endpoints, Dev: c.Dev, Log: s.log, Stylesheet: web.Stylesheet(),
		Session: func(r *http.Request) (human.Session, bool) {
			session, err := humans.SessionFromRequest(r)
			return session, err == nil
		},
		RedeemSignIn: func(ctx context.Context, r oauth.SignIn) error {
			_, err := friends.RedeemSignIn(ctx, friend.Redemption{Code: r.Code, Verifier: r.Verifier, RedirectURI: r.RedirectURI, Persona: r.Persona, Key: r.Key})
			return err
		},
	}).Routes(mux)
	s.tools = tools
	mux.Handle("/mcp/", tools)
	api := rest.New(rest.Deps{
		PublicURL: c.PublicURL, Version: version, Pool: s.pool, Humans: humans, Personas: personas, Endpoints: endpoints, Friends: friends,
		Todos: todos, Activity: events, Directory: directory, Log: s.log,
		Icon: web.Icon(), SessionToken: humans.TokenFromRequest, Requester: bearer, ClientAddress: address,
	})
	for _, path := range []string{"/v1/", "/openapi.json", "/openapi.yaml", "/docs"} {
		mux.Handle(path, api)
	}
	published(mux)
	mux.Handle("/", web.New(web.Deps{
		PublicURL: c.PublicURL, Humans: humans, Friends: friends, SignIns: friends, Todos: todos, Endpoints: endpoints, Personas: personas,
		Activity: events, Issuers: issuers, Notices: notices, Wake: s.wake, ClientAddress: address, Log: s.log,
	}))
	if c.Dev {
		mux.HandleFunc("GET /readyz", s.ready)
	}
	s.public = guard(c, s.log, measured(direct(tools, mux)))
	s.private = s.privateMux(notices)
	s.work = []func(context.Context) error{
		todos.Run,
		friends.Run,
		endpoints.Run,
		humans.Run,
		notices.Run,
		directory.Run,
		func(ctx context.Context) error { sealing.Run(ctx, 5*time.Second); return nil },
		func(ctx context.Context) error {
			return every(ctx, time.Hour, s.log, "forget replays", func(ctx context.Context) error { return rest.ForgetReplays(ctx, s.pool) })
		},
	}
	return nil
}

// activityHeads is the purpose of the key that signs the record's checkpoints.
const activityHeads = "activity heads"

// derivedKey makes a signing key of the operator's sealing key, so that an
// operator has one secret to keep (RFC 5869).
func derivedKey(secret []byte, purpose string) (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "switchboard "+purpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key for %s: %w", purpose, err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// every calls do now and then until ctx ends; a failure is logged and tried
// again at the next turn.
func every(ctx context.Context, d time.Duration, log *slog.Logger, what string, do func(context.Context) error) error {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, what, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// Handler is the public listener's handler, for tests that bring their own
// listener.
func (s *Server) Handler() http.Handler { return s.public }

// Listen takes the addresses, so that a caller may learn them before Run.
func (s *Server) Listen() error {
	var err error
	if s.publicListener, err = net.Listen("tcp", s.config.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if s.config.PrivateListen == "" {
		return nil
	}
	if s.privateListener, err = net.Listen("tcp", s.config.PrivateListen); err != nil {
		return errors.Join(fmt.Errorf("private_listen: %w", err), s.publicListener.Close())
	}
	return nil
}

// Use serves on a listener that the caller brings, in place of Listen.
func (s *Server) Use(public net.Listener) { s.publicListener = public }

// drain is how long calls under way may go on once the process is told to end:
// longer than the longest waiting call.
const drain = 55 * time.Second

// Run serves until ctx ends, then lets calls under way finish. Background loops
// end with ctx.
func (s *Server) Run(ctx context.Context) error {
	if s.publicListener == nil {
		if err := s.Listen(); err != nil {
			return err
		}
	}
	defer s.Close()
	group, ctx := errgroup.WithContext(ctx)
	for _, loop := range s.work {
		group.Go(func() error {
			if err := loop(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	serve := func(l net.Listener, h http.Handler) {
		if l == nil {
			return
		}
		// Waiting calls see the end of the process through their base context
		// and answer, so a restart does not wait for their 50 seconds.
		base, ending := context.WithCancel(context.WithoutCancel(ctx))
		hs := &http.Server{
			Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
			// An answer that nobody reads is held no longer than this. Streams and
			// waiting calls set a time of their own.
			WriteTimeout: s.writeWithin,
			BaseContext:  func(net.Listener) context.Context { return base },
			ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		}
		group.Go(func() error {
			if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		group.Go(func() error {
			defer ending()
			<-ctx.Done()
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
			defer cancel()
			time.AfterFunc(2*time.Second, ending)
			if err := hs.Shutdown(end); err != nil {
				return errors.Join(err, hs.Close())
			}
			if d, ok := s.tools.(interface{ Drain(context.Context) error }); ok {
				return d.Drain(end) // waiting calls, of which net/http knows nothing
			}
			return nil
		})
	}
	serve(s.publicListener, s.public)
	serve(s.privateListener, s.private)
	return group.Wait()
}
