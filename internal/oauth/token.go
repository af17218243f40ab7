package oauth

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

var (
	errGrantType  = &endpoint.OAuthError{Code: "unsupported_grant_type", Description: "grant_type is client_credentials, authorization_code or refresh_token"}
	errClientAuth = &endpoint.OAuthError{Code: "invalid_client", Description: "client authentication failed"}
	errProof      = &endpoint.OAuthError{Code: "invalid_dpop_proof", Description: "the DPoP proof is missing or invalid"}
)

type tokenAnswer struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"`
	RefreshToken string `json:"refresh_token,omitempty"`
	Scope        string `json:"scope,omitempty"`
}

type errorAnswer struct {
	Error       string `json:"error"`
	Description string `json:"error_description,omitempty"`
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	open(w)
	unkept(w)
	f, status, err := readForm(w, r)
	if err != nil {
		s.fail(w, r, status, err)
		return
	}
	t, err := s.grant(r, f)
	if err != nil {
		s.fail(w, r, 0, err)
		return
	}
	a := tokenAnswer{
		AccessToken: t.Access, TokenType: "Bearer", ExpiresIn: int64(t.ExpiresIn.Seconds()), RefreshToken: t.Refresh, Scope: strings.Join(t.Scope, " "),
	}
	if t.DPoP {
		a.TokenType = "DPoP"
	}
	answer(w, http.StatusOK, a)
}

// unkept keeps an answer out of every cache (RFC 6749 §5.1).
func unkept(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
}

// fail writes an error of RFC 6749 §5.2. status 0 is the error's own.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	var known *endpoint.OAuthError
	if !errors.As(err, &known) {
		if r.Context().Err() == nil {
			s.Log.ErrorContext(r.Context(), "token endpoint", "error", err)
		}
		answer(w, http.StatusInternalServerError, errorAnswer{Error: "server_error"})
		return
	}
	s.Log.DebugContext(r.Context(), "token request refused", "error", known)
	if status == 0 {
		status = known.Status()
	}
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, status, errorAnswer{known.Code, known.Description})
}

// grant decides which grant is asked for.
func (s *Server) grant(r *http.Request, f form) (endpoint.Token, error) {
	if r.Header.Get("Authorization") != "" || f["client_secret"] != "" {
		return endpoint.Token{}, errClientAuth // no client of ours has a secret
	}
	if f["client_assertion"] != "" && f["client_assertion_type"] != assertionType {
		return endpoint.Token{}, errClientAuth
	}
	ctx := r.Context()
	switch f["grant_type"] {
	case "client_credentials":
		if f["client_assertion"] == "" {
			return endpoint.Token{}, errClientAuth
		}
		// First the assertion: a stranger's proof is not worth a row that remembers it.
		key, err := s.Endpoints.VerifyAssertion(ctx, f["client_assertion"], f["client_id"])
		if err != nil {
			return endpoint.Token{}, err
		}
		proven, err := s.proof(r)
		if err != nil {
			return endpoint.Token{}, err
		}
		return s.Endpoints.IssueForVerifiedKey(ctx, key, endpoint.KeyGrant{Resource: f["resource"], Scope: f.scope(), ProofKey: proven})
	case "authorization_code":
		if f["client_assertion"] != "" {
			return s.redeemSignIn(r, f)
		}
		if f["code"] == "" || f["client_id"] == "" || f["redirect_uri"] == "" || f["code_verifier"] == "" {
			return endpoint.Token{}, invalid("code, client_id, redirect_uri and code_verifier are needed")
		}
		jkt, err := s.proofWith(r, f["code"])
		if err != nil {
			return endpoint.Token{}, err
		}
		return s.Endpoints.RedeemCode(ctx, endpoint.CodeGrant{
			Code: f["code"], ClientID: f["client_id"], RedirectURI: f["redirect_uri"], Verifier: f["code_verifier"], Resource: f["resource"], ProofKey: jkt,
		})
	case "refresh_token":
		if f["client_assertion"] != "" {
			return endpoint.Token{}, errClientAuth // keys get no refresh tokens
		}
		if f["refresh_token"] == "" || f["client_id"] == "" {
			return endpoint.Token{}, invalid("refresh_token and client_id are needed")
		}
		jkt, err := s.proofWith(r, f["refresh_token"])
		if err != nil {
			return endpoint.Token{}, err
		}
		return s.Endpoints.RefreshToken(ctx, endpoint.RefreshGrant{
			Refresh: f["refresh_token"], ClientID: f["client_id"], Resource: f["resource"], Scope: f.scope(), ProofKey: jkt,
		})
	case "":
		return endpoint.Token{}, invalid("grant_type is missing")
	}
	return endpoint.Token{}, errGrantType
}

