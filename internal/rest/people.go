package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/activity"
	"switchboard/internal/human"
	"switchboard/internal/refusal"
)

type sessionView struct {
	AuthTime time.Time `json:"auth_time" doc:"When the issuer last authenticated the person."`
	Fresh    bool      `json:"fresh" doc:"Signed in within 12 hours: may approve, vend, resume, unblock and make tokens."`
}

type meView struct {
	ID            uuid.UUID           `json:"id"`
	Name          string              `json:"name" example:"Alice"`
	Email         string              `json:"email,omitempty" doc:"Only where the issuer is authoritative for it and has verified it."`
	Issuer        string              `json:"issuer"`
	Subject       string              `json:"subject"`
	Resident      bool                `json:"resident" doc:"May own agents, queues and personas; others see their own requests and grants."`
	Notifications human.Notifications `json:"notifications"`
	CreatedAt     time.Time           `json:"created_at"`
	Session       *sessionView        `json:"session,omitempty"`
}

func viewMe(ctx context.Context, h human.Human) meView {
	v := meView{
		ID: h.ID, Name: h.Name, Email: h.Email, Issuer: h.Issuer, Subject: h.Subject, Resident: h.Resident,
		Notifications: h.Notifications, CreatedAt: h.CreatedAt,
	}
	if p, _ := ctx.Value(principalKey{}).(*principal); p != nil && p.session != nil {
		v.Session = &sessionView{AuthTime: p.session.AuthTime, Fresh: p.session.Fresh}
	}
	return v
}

type eventView struct {
	ID       uuid.UUID         `json:"id"`
	Kind     string            `json:"kind" example:"grant.narrowed"`
	Actor    string            `json:"actor" example:"human:0197a3c2-7d7e-7cc3-98c4-dc0c0c07398f"`
	Object   string            `json:"object" example:"grant"`
	ObjectID *uuid.UUID        `json:"object_id,omitempty"`
	GrantID  *uuid.UUID        `json:"grant_id,omitempty"`
	Detail   map[string]any    `json:"detail,omitempty"`
	Personal map[string]string `json:"personal,omitempty" doc:"Outside the chain; gone when the account is erased."`
	At       time.Time         `json:"at"`
}

func viewEvent(e activity.Event) eventView {
	return eventView{
		ID: e.ID, Kind: e.Kind, Actor: e.Actor, Object: e.Object, ObjectID: optional(e.ObjectID), GrantID: optional(e.GrantID),
		Detail: e.Detail, Personal: e.Personal, At: e.At,
	}
}

func (a *api) registerPeople() {
	route(a, operation("get-me", http.MethodGet, "/v1/me", "Who I am", "me", reading, 200),
		func(ctx context.Context, who human.Human, _ *struct{}) (*tagged[meView], error) {
			return tag(who.Version, viewMe(ctx, who)), nil
		})

	type patchMe struct {
		IfMatch
		Body struct {
			Name          *string              `json:"name,omitempty" maxLength:"100"`
			Notifications *human.Notifications `json:"notifications,omitempty"`
		}
	}
	route(a, operation("update-me", http.MethodPatch, "/v1/me", "Change my name or how I am notified", "me", writing, 200),
		func(ctx context.Context, who human.Human, in *patchMe) (*tagged[meView], error) {
			v, err := in.version()
			if err != nil {
				return nil, err
			}
			h, err := a.Humans.Update(ctx, who.ID, in.Body.Name, in.Body.Notifications, v)
			if err != nil {
				return nil, err
			}
			return tag(h.Version, viewMe(ctx, h)), nil
		})

	a.registerTokens()

	type events struct {
		Page
		Kind   string `query:"kind" maxLength:"100"`
		Grant  string `query:"grant_id" maxLength:"36"`
		Object string `query:"object_id" maxLength:"36"`
	}
	route(a, operation("list-activity", http.MethodGet, "/v1/activity", "What happened", "activity", reading, 200),
		func(ctx context.Context, who human.Human, in *events) (*body[list[eventView]], error) {
			f := activity.Filter{Kind: in.Kind}
			for _, id := range []struct {
				from string
				to   *uuid.UUID
			}{{in.Grant, &f.GrantID}, {in.Object, &f.Object}} {
				if id.from == "" {
					continue
				}
				parsed, err := uuid.Parse(id.from)
				if err != nil {
					return nil, refusal.Invalid("grant_id", "not an id")
				}
				*id.to = parsed
			}
			return page(viewEvent)(a.Activity.List(ctx, who.ID, f, in.Cursor, in.Limit))
		})
}
