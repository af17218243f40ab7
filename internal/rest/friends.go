package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

type requestView struct {
	ID           uuid.UUID           `json:"id"`
	State        friend.RequestState `json:"state" enum:"awaiting_sign_in,pending,approved,declined,withdrawn,expired"`
	Direction    string              `json:"direction" enum:"in,out"`
	Persona      string              `json:"persona"`
	From         friend.From         `json:"from" doc:"What the agent says of itself; nothing here is verified."`
	Reason       string              `json:"reason"`
	Scope        scope.Scope         `json:"scope"`
	Offered      []scope.Offer       `json:"offered"`
	OfferVersion int64               `json:"offer_version"`
	Identity     friend.Identity     `json:"identity" doc:"Who asks, as the issuer says."`
	Key          string              `json:"key" doc:"RFC 7638 thumbprint of the agent's key."`
	Supersedes   *uuid.UUID          `json:"supersedes,omitempty"`
	Note         string              `json:"note,omitempty"`
	GrantID      *uuid.UUID          `json:"grant_id,omitempty"`
	TodoID       *uuid.UUID          `json:"todo_id,omitempty"`
	Earlier      *int                `json:"earlier_requests,omitempty"`
	FirstSeen    *time.Time          `json:"first_seen,omitempty"`
	Artifact     *friend.Artifact    `json:"artifact,omitempty"`
	CreatedAt    time.Time           `json:"created_at"`
	ExpiresAt    time.Time           `json:"expires_at"`
	DecidedAt    *time.Time          `json:"decided_at,omitempty"`
}

func viewRequestOut(r friend.Request) requestView {
	return requestView{
		ID: r.ID, State: r.State, Direction: "out", Persona: r.Persona, From: r.From, Reason: r.Reason, Scope: r.Scope,
		Offered: orEmpty(r.Offered), OfferVersion: r.OfferVersion, Identity: r.Identity, Key: r.Key, Supersedes: optional(r.Supersedes),
		Note: r.Note, GrantID: optional(r.GrantID), Artifact: r.Artifact, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, DecidedAt: r.DecidedAt,
	}
}

// viewRequestIn adds what only the target may know.
func viewRequestIn(r friend.Request) requestView {
	v := viewRequestOut(r)
	v.Direction, v.TodoID, v.Earlier, v.Artifact = "in", optional(r.TodoID), &r.Earlier, nil
	if !r.FirstSeen.IsZero() {
		v.FirstSeen = &r.FirstSeen
	}
	return v
}

type grantView struct {
	ID          uuid.UUID         `json:"id"`
	State       friend.GrantState `json:"state" enum:"active,paused,revoked,expired,ended"`
	Persona     string            `json:"persona"`
	Direction   string            `json:"direction" enum:"in,out"`
	Identity    *friend.Identity  `json:"identity,omitempty"`
	From        friend.From       `json:"from"`
	Scope       scope.Scope       `json:"scope"`
	Approved    scope.Scope       `json:"approved_scope"`
	MCPEndpoint string            `json:"mcp_endpoint"`
	RequestID   uuid.UUID         `json:"friend_request_id"`
	ApprovedAt  time.Time         `json:"approved_at"`
	ExpiresAt   time.Time         `json:"expires_at"`
	EndedAt     *time.Time        `json:"ended_at,omitempty"`
}

func viewGrant(g friend.Grant, direction string) grantView {
	v := grantView{
		ID: g.ID, State: g.State, Persona: g.Persona, Direction: direction, From: g.From, Scope: g.Scope, Approved: g.Approved,
		MCPEndpoint: g.EndpointURL, RequestID: g.RequestID, ApprovedAt: g.ApprovedAt, ExpiresAt: g.ExpiresAt, EndedAt: g.EndedAt,
	}
	if direction == "in" {
		v.Identity = &g.Identity
	}
	return v
}

func showGrantIn(g friend.Grant) *tagged[grantView]  { return tag(g.Version, grantIn(g)) }
func showGrantOut(g friend.Grant) *tagged[grantView] { return tag(g.Version, grantOut(g)) }

func grantIn(g friend.Grant) grantView  { return viewGrant(g, "in") }
func grantOut(g friend.Grant) grantView { return viewGrant(g, "out") }

