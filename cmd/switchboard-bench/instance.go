package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/persona"
	"switchboard/internal/postgres"
	"switchboard/internal/todo"
)

// queueName is the queue of every owner.
const queueName = "reviews"

// home is a home endpoint and what opens it.
type home struct {
	ID         uuid.UUID `json:"id"`
	Owner      uuid.UUID `json:"owner"`
	Queue      string    `json:"queue"`
	Credential string    `json:"credential"`
}

// instance is a migrated database with owners, and the domain packages on it.
type instance struct {
	url       string
	pool      *pgxpool.Pool
	wake      *postgres.Wake
	todos     *todo.Store
	endpoints *endpoint.Store
	homes     []home
	stop      context.CancelFunc
	ended     chan struct{}
}

// newInstance makes the database with so many owners, each with a queue and with
// so many agents that have a home endpoint on it. Each agent is a line.
func newInstance(ctx context.Context, dev *postgres.DevServer, name string, owners, agents int) (*instance, error) {
	conn, err := pgx.Connect(ctx, dev.URL("postgres"))
	if err != nil {
		return nil, fmt.Errorf("reach the server: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, fmt.Errorf("create database %s: %w", name, err)
	}
	in := &instance{url: dev.URL(name), ended: make(chan struct{})}
	if err := postgres.Migrate(ctx, in.url); err != nil {
		return nil, err
	}
	if in.pool, err = postgres.Open(ctx, in.url, postgres.Options{ApplicationName: "bench " + name}); err != nil {
		return nil, err
	}
	in.wake = postgres.NewWake(in.url, postgres.WakeOptions{})
	if in.todos, err = todo.Open(ctx, in.pool, in.wake, todo.Options{}); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	in.stop = stop
	go func() {
		defer close(in.ended)
		_ = in.todos.Run(run)
	}()
	personas := persona.New(in.pool, persona.Options{Queues: in.todos, Record: activity.Record})
	in.endpoints = endpoint.New(in.pool, endpoint.Options{PublicURL: "http://127.0.0.1", Personas: personas, Record: activity.Record})
	for o := range owners {
		owner := uuid.Must(uuid.NewV7())
		err := pgx.BeginFunc(ctx, in.pool, func(tx pgx.Tx) error { return in.todos.HumanCreated(ctx, tx, owner) })
		if err != nil {
			return nil, err
		}
		if _, err := in.todos.CreateQueue(ctx, owner, queueName, ""); err != nil {
			return nil, err
		}
		for a := range agents {
			h, err := in.vend(ctx, personas, owner, fmt.Sprintf("bench-%d-%d", o, a))
			if err != nil {
				return nil, err
			}
			in.homes = append(in.homes, h)
		}
	}
	return in, nil
}

// vend makes an agent, its persona, and a home endpoint on the owner's queue.
func (in *instance) vend(ctx context.Context, personas *persona.Store, owner uuid.UUID, slug string) (home, error) {
	agent, err := personas.CreateAgent(ctx, owner, slug, "")
	if err != nil {
		return home{}, err
	}
	p, err := personas.Create(ctx, owner, persona.Spec{AgentID: agent.ID, Slug: slug, Name: slug, Prompt: "Work.", Queues: []string{queueName}})
	if err != nil {
		return home{}, err
	}
	e, credential, err := in.endpoints.CreateHome(ctx, owner, endpoint.HomeSpec{AgentID: agent.ID, PersonaID: p.ID})
	if err != nil {
		return home{}, err
	}
	return home{ID: e.ID, Owner: owner, Queue: queueName, Credential: credential}, nil
}

// caller is who holds the home's credential.
func (in *instance) caller(ctx context.Context, h home) (endpoint.Caller, error) {
	return in.endpoints.Authenticate(ctx, h.ID, h.Credential)
}

// callers are the callers of all homes, in order.
func (in *instance) callers(ctx context.Context) ([]endpoint.Caller, error) {
	out := make([]endpoint.Caller, len(in.homes))
	for i, h := range in.homes {
		var err error
		if out[i], err = in.caller(ctx, h); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// close lets go of the database; it is not dropped, the server is a throwaway.
func (in *instance) close() {
	in.stop()
	<-in.ended
	_ = in.todos.Close(context.Background())
	in.wake.Close()
	in.pool.Close()
}

// sealKey is the sealing key of every instance here; nothing is ever sealed.
func sealKey() []byte {
	sum := sha256.Sum256([]byte("switchboard-bench"))
	return sum[:]
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return "127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}
