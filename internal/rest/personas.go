package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/human"
	"switchboard/internal/persona"
	"switchboard/internal/scope"
)

type agentView struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	CreatedAt   time.Time `json:"created_at"`
}

func viewAgent(g persona.Agent) agentView {
	return agentView{ID: g.ID, Name: g.Name, Description: g.Description, CreatedAt: g.CreatedAt}
}

func showAgent(g persona.Agent) *tagged[agentView] { return tag(g.Version, viewAgent(g)) }

type personaView struct {
	ID           uuid.UUID          `json:"id"`
	AgentID      uuid.UUID          `json:"agent_id"`
	Slug         string             `json:"slug" example:"reviewer"`
	Name         string             `json:"name"`
	Description  string             `json:"description"`
	Prompt       string             `json:"prompt"`
	Queues       []string           `json:"queues"`
	Offers       []scope.Offer      `json:"offers"`
	OfferVersion int64              `json:"offer_version"`
	Visibility   persona.Visibility `json:"visibility" enum:"listed,unlisted,off"`
	WhoMayAsk    whoMayAsk          `json:"who_may_ask"`
	Card         string             `json:"card" doc:"Where the A2A 1.0 card stands."`
	CreatedAt    time.Time          `json:"created_at"`
	UpdatedAt    time.Time          `json:"updated_at"`
}

func (a *api) viewPersona(p persona.Persona) personaView {
	return personaView{
		ID: p.ID, AgentID: p.AgentID, Slug: p.Slug, Name: p.Name, Description: p.Description, Prompt: p.Prompt,
		Queues: orEmpty(p.Queues), Offers: orEmpty(p.Offers), OfferVersion: p.OfferVersion, Visibility: p.Visibility,
		WhoMayAsk: whoMayAsk{p.WhoMayAsk}, Card: a.PublicURL + "/a2a/" + p.Slug + "/.well-known/agent-card.json",
		CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
	}
}

