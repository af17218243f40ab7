package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// SignIns is package friend, as far as method sign-in needs a page
// (specs/protocol.md section 3).
type SignIns interface {
	SignInPage(ctx context.Context, id uuid.UUID, q friend.SignInQuery) (friend.SignInPage, error)
	SignInComplete(ctx context.Context, id uuid.UUID, answer friend.SignInAnswer) (code string, err error)
}

// errNoSignIn is the one answer about links that lead nowhere.
var errNoSignIn = refusal.New(refusal.NotFound, "This sign-in link is unknown, was used, or is older than ten minutes. Start again in the program that gave it to you.")

// maxAnswer bounds redirect_uri and state together, in bytes: they travel in a cookie.
const maxAnswer = 1800

func (s *site) friendSignInRoutes() {
	s.page("GET /friend-sign-in/{id}", anyone, (*visit).friendSignIn)
	s.page("POST /friend-sign-in/{id}", anyone, (*visit).friendSignInBegin)
}

// errand is what a program appended to its link, and which request it is about.
// It goes through the sign-in sealed in a cookie, so that nobody can change on
// the way where the code goes.
type errand struct {
	ID          uuid.UUID `json:"id"`
	RedirectURI string    `json:"redirect_uri"`
	Challenge   string    `json:"code_challenge"`
	Method      string    `json:"code_challenge_method"`
	State       string    `json:"state,omitempty"`
}

func (e errand) query() friend.SignInQuery {
	return friend.SignInQuery{RedirectURI: e.RedirectURI, CodeChallenge: e.Challenge, CodeChallengeMethod: e.Method}
}

// back is the program's redirect with an answer.
func (e errand) back(publicURL string, answer url.Values) string {
	u, err := url.Parse(e.RedirectURI)
	if err != nil {
		return publicURL // not reached: the store has parsed it before
	}
	if e.State != "" {
		answer.Set("state", e.State)
	}
	answer.Set("iss", publicURL) // RFC 9207
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += answer.Encode()
	return u.String()
}

// friendSignInPage is what somebody sees before they put their name to a request.
type friendSignInPage struct {
	friend.SignInPage
	May    []permission
	Action string
	Fields []field
	Cancel string
	Names  []human.LoginIssuer
}

// errand reads the link. Its own parameters may stand in the form or, as with the link itself, in the address.
func (v *visit) errand() (errand, friend.SignInPage, error) {
	id, err := v.id("id")
	if err != nil || v.SignIns == nil {
		return errand{}, friend.SignInPage{}, errNoSignIn
	}
	q := v.signInForm()
	e := errand{
		ID: id, RedirectURI: q.Get("redirect_uri"), Challenge: q.Get("code_challenge"), Method: q.Get("code_challenge_method"), State: q.Get("state"),
	}
	page, err := v.SignIns.SignInPage(v.r.Context(), id, e.query())
	switch {
	case refusal.CodeOf(err) == refusal.NotFound:
		return e, page, errNoSignIn
	case err != nil:
		return e, page, err
	case len(e.RedirectURI)+len(e.State) > maxAnswer:
		return e, page, refusal.Invalid("state", "redirect_uri and state are longer than %d bytes", maxAnswer)
	case len(page.Issuers) == 0:
		return e, page, refusal.New(refusal.IssuerUntrusted, "Nobody can sign in here for this persona any more.")
	}
	return e, page, nil
}

func (v *visit) signInForm() url.Values {
	if v.r.Method == http.MethodPost {
		return v.r.Form
	}
	return v.r.URL.Query()
}

// friendSignIn shows what the human is about to put their name to.
func (v *visit) friendSignIn() error {
	e, page, err := v.errand()
	if err != nil {
		return err
	}
	p := friendSignInPage{
		SignInPage: page, May: askedFor(page.Request.Scope), Action: v.r.URL.Path, Names: named(page.Issuers, v.Humans.Issuers()),
		Cancel: e.back(v.PublicURL, url.Values{"error": {"access_denied"}, "error_description": {"the human said no"}}),
	}
	for name, values := range v.signInForm() {
		switch name {
		case "redirect_uri", "code_challenge", "code_challenge_method", "state", "prompt", "login_hint":
			p.Fields = append(p.Fields, field{name, values[0]})
		default:
			if strings.HasPrefix(name, "dev_") {
				p.Fields = append(p.Fields, field{name, values[0]})
			}
		}
	}
	slices.SortFunc(p.Fields, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
	v.formLeadsTo(e.RedirectURI, page.Issuers)
	v.render(http.StatusOK, "friend_sign_in", "Sign in for a friend request", "", p)
	return nil
}

// named puts people's names to the issuers of a page.
func named(issuers []*provenance.Issuer, known []human.LoginIssuer) []human.LoginIssuer {
	var out []human.LoginIssuer
	for _, k := range known {
		if slices.ContainsFunc(issuers, func(i *provenance.Issuer) bool { return i.Issuer == k.Issuer }) {
			out = append(out, k)
		}
	}
	return out
}

// askedFor words a scope for the side that asks: the agent that works there is
// not theirs.
func askedFor(s scope.Scope) []permission {
	may := permissions(s)
	for i := range may {
		if may[i].Verb == scope.Answer {
			may[i].Words = html("may answer what the agent there asks about <b>its own todos</b> in %s", queueWords(s.Queues))
		}
	}
	return may
}

// formLeadsTo lets the page's form end where it has to. Browsers hold all
// redirects that follow a form to form-action: that is the issuer, wherever it
// sends people on to in turn, and for those who are signed in there already the
// program itself.
func (v *visit) formLeadsTo(redirect string, issuers []*provenance.Issuer) {
	to := []string{"'self'"}
	for _, i := range issuers {
		to = append(to, formTarget(i.Issuer, "https:"))
	}
	u, err := url.Parse(redirect)
	if err == nil && strings.Contains(u.Host, "[") { // the grammar has no IPv6 addresses
		to = append(to, u.Scheme+":")
	} else {
		to = append(to, formTarget(redirect, ""))
	}
	slices.Sort(to)
	policy := v.w.Header().Get("Content-Security-Policy")
	v.w.Header().Set("Content-Security-Policy", strings.Replace(policy, "form-action 'self'", "form-action "+strings.Join(slices.Compact(to), " "), 1))
}

// formTarget is an address as a source of a policy, or any when it is https and any is given.
func formTarget(address, anyHTTPS string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "'self'"
	case u.Scheme == "https" && anyHTTPS != "":
		return anyHTTPS
	}
	return u.Scheme + "://" + u.Host
}

