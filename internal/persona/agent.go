package persona

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
)

const agentColumns = `id, owner, name, description, created_at, version`

func scanAgent(row pgx.CollectableRow) (Agent, error) {
	var a Agent
	err := row.Scan(&a.ID, &a.Owner, &a.Name, &a.Description, &a.CreatedAt, &a.Version)
	return a, err
}

func (a Agent) check() error {
	if err := checkLine("name", a.Name, MaxName); err != nil {
		return err
	}
	return checkText("description", a.Description, MaxDescription)
}

func agentFrom(rows pgx.Rows, err error) (Agent, error) {
	if err != nil {
		return Agent{}, err
	}
	a, err := pgx.CollectExactlyOneRow(rows, scanAgent)
	if none(err) {
		return Agent{}, errNoAgent
	}
	return a, err
}

// CreateAgent registers an agent. refusal.InvalidArgument when its texts are
// out of bounds.
func (s *Store) CreateAgent(ctx context.Context, owner uuid.UUID, name, description string) (Agent, error) {
	a := Agent{Owner: owner, Name: name, Description: description}
	if err := a.check(); err != nil {
		return Agent{}, err
	}
	err := s.making(ctx, "create agent", owner, func(tx pgx.Tx) error {
		var err error
		a, err = s.insertAgent(ctx, tx, a)
		return err
	})
	return a, err
}

func (s *Store) insertAgent(ctx context.Context, tx pgx.Tx, a Agent) (Agent, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Agent{}, fmt.Errorf("make an id: %w", err)
	}
	a, err = agentFrom(tx.Query(ctx, `
		INSERT INTO agent (owner, id, name, description)
		VALUES ($1, $2, $3, $4)
		RETURNING `+agentColumns, a.Owner, id, a.Name, a.Description))
	if err != nil {
		return Agent{}, err
	}
	return a, s.record(ctx, tx, a.Owner, "agent.created", "agent", id, nil)
}

// Agents lists a human's agents, oldest first.
func (s *Store) Agents(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Agent, string, error) {
	bind := postgres.BindCursor("agents", owner.String())
	after, err := afterID(bind, cursor)
	if err != nil {
		return nil, "", err
	}
	rows, err := s.pool.Query(ctx, `
		SELECT `+agentColumns+`
		FROM agent
		WHERE owner = $1 AND id > $2
		ORDER BY id
		LIMIT $3`, owner, after, page(limit)+1)
	if err != nil {
		return nil, "", fmt.Errorf("list agents: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanAgent)
	if err != nil {
		return nil, "", fmt.Errorf("list agents: %w", err)
	}
	list, next := cut(list, page(limit), func(a Agent) string { return postgres.EncodeCursor(bind, a.ID.String()) })
	return list, next, nil
}

// Agent returns one; refusal.NotFound when the human has no such agent.
func (s *Store) Agent(ctx context.Context, owner, id uuid.UUID) (Agent, error) {
	a, err := agentFrom(s.pool.Query(ctx, `SELECT `+agentColumns+` FROM agent WHERE owner = $1 AND id = $2`, owner, id))
	if err != nil {
		return Agent{}, fmt.Errorf("get agent: %w", err)
	}
	return a, nil
}

// UpdateAgent changes name and description where they are not nil.
// refusal.PreconditionFailed when ifVersion is given and not the version now.
func (s *Store) UpdateAgent(ctx context.Context, owner, id uuid.UUID, name, description *string, ifVersion *int64) (Agent, error) {
	var a Agent
	err := s.in(ctx, "update agent", func(tx pgx.Tx) error {
		var err error
		if a, err = agentFrom(tx.Query(ctx, `SELECT `+agentColumns+` FROM agent WHERE owner = $1 AND id = $2 FOR UPDATE`, owner, id)); err != nil {
			return err
		}
		if ifVersion != nil && *ifVersion != a.Version {
			return errChanged
		}
		if name != nil {
			a.Name = *name
		}
		if description != nil {
			a.Description = *description
		}
		if err := a.check(); err != nil {
			return err
		}
		if a, err = agentFrom(tx.Query(ctx, `
			UPDATE agent SET name = $3, description = $4, version = version + 1
			WHERE owner = $1 AND id = $2
			RETURNING `+agentColumns, owner, id, a.Name, a.Description)); err != nil {
			return err
		}
		return s.record(ctx, tx, owner, "agent.changed", "agent", id, nil)
	})
	return a, err
}

// DeleteAgent refuses with Conflict while personas or live endpoints hang on
// the agent.
func (s *Store) DeleteAgent(ctx context.Context, owner, id uuid.UUID) error {
	return s.in(ctx, "delete agent", func(tx pgx.Tx) error {
		if _, err := agentFrom(tx.Query(ctx, `SELECT `+agentColumns+` FROM agent WHERE owner = $1 AND id = $2 FOR UPDATE`, owner, id)); err != nil {
			return err
		}
		var personas bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM persona WHERE owner = $1 AND agent_id = $2)`, owner, id).Scan(&personas); err != nil {
			return err
		}
		if personas {
			return refusal.New(refusal.Conflict, "it still has personas")
		}
		if err := s.free(ctx, tx, owner, id, uuid.Nil); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM agent WHERE owner = $1 AND id = $2`, owner, id); err != nil {
			return err
		}
		return s.record(ctx, tx, owner, "agent.deleted", "agent", id, nil)
	})
}

// afterID reads a cursor of a list that is sorted by id; the first page starts
// after the zero id.
func afterID(bind, cursor string) (uuid.UUID, error) {
	if cursor == "" {
		return uuid.Nil, nil
	}
	key, err := postgres.DecodeCursor(bind, cursor, 1)
	if err != nil {
		return uuid.Nil, err
	}
	id, err := uuid.Parse(key[0])
	if err != nil {
		return uuid.Nil, refusal.Invalid("cursor", "cursor is not one that this list returned").Because(err)
	}
	return id, nil
}

// cut takes a page of n from a list that was read one longer, and the cursor of
// its last when there is more.
func cut[T any](list []T, n int, cursor func(T) string) ([]T, string) {
	if len(list) <= n {
		return list, ""
	}
	list = list[:n]
	return list, cursor(list[n-1])
}
