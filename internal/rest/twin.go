package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/provenance"
)

// twinView is a request as its sender sees it through the twin.
type twinView struct {
	ID       uuid.UUID           `json:"id"`
	State    friend.RequestState `json:"state" enum:"awaiting_sign_in,pending,approved,declined,withdrawn,expired"`
	Note     string              `json:"note,omitempty"`
	Artifact *friend.Artifact    `json:"artifact,omitempty"`
	SignIn   *signInView         `json:"sign_in,omitempty"`
}

type signInView struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

func viewTwin(r friend.Request) twinView {
	v := twinView{ID: r.ID, State: r.State, Note: r.Note, Artifact: r.Artifact}
	if r.SignIn != nil {
		v.SignIn = &signInView{URL: r.SignIn.URL, ExpiresAt: r.SignIn.ExpiresAt.UTC()}
	}
	return v
}

// registerTwin is the requester's side without A2A: the same service and the
// same authorisation as the persona's A2A interface.
func (a *api) registerTwin() {
	const path = "/v1/a2a/{persona}/friend-requests"
	type send struct {
		Persona        string `path:"persona"`
		IdempotencyKey string `header:"Idempotency-Key" required:"true" minLength:"1" maxLength:"255" doc:"It stands where A2A has messageId."`
		RawBody        []byte `contentType:"application/json"`
	}
	op := operation("send-friend-request", http.MethodPost, path, "Ask a persona for friendship", "requester", anyone, 201)
	op.MaxBodyBytes = 2 * provenance.MaxBody // package provenance refuses from MaxBody on, in its own words
	op.SkipValidateBody = true               // strictly, byte for byte, by package provenance
	op.Description = "The body is the data part of specs/friend-request: its provenance is the only authorisation."
	route(a, op, func(ctx context.Context, _ human.Human, in *send) (*body[twinView], error) {
		r, _, err := a.Friends.Submit(ctx, friend.Submission{
			Persona: in.Persona, MessageID: in.IdempotencyKey, Part: in.RawBody, Address: a.ClientAddress(request(ctx)),
		})
		if err != nil {
			return nil, err
		}
		return &body[twinView]{viewTwin(r)}, nil
	})
	// The library takes raw bytes for a string.
	a.huma.OpenAPI().Paths[path].Post.RequestBody.Content["application/json"].Schema = &huma.Schema{
		Type: huma.TypeObject, Description: "As " + a.PublicURL + "/specs/friend-request/request.schema.json says.",
	}

	asker := func(ctx context.Context, slug string) (friend.Asker, error) {
		who, err := a.Requester(request(ctx), slug)
		if err != nil {
			return friend.Asker{}, err
		}
		return friend.Asker{Persona: slug, Key: who.Key, Identity: who.Identity}, nil
	}

	type listIn struct {
		Persona string `path:"persona"`
		Page
		State string `query:"state" maxLength:"20"`
	}
	route(a, requesterOperation("list-sent-friend-requests", http.MethodGet, path, "What I asked this persona"),
		func(ctx context.Context, _ human.Human, in *listIn) (*body[list[twinView]], error) {
			who, err := asker(ctx, in.Persona)
			if err != nil {
				return nil, err
			}
			state, err := stateFilter(in.State)
			if err != nil {
				return nil, err
			}
			rs, next, _, err := a.Friends.ListOwn(ctx, who, friend.AskerFilter{State: state}, in.Cursor, in.Limit)
			return page(viewTwin)(rs, next, err)
		})
	type one struct {
		Persona string `path:"persona"`
		ID      string `path:"id"` // read after the token, so that without one every id is 401
	}
	for _, act := range []struct {
		id, method, path, summary string
		do                        func(context.Context, friend.Asker, uuid.UUID) (friend.Request, error)
	}{
		{"get-sent-friend-request", http.MethodGet, path + "/{id}", "One request that I sent", a.Friends.GetOwn},
		{"cancel-sent-friend-request", http.MethodPost, path + "/{id}/cancel", "Withdraw a request that I sent", a.Friends.Withdraw},
	} {
		route(a, requesterOperation(act.id, act.method, act.path, act.summary),
			func(ctx context.Context, _ human.Human, in *one) (*body[twinView], error) {
				who, err := asker(ctx, in.Persona)
				if err != nil {
					return nil, err
				}
				var id pathID
				if err := id.UnmarshalText([]byte(in.ID)); err != nil {
					return nil, notFound()
				}
				return answer(plain(viewTwin))(act.do(ctx, who, id.UUID))
			})
	}
}

// requesterOperation is one that takes the requester's access token.
func requesterOperation(id, method, path, summary string) described {
	op := operation(id, method, path, summary, "requester", anyone, http.StatusOK)
	op.Security = []map[string][]string{{"friend": {}}}
	return op
}
