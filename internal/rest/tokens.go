package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/human"
)

type tokenView struct {
	ID        uuid.UUID  `json:"id"`
	Name      string     `json:"name"`
	Token     string     `json:"token,omitempty" doc:"Shown once, when made."`
	CreatedAt time.Time  `json:"created_at"`
	LastUsed  *time.Time `json:"last_used,omitempty"`
}

func viewToken(t human.APIToken) tokenView {
	return tokenView{ID: t.ID, Name: t.Name, CreatedAt: t.CreatedAt, LastUsed: t.LastUsed}
}

func (a *api) registerTokens() {
	type newToken struct {
		Idempotency
		Body struct {
			Name string `json:"name" minLength:"1" maxLength:"100"`
		}
	}
	route(a, operation("create-api-token", http.MethodPost, "/v1/api-tokens", "Make an API token", "api tokens", fresh, 201),
		func(ctx context.Context, who human.Human, in *newToken) (*body[tokenView], error) {
			t, token, err := a.Humans.CreateAPIToken(ctx, who.ID, in.Body.Name)
			if err != nil {
				return nil, err
			}
			v := viewToken(t)
			v.Token = token
			return &body[tokenView]{Body: v}, nil
		})
	route(a, operation("list-api-tokens", http.MethodGet, "/v1/api-tokens", "My API tokens", "api tokens", reading, 200),
		func(ctx context.Context, who human.Human, _ *struct{}) (*body[list[tokenView]], error) {
			ts, err := a.Humans.APITokens(ctx, who.ID)
			return page(viewToken)(ts, "", err)
		})
	route(a, operation("delete-api-token", http.MethodDelete, "/v1/api-tokens/{id}", "Revoke an API token", "api tokens", writing, 204),
		func(ctx context.Context, who human.Human, in *ByID) (*struct{}, error) {
			return nil, a.Humans.DeleteAPIToken(ctx, who.ID, in.ID.UUID)
		})

	type redeemCode struct {
		Body struct {
			Code         string `json:"code" maxLength:"4096"`
			CodeVerifier string `json:"code_verifier" minLength:"43" maxLength:"128" doc:"Of the code_challenge that the page was opened with (RFC 7636)."`
			RedirectURI  string `json:"redirect_uri" maxLength:"200"`
		}
	}
	redeem := operation("redeem-program-sign-in", http.MethodPost, "/v1/program-sign-in", "Turn the code that /program-sign-in gave into an API token", "api tokens", anyone, 201)
	redeem.Description = "The code stands for a click in a browser session that was signed in lately, and is good once, for five minutes."
	route(a, redeem, func(ctx context.Context, _ human.Human, in *redeemCode) (*body[tokenView], error) {
		t, token, err := a.Humans.RedeemProgram(ctx, in.Body.Code, in.Body.CodeVerifier, in.Body.RedirectURI)
		if err != nil {
			return nil, err
		}
		v := viewToken(t)
		v.Token = token
		return &body[tokenView]{Body: v}, nil
	})
}
