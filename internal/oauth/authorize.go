package oauth

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"switchboard/internal/endpoint"
	"switchboard/internal/human"
)

const (
	maxState    = 2048 // bytes
	maxReturnTo = 2000 // bytes that a sign-in carries
)

var thumbprint = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// parameters of an authorization request; others are ignored (RFC 6749 §3.1).
var parameters = []string{
	"response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method", "resource", "dpop_jkt",
	"response_mode", "request", "request_uri", "prompt",
}

// request is an authorization request whose client and redirect are known to
// belong together, so that answers may go there.
type request struct {
	form       form
	client     client
	redirect   *url.URL
	registered string
	session    human.Session
}

// showAuthorize answers an authorization request with the consent page, or with
// a code where the same was allowed before.
func (s *Server) showAuthorize(w http.ResponseWriter, r *http.Request) {
	unkept(w)
	f, err := parseForm(r.URL.RawQuery)
	if err != nil {
		s.refusePage(w, http.StatusBadRequest, "The request cannot be read: a parameter stands in it twice, or is spelled wrong.")
		return
	}
	if f["client_id"] == "" || f["redirect_uri"] == "" {
		s.refusePage(w, http.StatusBadRequest, "The request does not say which program it comes from: client_id and redirect_uri are needed.")
		return
	}
	session, ok := s.Session(r)
	if !ok {
		back := authorizePath + "?" + r.URL.RawQuery
		if len(back) > maxReturnTo {
			s.refusePage(w, http.StatusBadRequest, "The request is too long to be kept while you sign in. Sign in first, then start again from the program.")
			return
		}
		http.Redirect(w, r, "/login?"+url.Values{"return_to": {back}}.Encode(), http.StatusFound)
		return
	}
	q, ok := s.known(w, r, f, session)
	if !ok {
		return
	}
	a, target, err := s.weigh(r.Context(), q)
	if err != nil {
		s.answerError(w, r, q, err)
		return
	}
	before, err := s.Endpoints.Consented(r.Context(), a)
	if err != nil {
		s.answerError(w, r, q, err)
		return
	}
	if before && f["prompt"] != "consent" {
		s.answerCode(w, r, q, a)
		return
	}
	s.consentPage(w, q, target)
}

// decide takes the answer to the consent page.
func (s *Server) decide(w http.ResponseWriter, r *http.Request) {
	unkept(w)
	if foreign(r, s.origin) {
		s.refusePage(w, http.StatusForbidden, "This did not come from a page of ours.")
		return
	}
	f, status, err := readForm(w, r)
	if err != nil {
		s.refusePage(w, status, "The form cannot be read.")
		return
	}
	session, ok := s.Session(r)
	if !ok {
		s.refusePage(w, http.StatusUnauthorized, "You are no longer signed in. Start again from the program.")
		return
	}
	if session.CSRF == "" || subtle.ConstantTimeCompare([]byte(session.CSRF), []byte(f["csrf"])) != 1 {
		s.refusePage(w, http.StatusForbidden, "This page was made for another session. Start again from the program.")
		return
	}
	q, ok := s.known(w, r, f, session)
	if !ok {
		return
	}
	a, _, err := s.weigh(r.Context(), q)
	switch {
	case err != nil:
		s.answerError(w, r, q, err)
	case f["decision"] == "allow":
		s.answerCode(w, r, q, a)
	default:
		s.answerError(w, r, q, &endpoint.OAuthError{Code: "access_denied", Description: "the person did not allow it"})
	}
}