// proof verifies the DPoP proof of a token request; "" when there is none.
func (s *Server) proof(r *http.Request) (jkt string, err error) {
	proofs := r.Header.Values("DPoP")
	switch len(proofs) {
	case 0:
		return "", nil
	case 1:
		return s.Endpoints.VerifyProof(r.Context(), r.Method, s.PublicURL+tokenPath, proofs[0], "")
	}
	return "", errProof
}

// proofWith is proof for a client that only a code or refresh token speaks for.
func (s *Server) proofWith(r *http.Request, secret string) (jkt string, err error) {
	if len(r.Header.Values("DPoP")) == 0 {
		return "", nil
	}
	if err := s.Endpoints.Offered(r.Context(), secret); err != nil {
		return "", err
	}
	return s.proof(r)
}

// redeemSignIn completes a friend request of method sign-in (specs/protocol.md
// section 3): the code from the redirect, the verifier, and the request's own
// key, together. The key then has its token for the persona's A2A resource.
func (s *Server) redeemSignIn(r *http.Request, f form) (endpoint.Token, error) {
	ctx := r.Context()
	jkt, err := s.Endpoints.VerifyAssertion(ctx, f["client_assertion"], f["client_id"])
	if err != nil {
		return endpoint.Token{}, err
	}
	_, persona, ok := s.Endpoints.ParseResource(f["resource"])
	if !ok || persona == "" || s.RedeemSignIn == nil {
		return endpoint.Token{}, &endpoint.OAuthError{Code: "invalid_target", Description: "the resource is not open to this client"}
	}
	if f["code"] == "" || f["redirect_uri"] == "" || f["code_verifier"] == "" {
		return endpoint.Token{}, invalid("code, redirect_uri and code_verifier are needed")
	}
	proof, err := s.proof(r)
	if err != nil {
		return endpoint.Token{}, err
	}
	if proof != "" && proof != jkt {
		return endpoint.Token{}, errProof
	}
	if err := s.completeSignIn(ctx, SignIn{
		Code: f["code"], Verifier: f["code_verifier"], RedirectURI: f["redirect_uri"], Persona: persona, Key: jkt,
	}); err != nil {
		return endpoint.Token{}, err
	}
	return s.Endpoints.IssueForRequester(ctx, jkt, persona, proof)
}

// completeSignIn tells refusals of the friend request in OAuth's words: the
// reason stands in the description, for whoever holds the code may know it.
func (s *Server) completeSignIn(ctx context.Context, in SignIn) error {
	err := s.RedeemSignIn(ctx, in)
	var refused *refusal.Error
	if errors.As(err, &refused) && refused.Code != refusal.Internal {
		description := "the grant is invalid, expired or was used before"
		if refused.Code != refusal.InvalidArgument {
			description = string(refused.Code) + ": " + refused.Message
		}
		return &endpoint.OAuthError{Code: "invalid_grant", Description: description, Cause: err}
	}
	return err
}

// revoke is RFC 7009. It tells nobody whether there was such a token.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	open(w)
	unkept(w)
	f, status, err := readForm(w, r)
	if err != nil {
		s.fail(w, r, status, err)
		return
	}
	if f["token"] == "" {
		s.fail(w, r, 0, invalid("token is missing"))
		return
	}
	if err := s.Endpoints.RevokeToken(r.Context(), f["token"]); err != nil {
		s.fail(w, r, 0, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}
