package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/endpoint"
	"switchboard/internal/postgres"
	"switchboard/internal/provenance"
	"switchboard/internal/scope"
)

// soakWorld is an instance with two owners whose workers are put to work by two
// friends each, and a third owner on whose queue order is looked at in peace.
type soakWorld struct {
	database  string
	addresses []string // of the replicas; the first names the instance

	homes [][]target // of the worked owners, at each replica
	lanes []string
	lines []*soakLine

	quiet      [][]target
	quietLines []*soakLine
}

// soakLine is a friend with a peer endpoint.
type soakLine struct {
	name     string
	lane     string
	targets  []target // the peer endpoint at each replica
	tokens   *tokenSource
	creators int
	pace     time.Duration
}

func (w *soakWorld) host() string { return w.addresses[0] }

func newSoakWorld(ctx context.Context, dev *postgres.DevServer) (*soakWorld, error) {
	w := &soakWorld{}
	for range 2 {
		addr, err := freeAddress()
		if err != nil {
			return nil, err
		}
		w.addresses = append(w.addresses, addr)
	}
	in, err := newInstance(ctx, dev, "soak", 3, 1)
	if err != nil {
		return nil, err
	}
	defer in.close()
	w.database = in.url
	for i, h := range in.homes {
		at := w.at(h)
		lane := h.Owner.String() + "/" + h.Queue
		var lines []*soakLine
		// One friend floods, the other does not.
		for k, l := range []soakLine{{creators: 3, pace: 5 * time.Millisecond}, {creators: 1, pace: 30 * time.Millisecond}} {
			l.name, l.lane = fmt.Sprintf("friend%d-%d", i, k), lane
			if err := w.befriend(ctx, in, h, &l); err != nil {
				return nil, err
			}
			lines = append(lines, &l)
		}
		if i == 2 {
			w.quiet, w.quietLines = [][]target{at}, lines
			continue
		}
		w.homes, w.lanes, w.lines = append(w.homes, at), append(w.lanes, lane), append(w.lines, lines...)
	}
	return w, nil
}

func (w *soakWorld) at(h home) []target {
	var out []target
	for _, addr := range w.addresses {
		out = append(out, h.at(addr, w.host()))
	}
	return out
}

// befriend vends a peer endpoint to a new key, as an approval does.
func (w *soakWorld) befriend(ctx context.Context, in *instance, h home, l *soakLine) error {
	key, err := provenance.NewKey()
	if err != nil {
		return err
	}
	own, err := in.endpoints.Get(ctx, h.Owner, h.ID)
	if err != nil {
		return err
	}
	limits := scope.Defaults()
	limits.MaxOpen, limits.PerHour, limits.MaxPriority = maxOpen, 100_000_000, 9
	id := uuid.Must(uuid.NewV7())
	err = pgx.BeginFunc(ctx, in.pool, func(tx pgx.Tx) error {
		identity := []byte(fmt.Sprintf("%-32s", l.name))
		if err := in.endpoints.RegisterKey(ctx, tx, key.Thumbprint(), key.Public().JWK(), own.Persona, identity); err != nil {
			return err
		}
		return in.endpoints.VendPeer(ctx, tx, endpoint.PeerSpec{
			ID: id, Owner: h.Owner, AgentID: own.AgentID, PersonaID: own.PersonaID, Persona: own.Persona,
			GrantID: uuid.Must(uuid.NewV7()), Line: uuid.Must(uuid.NewV7()), Identity: identity, IdentityText: l.name + "@example.com", CallsItself: l.name,
			Scope:         scope.Scope{Queues: []string{h.Queue}, Verbs: scope.Verbs(), Limits: limits},
			KeyThumbprint: key.Thumbprint(), ExpiresAt: time.Now().Add(24 * time.Hour),
		})
	})
	if err != nil {
		return fmt.Errorf("befriend: %w", err)
	}
	l.targets = w.at(home{ID: id, Owner: h.Owner, Queue: h.Queue})
	l.tokens = &tokenSource{key: key, instance: "http://" + w.host()}
	return nil
}

// listed is a page of list_todos.
type listed struct {
	Todos []struct {
		TodoID     string          `json:"todo_id"`
		State      string          `json:"state"`
		Version    int64           `json:"version"`
		Attempt    int             `json:"attempt"`
		Title      string          `json:"title"`
		Result     json.RawMessage `json:"result"`
		FromFriend *struct {
			Title string `json:"title"`
		} `json:"from_friend"`
	} `json:"todos"`
	NextCursor string `json:"next_cursor"`
}

var errList = errors.New("list_todos was refused")

func (w *soakWorld) list(ctx context.Context, client *soakClient, arguments map[string]any) (listed, error) {
	for n := 0; ; n++ {
		var page listed
		r := client.call(ctx, "list_todos", arguments, 0)
		r.into(&page)
		switch {
		case r.outcome == outcomeOK:
			return page, nil
		case ctx.Err() != nil:
			return page, ctx.Err()
		case r.outcome != outcomeUnknown || n > 100:
			return page, fmt.Errorf("%w: %s", errList, r.outcome)
		}
	}
}

// open reports whether todos are left, as how many of a few.
func (w *soakWorld) open(ctx context.Context) (int, error) {
	n := 0
	for _, h := range w.homes {
		client := newSoakClient(h, nil)
		for _, state := range []string{"ready", "leased", "input_required"} {
			page, err := w.list(ctx, client, map[string]any{"state": state, "limit": 10})
			if err != nil {
				return 0, err
			}
			n += len(page.Todos)
		}
	}
	return n, nil
}

// finals reads all todos of the worked owners.
func (w *soakWorld) finals(ctx context.Context) ([]final, error) {
	var out []final
	for i, h := range w.homes {
		client := newSoakClient(h, nil)
		arguments := map[string]any{"limit": 100}
		for {
			page, err := w.list(ctx, client, arguments)
			if err != nil {
				return nil, err
			}
			for _, t := range page.Todos {
				f := final{Todo: t.TodoID, Lane: w.lanes[i], Title: t.Title, State: t.State, Result: textOf(t.Result), Version: t.Version, Attempt: t.Attempt}
				if t.FromFriend != nil {
					f.Title = t.FromFriend.Title
				}
				out = append(out, f)
			}
			if page.NextCursor == "" {
				break
			}
			arguments["cursor"] = page.NextCursor
		}
	}
	return out, nil
}