// foreign reports whether a form was sent by a page of another site. A browser
// that tells neither is held to the form's token alone.
func foreign(r *http.Request, origin string) bool {
	if o := r.Header.Get("Origin"); o != "" && !strings.EqualFold(o, origin) {
		return true
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return true
}

// known finds the client and checks the redirect. Until both stand, nobody is
// sent anywhere: what is wrong is a page.
func (s *Server) known(w http.ResponseWriter, r *http.Request, f form, session human.Session) (*request, bool) {
	c, err := s.clients.get(r.Context(), session.Human.ID, f["client_id"])
	if err != nil {
		s.Log.InfoContext(r.Context(), "client refused", "client", f["client_id"], "error", err)
		s.refusePage(w, http.StatusBadRequest, "The program cannot be recognised: "+plain(err)+".")
		return nil, false
	}
	registered, ok := matchRedirect(c.redirects, f["redirect_uri"])
	if !ok {
		s.refusePage(w, http.StatusBadRequest, "The program wants its answer sent to an address that its own document does not list.")
		return nil, false
	}
	to, err := checkRedirect(f["redirect_uri"])
	if err != nil {
		s.refusePage(w, http.StatusBadRequest, "The program wants its answer sent to an address that is not allowed.")
		return nil, false
	}
	return &request{form: f, client: c, redirect: to, registered: registered, session: session}, true
}

// plain is what a person is told about a client: the outermost words, not where
// a fetch went wrong inside.
func plain(err error) string {
	text, _, _ := strings.Cut(err.Error(), ": ")
	return text
}

// weigh checks the rest of the request and asks whether the person may let the
// client use the resource.
func (s *Server) weigh(ctx context.Context, q *request) (endpoint.Authorization, endpoint.Target, error) {
	f := q.form
	none := func(code, description string) (endpoint.Authorization, endpoint.Target, error) {
		return endpoint.Authorization{}, endpoint.Target{}, &endpoint.OAuthError{Code: code, Description: description}
	}
	challenge, err := base64.RawURLEncoding.Strict().DecodeString(f["code_challenge"])
	switch {
	case len(f["state"]) > maxState:
		delete(f, "state")
		return none("invalid_request", "state is too long")
	case f["request"] != "":
		return none("request_not_supported", "request objects are not supported")
	case f["request_uri"] != "":
		return none("request_uri_not_supported", "request objects are not supported")
	case f["response_type"] != "code":
		return none("unsupported_response_type", "response_type is code")
	case f["response_mode"] != "" && f["response_mode"] != "query":
		return none("invalid_request", "response_mode is query")
	case f["code_challenge_method"] != "S256" || err != nil || len(challenge) != 32:
		return none("invalid_request", "code_challenge with code_challenge_method=S256 is needed")
	case f["dpop_jkt"] != "" && !thumbprint.MatchString(f["dpop_jkt"]):
		return none("invalid_request", "dpop_jkt is no thumbprint")
	}
	person := endpoint.Person{Human: q.session.Human.ID, Identity: q.session.Human.Identity}
	target, err := s.Endpoints.Authorizable(ctx, person, f["resource"], f.scope())
	if err != nil {
		return endpoint.Authorization{}, endpoint.Target{}, err
	}
	return endpoint.Authorization{
		Person: person, Client: q.client.id, ClientName: q.client.name, RedirectURI: f["redirect_uri"], Registered: q.registered,
		Resource: f["resource"], Scope: target.Scope, Challenge: f["code_challenge"], ProofKey: f["dpop_jkt"],
	}, target, nil
}

func (s *Server) answerCode(w http.ResponseWriter, r *http.Request, q *request, a endpoint.Authorization) {
	code, err := s.Endpoints.Authorize(r.Context(), a)
	if err != nil {
		s.answerError(w, r, q, err)
		return
	}
	s.sendBack(w, r, q, url.Values{"code": {code}})
}

// answerError sends an error of RFC 6749 §4.1.2.1 to the client.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, q *request, err error) {
	var known *endpoint.OAuthError
	if !errors.As(err, &known) {
		s.Log.ErrorContext(r.Context(), "authorization endpoint", "error", err)
		known = &endpoint.OAuthError{Code: "server_error", Description: "something went wrong on our side"}
	}
	s.sendBack(w, r, q, url.Values{"error": {known.Code}, "error_description": {known.Description}})
}

// sendBack answers on the redirect, with state and iss (RFC 9207).
func (s *Server) sendBack(w http.ResponseWriter, r *http.Request, q *request, answer url.Values) {
	if state := q.form["state"]; state != "" {
		answer.Set("state", state)
	}
	answer.Set("iss", s.PublicURL)
	status := http.StatusFound
	if r.Method == http.MethodPost {
		status = http.StatusSeeOther // so that the form is not sent on
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", withAnswer(q.form["redirect_uri"], answer))
	w.WriteHeader(status)
}
