package persona

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

const columns = `p.id, p.owner, p.agent_id, p.slug, p.name, p.description, p.prompt, p.queues, p.offers, p.offer_version,
	p.visibility, p.who_may_ask, p.created_at, p.updated_at, p.version`

func scan(row pgx.CollectableRow) (Persona, error) {
	var p Persona
	var offers, who json.RawMessage
	if err := row.Scan(&p.ID, &p.Owner, &p.AgentID, &p.Slug, &p.Name, &p.Description, &p.Prompt, &p.Queues, &offers, &p.OfferVersion,
		&p.Visibility, &who, &p.CreatedAt, &p.UpdatedAt, &p.Version); err != nil {
		return Persona{}, err
	}
	if err := json.Unmarshal(offers, &p.Offers); err != nil {
		return Persona{}, fmt.Errorf("stored offers: %w", err)
	}
	if err := json.Unmarshal(who, &p.WhoMayAsk); err != nil {
		return Persona{}, fmt.Errorf("stored who_may_ask: %w", err)
	}
	return p, nil
}

func from(rows pgx.Rows, err error) (Persona, error) {
	if err != nil {
		return Persona{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, scan)
	if none(err) {
		return Persona{}, errNoPersona
	}
	return p, err
}

// tidy makes what is stored canonical: no nil lists, and offers with their
// verbs in the fixed order, so that equal offers are equal in bytes.
func (p Persona) tidy() Persona {
	if p.Queues == nil {
		p.Queues = []string{}
	}
	offers := make([]scope.Offer, 0, len(p.Offers))
	for _, o := range p.Offers {
		verbs := slices.Clone(o.Verbs)
		slices.SortFunc(verbs, func(a, b scope.Verb) int { return slices.Index(scope.Verbs(), a) - slices.Index(scope.Verbs(), b) })
		offers = append(offers, scope.Offer{Queue: o.Queue, Verbs: verbs, Limits: o.Limits})
	}
	p.Offers = offers
	return p
}

func (p Persona) stored() (offers, who []byte, err error) {
	if offers, err = json.Marshal(p.Offers); err != nil {
		return nil, nil, fmt.Errorf("encode offers: %w", err)
	}
	if who, err = json.Marshal(p.WhoMayAsk); err != nil {
		return nil, nil, fmt.Errorf("encode who_may_ask: %w", err)
	}
	return offers, who, nil
}

// Create publishes a persona. refusal.InvalidArgument names what is wrong with
// the spec, the agent included; refusal.Conflict when the slug is taken or was
// another human's.
func (s *Store) Create(ctx context.Context, owner uuid.UUID, spec Spec) (Persona, error) {
	return s.create(ctx, owner, spec, "")
}

// create publishes a persona, and makes its agent first where one is named.
func (s *Store) create(ctx context.Context, owner uuid.UUID, spec Spec, agentName string) (Persona, error) {
	p := spec.persona(owner)
	if err := p.check(); err != nil {
		return Persona{}, err
	}
	p = p.tidy()
	// Queues are never deleted and their names never change, so this may stand
	// outside the transaction.
	if err := s.o.Queues.QueuesExist(ctx, owner, p.Queues); err != nil {
		return Persona{}, err
	}
	offers, who, err := p.stored()
	if err != nil {
		return Persona{}, err
	}
	if p.ID, err = uuid.NewV7(); err != nil {
		return Persona{}, fmt.Errorf("make an id: %w", err)
	}
	err = s.making(ctx, "create persona", owner, func(tx pgx.Tx) error {
		if agentName != "" {
			made, err := s.insertAgent(ctx, tx, Agent{Owner: owner, Name: agentName})
			if err != nil {
				return err
			}
			p.AgentID = made.ID
		}
		var agent uuid.UUID
		err := tx.QueryRow(ctx, `SELECT id FROM agent WHERE owner = $1 AND id = $2 FOR KEY SHARE`, owner, p.AgentID).Scan(&agent)
		if none(err) {
			return refusal.Invalid("agent_id", "agent_id names no agent of yours")
		}
		if err != nil {
			return err
		}
		if err := takeSlug(ctx, tx, p); err != nil {
			return err
		}
		if p, err = from(tx.Query(ctx, `
			INSERT INTO persona AS p (owner, id, agent_id, slug, name, description, prompt, queues, offers, visibility, who_may_ask)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			RETURNING `+columns,
			owner, p.ID, p.AgentID, p.Slug, p.Name, p.Description, p.Prompt, p.Queues, offers, p.Visibility, who)); err != nil {
			return err
		}
		return s.record(ctx, tx, owner, "persona.created", "persona", p.ID, map[string]any{"slug": p.Slug, "visibility": p.Visibility})
	})
	return p, err
}

// takeSlug routes the slug to the persona unless it leads to another one, or
// led to one of another human.
func takeSlug(ctx context.Context, tx pgx.Tx, p Persona) error {
	tag, err := tx.Exec(ctx, `
		INSERT INTO persona_slug (slug, owner, persona_id, listed)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (slug) DO UPDATE
		SET persona_id = excluded.persona_id, listed = excluded.listed
		WHERE persona_slug.owner = excluded.owner AND persona_slug.persona_id IS NULL`,
		p.Slug, p.Owner, p.ID, p.Visibility == Listed)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return refusal.New(refusal.Conflict, "the slug %s is taken", p.Slug)
	}
	return nil
}