func (a *api) showPersona(p persona.Persona) *tagged[personaView] {
	return tag(p.Version, a.viewPersona(p))
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (a *api) registerPersonas() {
	type newAgent struct {
		Idempotency
		Body struct {
			Name        string `json:"name" minLength:"1" maxLength:"100"`
			Description string `json:"description,omitempty" maxLength:"2000"`
		}
	}
	route(a, operation("create-agent", http.MethodPost, "/v1/agents", "Register an agent", "agents", owning, 201),
		func(ctx context.Context, who human.Human, in *newAgent) (*tagged[agentView], error) {
			return answer(showAgent)(a.Personas.CreateAgent(ctx, who.ID, in.Body.Name, in.Body.Description))
		})
	route(a, operation("list-agents", http.MethodGet, "/v1/agents", "My agents", "agents", reading, 200),
		func(ctx context.Context, who human.Human, in *Page) (*body[list[agentView]], error) {
			return page(viewAgent)(a.Personas.Agents(ctx, who.ID, in.Cursor, in.Limit))
		})
	route(a, operation("get-agent", http.MethodGet, "/v1/agents/{id}", "One agent", "agents", reading, 200),
		func(ctx context.Context, who human.Human, in *ByID) (*tagged[agentView], error) {
			return answer(showAgent)(a.Personas.Agent(ctx, who.ID, in.ID.UUID))
		})
	type patchAgent struct {
		ByID
		IfMatch
		Body struct {
			Name        *string `json:"name,omitempty" minLength:"1" maxLength:"100"`
			Description *string `json:"description,omitempty" maxLength:"2000"`
		}
	}
	route(a, operation("update-agent", http.MethodPatch, "/v1/agents/{id}", "Change an agent", "agents", owning, 200),
		func(ctx context.Context, who human.Human, in *patchAgent) (*tagged[agentView], error) {
			v, err := in.version()
			if err != nil {
				return nil, err
			}
			return answer(showAgent)(a.Personas.UpdateAgent(ctx, who.ID, in.ID.UUID, in.Body.Name, in.Body.Description, v))
		})
	route(a, operation("delete-agent", http.MethodDelete, "/v1/agents/{id}", "Remove an agent that nothing hangs on", "agents", owning, 204),
		func(ctx context.Context, who human.Human, in *ByVersion) (*struct{}, error) {
			if err := in.expect(func(id uuid.UUID) (int64, error) {
				v, err := a.Personas.Agent(ctx, who.ID, id)
				return v.Version, err
			}); err != nil {
				return nil, err
			}
			return nil, a.Personas.DeleteAgent(ctx, who.ID, in.ID.UUID)
		})

	type newPersona struct {
		Idempotency
		Body struct {
			AgentID     uuid.UUID          `json:"agent_id"`
			Slug        string             `json:"slug" maxLength:"63" pattern:"^[a-z0-9-]{1,63}$" example:"reviewer"`
			Name        string             `json:"name" minLength:"1" maxLength:"100"`
			Description string             `json:"description,omitempty" maxLength:"2000"`
			Prompt      string             `json:"prompt,omitempty" maxLength:"16384"`
			Queues      []string           `json:"queues,omitempty" maxItems:"32"`
			Offers      []scope.Offer      `json:"offers,omitempty" maxItems:"64"`
			Visibility  persona.Visibility `json:"visibility,omitempty" enum:"listed,unlisted,off" default:"unlisted"`
			WhoMayAsk   whoMayAsk          `json:"who_may_ask,omitempty"`
		}
	}
	route(a, operation("create-persona", http.MethodPost, "/v1/personas", "Publish a persona", "personas", owning, 201),
		func(ctx context.Context, who human.Human, in *newPersona) (*tagged[personaView], error) {
			b := in.Body
			return answer(a.showPersona)(a.Personas.Create(ctx, who.ID, persona.Spec{
				AgentID: b.AgentID, Slug: b.Slug, Name: b.Name, Description: b.Description, Prompt: b.Prompt,
				Queues: b.Queues, Offers: b.Offers, Visibility: b.Visibility, WhoMayAsk: b.WhoMayAsk.WhoMayAsk,
			}))
		})
	route(a, operation("list-personas", http.MethodGet, "/v1/personas", "My personas", "personas", reading, 200),
		func(ctx context.Context, who human.Human, in *Page) (*body[list[personaView]], error) {
			return page(a.viewPersona)(a.Personas.List(ctx, who.ID, in.Cursor, in.Limit))
		})
	route(a, operation("get-persona", http.MethodGet, "/v1/personas/{id}", "One persona", "personas", reading, 200),
		func(ctx context.Context, who human.Human, in *ByID) (*tagged[personaView], error) {
			return answer(a.showPersona)(a.Personas.Get(ctx, who.ID, in.ID.UUID))
		})
	type patchPersona struct {
		ByID
		IfMatch
		Body struct {
			Name        *string             `json:"name,omitempty" minLength:"1" maxLength:"100"`
			Description *string             `json:"description,omitempty" maxLength:"2000"`
			Prompt      *string             `json:"prompt,omitempty" maxLength:"16384"`
			Queues      *[]string           `json:"queues,omitempty" maxItems:"32"`
			Offers      *[]scope.Offer      `json:"offers,omitempty" maxItems:"64"`
			Visibility  *persona.Visibility `json:"visibility,omitempty" enum:"listed,unlisted,off"`
			WhoMayAsk   *whoMayAsk          `json:"who_may_ask,omitempty"`
		}
	}
	route(a, operation("update-persona", http.MethodPatch, "/v1/personas/{id}", "Change a persona", "personas", owning, 200),
		func(ctx context.Context, who human.Human, in *patchPersona) (*tagged[personaView], error) {
			v, err := in.version()
			if err != nil {
				return nil, err
			}
			patch := persona.Patch{
				Name: in.Body.Name, Description: in.Body.Description, Prompt: in.Body.Prompt, Queues: in.Body.Queues,
				Offers: in.Body.Offers, Visibility: in.Body.Visibility, IfVersion: v,
			}
			if in.Body.WhoMayAsk != nil {
				patch.WhoMayAsk = &in.Body.WhoMayAsk.WhoMayAsk
			}
			return answer(a.showPersona)(a.Personas.Update(ctx, who.ID, in.ID.UUID, patch))
		})
	route(a, operation("delete-persona", http.MethodDelete, "/v1/personas/{id}", "Remove a persona", "personas", owning, 204),
		func(ctx context.Context, who human.Human, in *ByVersion) (*struct{}, error) {
			if err := in.expect(func(id uuid.UUID) (int64, error) {
				v, err := a.Personas.Get(ctx, who.ID, id)
				return v.Version, err
			}); err != nil {
				return nil, err
			}
			return nil, a.Personas.Delete(ctx, who.ID, in.ID.UUID)
		})

	type search struct {
		Page
		Query string `query:"q" maxLength:"200"`
	}
	route(a, operation("search-directory", http.MethodGet, "/v1/directory", "Find personas", "directory", reading, 200),
		func(ctx context.Context, _ human.Human, in *search) (*body[list[persona.Entry]], error) {
			return page(func(e persona.Entry) persona.Entry { return e })(a.Directory.Search(ctx, in.Query, in.Cursor, in.Limit))
		})
}