type blockView struct {
	ID        uuid.UUID       `json:"id"`
	Identity  friend.Identity `json:"identity"`
	Reason    string          `json:"reason,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
}

func viewBlock(b friend.Block) blockView {
	return blockView{ID: b.ID, Identity: b.Identity, Reason: b.Reason, CreatedAt: b.CreatedAt}
}

// stateFilter reads a friend request's state in a query.
func stateFilter(s string) (friend.RequestState, error) {
	switch st := friend.RequestState(s); st {
	case "", friend.Pending, friend.Approved, friend.Declined, friend.Withdrawn, friend.RequestExpired:
		return st, nil
	}
	return "", refusal.Invalid("state", "state is pending, approved, declined, withdrawn or expired")
}

func (a *api) registerFriends() {
	type requests struct {
		Page
		Direction string `query:"direction" enum:"in,out" default:"in"`
		State     string `query:"state" maxLength:"20"`
	}
	route(a, operation("list-friend-requests", http.MethodGet, "/v1/friend-requests", "Friend requests, to me or by me", "friend requests", reading, 200),
		func(ctx context.Context, who human.Human, in *requests) (*body[list[requestView]], error) {
			state, err := stateFilter(in.State)
			if err != nil {
				return nil, err
			}
			if in.Direction == "out" {
				rs, next, _, err := a.Friends.ListOwn(ctx, friend.Asker{Identity: who.Identity}, friend.AskerFilter{State: state}, in.Cursor, in.Limit)
				return page(viewRequestOut)(rs, next, err)
			}
			return page(viewRequestIn)(a.Friends.Incoming(ctx, who.ID, state, in.Cursor, in.Limit))
		})
	route(a, operation("get-friend-request", http.MethodGet, "/v1/friend-requests/{id}", "One friend request", "friend requests", reading, 200),
		func(ctx context.Context, who human.Human, in *ByID) (*body[requestView], error) {
			r, err := a.Friends.GetIncoming(ctx, who.ID, in.ID.UUID)
			if refusal.CodeOf(err) == refusal.NotFound {
				return answer(plain(viewRequestOut))(a.Friends.GetOwn(ctx, friend.Asker{Identity: who.Identity}, in.ID.UUID))
			}
			return answer(plain(viewRequestIn))(r, err)
		})
	type approveRequest struct {
		ByID
		Body *struct {
			Scope         *scope.Asked `json:"scope,omitempty" doc:"Narrower than requested; what is left out is as requested."`
			ExpiresInDays *int64       `json:"expires_in_days,omitempty" minimum:"1" maximum:"365"`
			Note          string       `json:"note,omitempty" maxLength:"2000"`
			OfferVersion  *int64       `json:"offer_version,omitempty" doc:"The version that was looked at; conflict when the offer has changed since."`
		}
	}
	route(a, operation("approve-friend-request", http.MethodPost, "/v1/friend-requests/{id}/approve", "Approve, narrower if you like", "friend requests", fresh, 200),
		func(ctx context.Context, who human.Human, in *approveRequest) (*tagged[grantView], error) {
			var d friend.Approval
			if b := in.Body; b != nil {
				d = friend.Approval{Scope: b.Scope, ExpiresInDays: b.ExpiresInDays, Note: b.Note, OfferVersion: b.OfferVersion}
			}
			return answer(showGrantIn)(a.Friends.Approve(ctx, who.ID, in.ID.UUID, d))
		})
	type declineRequest struct {
		ByID
		Body *struct {
			Note        string `json:"note,omitempty" maxLength:"2000"`
			MayAskAgain *bool  `json:"may_ask_again,omitempty" doc:"At once; otherwise after 7 days."`
			Block       bool   `json:"block,omitempty"`
		}
	}
	route(a, operation("decline-friend-request", http.MethodPost, "/v1/friend-requests/{id}/decline", "Decline", "friend requests", limiting, 200),
		func(ctx context.Context, who human.Human, in *declineRequest) (*body[requestView], error) {
			var d friend.Refusal
			if b := in.Body; b != nil {
				d = friend.Refusal{Note: b.Note, MayAskAgain: b.MayAskAgain, Block: b.Block}
			}
			return answer(plain(viewRequestIn))(a.Friends.Decline(ctx, who.ID, in.ID.UUID, d))
		})
	route(a, operation("withdraw-friend-request", http.MethodPost, "/v1/friend-requests/{id}/withdraw", "Withdraw my own request", "friend requests", writing, 200),
		func(ctx context.Context, who human.Human, in *ByID) (*body[requestView], error) {
			return answer(plain(viewRequestOut))(a.Friends.Withdraw(ctx, friend.Asker{Identity: who.Identity}, in.ID.UUID))
		})
	a.registerGrants()
	a.registerBlocks()
}

func (a *api) registerGrants() {
	type grants struct {
		Page
		Direction string `query:"direction" enum:"in,out" default:"in"`
	}
	route(a, operation("list-grants", http.MethodGet, "/v1/grants", "Grants, by me or to me", "grants", reading, 200),
		func(ctx context.Context, who human.Human, in *grants) (*body[list[grantView]], error) {
			if in.Direction == "out" {
				return page(grantOut)(a.Friends.GrantsOut(ctx, who.Identity, in.Cursor, in.Limit))
			}
			return page(grantIn)(a.Friends.Grants(ctx, who.ID, in.Cursor, in.Limit))
		})
	route(a, operation("get-grant", http.MethodGet, "/v1/grants/{id}", "One grant", "grants", reading, 200),
		func(ctx context.Context, who human.Human, in *ByID) (*tagged[grantView], error) {
			g, err := a.Friends.Grant(ctx, who.ID, in.ID.UUID)
			if refusal.CodeOf(err) == refusal.NotFound {
				return answer(showGrantOut)(a.Friends.GrantOut(ctx, who.Identity, in.ID.UUID))
			}
			return answer(showGrantIn)(g, err)
		})
	type narrowGrant struct {
		ByID
		IfMatch
		Body struct {
			Scope scope.Asked `json:"scope" doc:"Narrower than now; a limit left out stays as it is."`
		}
	}
	route(a, operation("narrow-grant", http.MethodPost, "/v1/grants/{id}/narrow", "Narrow a grant", "grants", limiting, 200),
		func(ctx context.Context, who human.Human, in *narrowGrant) (*tagged[grantView], error) {
			v, err := in.version()
			if err != nil {
				return nil, err
			}
			return answer(showGrantIn)(a.Friends.Narrow(ctx, who.ID, in.ID.UUID, in.Body.Scope, v))
		})
	version := func(ctx context.Context, who human.Human) func(uuid.UUID) (int64, error) {
		return func(id uuid.UUID) (int64, error) {
			g, err := a.Friends.Grant(ctx, who.ID, id)
			return g.Version, err
		}
	}
	type revokeGrant struct {
		ByVersion
		Body *struct {
			OpenTodos string `json:"open_todos,omitempty" enum:"cancel,finish" default:"cancel" doc:"What becomes of the friend's open todos."`
		}
	}
	route(a, operation("revoke-grant", http.MethodPost, "/v1/grants/{id}/revoke", "Revoke a grant, for good", "grants", limiting, 200),
		func(ctx context.Context, who human.Human, in *revokeGrant) (*tagged[grantView], error) {
			if err := in.expect(version(ctx, who)); err != nil {
				return nil, err
			}
			return answer(showGrantIn)(a.Friends.Revoke(ctx, who.ID, in.ID.UUID, in.Body != nil && in.Body.OpenTodos == "finish"))
		})
	for _, act := range []struct {
		name, summary string
		need          access
		do            func(context.Context, uuid.UUID, uuid.UUID) (friend.Grant, error)
	}{
		{"pause", "Pause a grant", limiting, a.Friends.Pause},
		{"resume", "Resume a grant exactly as it was", fresh, a.Friends.Resume},
	} {
		route(a, operation(act.name+"-grant", http.MethodPost, "/v1/grants/{id}/"+act.name, act.summary, "grants", act.need, 200),
			func(ctx context.Context, who human.Human, in *ByVersion) (*tagged[grantView], error) {
				if err := in.expect(version(ctx, who)); err != nil {
					return nil, err
				}
				return answer(showGrantIn)(act.do(ctx, who.ID, in.ID.UUID))
			})
	}
	route(a, operation("leave-grant", http.MethodPost, "/v1/grants/{id}/leave", "Give up a grant that was made to me", "grants", writing, 200),
		func(ctx context.Context, who human.Human, in *ByVersion) (*tagged[grantView], error) {
			if err := in.expect(func(id uuid.UUID) (int64, error) {
				g, err := a.Friends.GrantOut(ctx, who.Identity, id)
				return g.Version, err
			}); err != nil {
				return nil, err
			}
			return answer(showGrantOut)(a.Friends.Leave(ctx, who.Identity, in.ID.UUID))
		})
}

func (a *api) registerBlocks() {
	route(a, operation("list-blocks", http.MethodGet, "/v1/blocks", "Whom I blocked", "blocks", reading, 200),
		func(ctx context.Context, who human.Human, in *Page) (*body[list[blockView]], error) {
			return page(viewBlock)(a.Friends.Blocks(ctx, who.ID, in.Cursor, in.Limit))
		})
	route(a, operation("delete-block", http.MethodDelete, "/v1/blocks/{id}", "Unblock", "blocks", fresh, 204),
		func(ctx context.Context, who human.Human, in *ByID) (*struct{}, error) {
			return nil, a.Friends.Unblock(ctx, who.ID, in.ID.UUID)
		})
}