// List lists a human's personas, oldest first.
func (s *Store) List(ctx context.Context, owner uuid.UUID, cursor string, limit int) ([]Persona, string, error) {
	bind := postgres.BindCursor("personas", owner.String())
	after, err := afterID(bind, cursor)
	if err != nil {
		return nil, "", err
	}
	rows, err := s.pool.Query(ctx, `
		SELECT `+columns+`
		FROM persona p
		WHERE owner = $1 AND id > $2
		ORDER BY id
		LIMIT $3`, owner, after, page(limit)+1)
	if err != nil {
		return nil, "", fmt.Errorf("list personas: %w", err)
	}
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, "", fmt.Errorf("list personas: %w", err)
	}
	list, next := cut(list, page(limit), func(p Persona) string { return postgres.EncodeCursor(bind, p.ID.String()) })
	return list, next, nil
}

// Get returns one of the human's personas, off ones too; refusal.NotFound.
func (s *Store) Get(ctx context.Context, owner, id uuid.UUID) (Persona, error) {
	p, err := from(s.pool.Query(ctx, `SELECT `+columns+` FROM persona p WHERE owner = $1 AND id = $2`, owner, id))
	if err != nil {
		return Persona{}, fmt.Errorf("get persona: %w", err)
	}
	return p, nil
}

// Hold returns a persona and keeps it as it is until tx ends: neither its
// offers change nor is it deleted meanwhile. Whoever vends something on a
// persona holds it first. refusal.NotFound.
func (s *Store) Hold(ctx context.Context, tx pgx.Tx, owner, id uuid.UUID) (Persona, error) {
	p, err := from(tx.Query(ctx, `SELECT `+columns+` FROM persona p WHERE owner = $1 AND id = $2 FOR SHARE`, owner, id))
	if err != nil {
		return Persona{}, fmt.Errorf("hold persona: %w", err)
	}
	return p, nil
}

// Update changes a persona. What it has vended does not change with it. Errors
// as in Create, and refusal.PreconditionFailed.
func (s *Store) Update(ctx context.Context, owner, id uuid.UUID, patch Patch) (Persona, error) {
	if patch.Queues != nil {
		if err := checkQueues(*patch.Queues); err != nil {
			return Persona{}, err
		}
		if err := s.o.Queues.QueuesExist(ctx, owner, *patch.Queues); err != nil {
			return Persona{}, err
		}
	}
	var p Persona
	err := s.in(ctx, "update persona", func(tx pgx.Tx) error {
		old, err := from(tx.Query(ctx, `SELECT `+columns+` FROM persona p WHERE owner = $1 AND id = $2 FOR UPDATE`, owner, id))
		if err != nil {
			return err
		}
		if patch.IfVersion != nil && *patch.IfVersion != old.Version {
			return errChanged
		}
		p = patch.over(old)
		if err := p.check(); err != nil {
			return err
		}
		p = p.tidy()
		if !reflect.DeepEqual(p.Offers, old.Offers) {
			p.OfferVersion++
		}
		if err := write(ctx, tx, &p); err != nil {
			return err
		}
		return s.record(ctx, tx, owner, "persona.changed", "persona", id, map[string]any{
			"visibility": p.Visibility, "offer_version": p.OfferVersion, "version": p.Version,
		})
	})
	return p, err
}

func (patch Patch) over(p Persona) Persona {
	set(&p.Name, patch.Name)
	set(&p.Description, patch.Description)
	set(&p.Prompt, patch.Prompt)
	set(&p.Queues, patch.Queues)
	set(&p.Offers, patch.Offers)
	set(&p.Visibility, patch.Visibility)
	set(&p.WhoMayAsk, patch.WhoMayAsk)
	return p
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func write(ctx context.Context, tx pgx.Tx, p *Persona) error {
	offers, who, err := p.stored()
	if err != nil {
		return err
	}
	if *p, err = from(tx.Query(ctx, `
		UPDATE persona p
		SET name = $3, description = $4, prompt = $5, queues = $6, offers = $7, offer_version = $8, visibility = $9, who_may_ask = $10,
			updated_at = clock_timestamp(), version = version + 1
		WHERE owner = $1 AND id = $2
		RETURNING `+columns,
		p.Owner, p.ID, p.Name, p.Description, p.Prompt, p.Queues, offers, p.OfferVersion, p.Visibility, who)); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE persona_slug SET listed = $2 WHERE slug = $1 AND listed <> $2`, p.Slug, p.Visibility == Listed)
	return err
}

// Delete removes a persona and keeps its slug for its owner. refusal.Conflict
// while something lives on it: switching it off is always possible.
func (s *Store) Delete(ctx context.Context, owner, id uuid.UUID) error {
	return s.in(ctx, "delete persona", func(tx pgx.Tx) error {
		p, err := from(tx.Query(ctx, `SELECT `+columns+` FROM persona p WHERE owner = $1 AND id = $2 FOR UPDATE`, owner, id))
		if err != nil {
			return err
		}
		if err := s.free(ctx, tx, owner, p.AgentID, id); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM persona WHERE owner = $1 AND id = $2`, owner, id); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE persona_slug SET persona_id = NULL, listed = false WHERE slug = $1`, p.Slug); err != nil {
			return err
		}
		return s.record(ctx, tx, owner, "persona.deleted", "persona", id, map[string]any{"slug": p.Slug})
	})
}
