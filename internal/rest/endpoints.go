package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/endpoint"
	"switchboard/internal/human"
	"switchboard/internal/scope"
)

type endpointView struct {
	ID         uuid.UUID      `json:"id"`
	Kind       endpoint.Kind  `json:"kind" enum:"home,peer"`
	URL        string         `json:"url"`
	Credential string         `json:"credential,omitempty" doc:"Shown once, when vended or rotated."`
	AgentID    *uuid.UUID     `json:"agent_id,omitempty"`
	PersonaID  *uuid.UUID     `json:"persona_id,omitempty"`
	Persona    string         `json:"persona,omitempty"`
	GrantID    *uuid.UUID     `json:"grant_id,omitempty"`
	Queues     []string       `json:"queues"`
	Verbs      []string       `json:"verbs" doc:"The tools of a home endpoint, the verbs of a peer endpoint."`
	Limits     *scope.Limits  `json:"limits,omitempty"`
	State      endpoint.State `json:"state" enum:"active,paused,revoked,expired,ended"`
	CreatedAt  time.Time      `json:"created_at"`
	ExpiresAt  time.Time      `json:"expires_at"`
}

func (a *api) viewEndpoint(e endpoint.Endpoint) endpointView {
	v := endpointView{
		ID: e.ID, Kind: e.Kind, URL: a.PublicURL + "/mcp/" + e.ID.String(), AgentID: optional(e.AgentID), PersonaID: optional(e.PersonaID),
		Persona: e.Persona, GrantID: optional(e.GrantID), Queues: orEmpty(e.Scope.Queues), Verbs: orEmpty(e.Tools),
		State: e.State, CreatedAt: e.CreatedAt, ExpiresAt: e.ExpiresAt,
	}
	if e.Kind == endpoint.Peer {
		v.Verbs = []string{}
		for _, verb := range e.Scope.Verbs {
			v.Verbs = append(v.Verbs, string(verb))
		}
		v.Limits = &e.Scope.Limits
	}
	return v
}

func (a *api) showEndpoint(e endpoint.Endpoint) *tagged[endpointView] {
	return tag(e.Version, a.viewEndpoint(e))
}

func (a *api) registerEndpoints() {
	type newEndpoint struct {
		Idempotency
		Body struct {
			Kind          string    `json:"kind" enum:"home"`
			AgentID       uuid.UUID `json:"agent_id"`
			PersonaID     uuid.UUID `json:"persona_id"`
			Queues        []string  `json:"queues" minItems:"1" maxItems:"32"`
			Verbs         []string  `json:"verbs,omitempty" maxItems:"32" doc:"Which home tools; all when left out."`
			ExpiresInDays int64     `json:"expires_in_days,omitempty" minimum:"1" maximum:"365"`
		}
	}
	route(a, operation("vend-endpoint", http.MethodPost, "/v1/endpoints", "Vend a home endpoint", "endpoints", fresh, 201),
		func(ctx context.Context, who human.Human, in *newEndpoint) (*tagged[endpointView], error) {
			if !who.Resident {
				_, err := allow(ctx, owning)
				return nil, err
			}
			e, credential, err := a.Endpoints.CreateHome(ctx, who.ID, endpoint.HomeSpec{
				AgentID: in.Body.AgentID, PersonaID: in.Body.PersonaID, Queues: in.Body.Queues, Tools: in.Body.Verbs, ExpiresInDays: in.Body.ExpiresInDays,
			})
			if err != nil {
				return nil, err
			}
			v := a.viewEndpoint(e)
			v.Credential = credential
			return tag(e.Version, v), nil
		})
	route(a, operation("list-endpoints", http.MethodGet, "/v1/endpoints", "My endpoints", "endpoints", reading, 200),
		func(ctx context.Context, who human.Human, in *Page) (*body[list[endpointView]], error) {
			return page(a.viewEndpoint)(a.Endpoints.List(ctx, who.ID, in.Cursor, in.Limit))
		})
	route(a, operation("get-endpoint", http.MethodGet, "/v1/endpoints/{id}", "One endpoint", "endpoints", reading, 200),
		func(ctx context.Context, who human.Human, in *ByID) (*tagged[endpointView], error) {
			return answer(a.showEndpoint)(a.Endpoints.Get(ctx, who.ID, in.ID.UUID))
		})
	version := func(ctx context.Context, who human.Human) func(uuid.UUID) (int64, error) {
		return func(id uuid.UUID) (int64, error) {
			e, err := a.Endpoints.Get(ctx, who.ID, id)
			return e.Version, err
		}
	}
	type narrowEndpoint struct {
		ByVersion
		Body struct {
			Queues []string `json:"queues,omitempty" maxItems:"32"`
			Verbs  []string `json:"verbs,omitempty" maxItems:"32"`
		}
	}
	route(a, operation("narrow-endpoint", http.MethodPost, "/v1/endpoints/{id}/narrow", "Narrow a home endpoint", "endpoints", limiting, 200),
		func(ctx context.Context, who human.Human, in *narrowEndpoint) (*tagged[endpointView], error) {
			if err := in.expect(version(ctx, who)); err != nil {
				return nil, err
			}
			return answer(a.showEndpoint)(a.Endpoints.NarrowHome(ctx, who.ID, in.ID.UUID, in.Body.Queues, in.Body.Verbs))
		})
	route(a, operation("rotate-endpoint", http.MethodPost, "/v1/endpoints/{id}/rotate", "Give a home endpoint a new credential; the old one ends at once", "endpoints", fresh, 200),
		func(ctx context.Context, who human.Human, in *ByVersion) (*tagged[endpointView], error) {
			if err := in.expect(version(ctx, who)); err != nil {
				return nil, err
			}
			e, credential, err := a.Endpoints.RotateHome(ctx, who.ID, in.ID.UUID)
			if err != nil {
				return nil, err
			}
			v := a.viewEndpoint(e)
			v.Credential = credential
			return tag(e.Version, v), nil
		})
	for _, act := range []struct {
		name, summary string
		need          access
		do            func(context.Context, uuid.UUID, uuid.UUID) (endpoint.Endpoint, error)
	}{
		{"pause", "Pause a home endpoint", limiting, a.Endpoints.PauseHome},
		{"resume", "Resume a home endpoint exactly as it was", fresh, a.Endpoints.ResumeHome},
		{"revoke", "Revoke a home endpoint, for good", limiting, a.Endpoints.RevokeHome},
	} {
		route(a, operation(act.name+"-endpoint", http.MethodPost, "/v1/endpoints/{id}/"+act.name, act.summary, "endpoints", act.need, 200),
			func(ctx context.Context, who human.Human, in *ByVersion) (*tagged[endpointView], error) {
				if err := in.expect(version(ctx, who)); err != nil {
					return nil, err
				}
				return answer(a.showEndpoint)(act.do(ctx, who.ID, in.ID.UUID))
			})
	}
}