// friendSignInBegin takes the click and leads to the human's issuer.
func (v *visit) friendSignInBegin() error {
	e, page, err := v.errand()
	if err != nil {
		return err
	}
	issuer := v.r.Form.Get("issuer")
	if issuer == "" && len(page.Issuers) == 1 {
		issuer = page.Issuers[0].Issuer
	}
	if !slices.ContainsFunc(page.Issuers, func(i *provenance.Issuer) bool { return i.Issuer == issuer }) {
		return refusal.Invalid("issuer", "choose where to sign in")
	}
	keep, err := json.Marshal(e)
	if err != nil {
		return err
	}
	to, sealed, err := v.Humans.BeginFor(v.r.Context(), issuer, v.signInForm(), page.Nonce, string(keep))
	if err != nil {
		return err
	}
	u, err := url.Parse(to)
	if err != nil {
		return err
	}
	c := v.friendCookie(u.Query().Get("state"))
	c.Value, c.MaxAge = sealed, int(human.SignInLife.Seconds())
	http.SetCookie(v.w, c)
	v.w.Header().Set("Cache-Control", "no-store")
	return v.redirect(to)
}

// friendCookie keeps the sealed errand of one attempt; with no value it takes it away.
func (v *visit) friendCookie(param string) *http.Cookie {
	instance := human.CookieName(v.PublicURL)
	return &http.Cookie{
		Name: "sb_friend_" + instance[len(instance)-8:] + "_" + cookieSafe(param), Path: human.CallbackPath, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: strings.HasPrefix(v.PublicURL, "https:"), MaxAge: -1,
	}
}

// issuerAnswer tells the two kinds of sign-in apart, which share the redirect
// that the operator registered at the issuer, by the cookie that began them.
func (v *visit) issuerAnswer() error {
	away := v.friendCookie(v.r.URL.Query().Get("state"))
	c, err := v.r.Cookie(away.Name)
	if err != nil {
		return v.loginCallback()
	}
	http.SetCookie(v.w, away)
	v.w.Header().Set("Cache-Control", "no-store")
	return v.friendSignInAnswer(c.Value)
}

// friendSignInAnswer takes the issuer's answer and hands the program its code.
// Nobody is signed in here by it.
func (v *visit) friendSignInAnswer(sealed string) error {
	if v.SignIns == nil {
		return errNoSignIn
	}
	ctx := v.r.Context()
	token, client, kept, err := v.Humans.FinishFor(ctx, sealed, v.r.URL.Query())
	if kept == "" {
		return err
	}
	var e errand
	if err := json.Unmarshal([]byte(kept), &e); err != nil {
		return err
	}
	var code string
	if err == nil {
		code, err = v.SignIns.SignInComplete(ctx, e.ID, friend.SignInAnswer{SignInQuery: e.query(), IDToken: token, ClientID: client})
	}
	if err != nil {
		return v.friendSignInRefused(e, err)
	}
	return v.redirect(e.back(v.PublicURL, url.Values{"code": {code}}))
}

// friendSignInRefused tells the program why there is no code (RFC 6749 section
// 4.1.2.1): it waits, and its human will look there.
func (v *visit) friendSignInRefused(e errand, err error) error {
	r := refusal.From(err)
	v.Log.InfoContext(v.r.Context(), "sign-in for a friend request refused", "request", e.ID, "code", r.Code, "error", err)
	code := "access_denied"
	switch r.Code {
	case refusal.Internal:
		code = "server_error"
	case refusal.Unavailable:
		code = "temporarily_unavailable"
	}
	return v.redirect(e.back(v.PublicURL, url.Values{"error": {code}, "error_description": {printable(string(r.Code) + ": " + r.Message)}}))
}

// printable keeps what an error_description may hold.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '"' || r == '\\':
			return '\''
		case r < 0x20 || r > 0x7e:
			return -1
		}
		return r
	}, text)
}
