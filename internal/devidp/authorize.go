package devidp

import (
	_ "embed"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed choose.html
var chooseSource string

var choosePage = template.Must(template.New("choose").Parse(chooseSource))

// authorize answers an authorization request: with a redirect at once when
// prompt=none names a person or one was chosen on the page, else with the page.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the request cannot be read", http.StatusBadRequest)
		return
	}
	q := r.Form
	// Without a client and a redirect of its own, nobody is redirected (RFC 6749 section 4.1.2.1).
	if !knownClient(q.Get("client_id")) {
		http.Error(w, "unknown client_id", http.StatusBadRequest)
		return
	}
	if !p.redirectAllowed(q.Get("client_id"), q.Get("redirect_uri")) {
		http.Error(w, "redirect_uri is not one of this client's", http.StatusBadRequest)
		return
	}
	code, failure := grantFor(q)
	if failure != nil {
		p.redirectBack(w, r, url.Values{"error": {failure.name}, "error_description": {failure.text}})
		return
	}
	hinted, known := PersonNamed(q.Get("login_hint"))
	prompts := strings.Fields(q.Get("prompt"))
	switch chosen, ok := PersonNamed(r.PostForm.Get("person")); {
	case ok:
		code.person = chosen
	case slices.Contains(prompts, "none") && known:
		code.person = hinted
	case slices.Contains(prompts, "none"):
		p.redirectBack(w, r, url.Values{"error": {"login_required"}, "error_description": {"login_hint names nobody here; there are alice, bob and carol"}})
		return
	default:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = choosePage.Execute(w, map[string]any{"Request": q, "Hinted": hinted.Login, "People": People(), "For": purposeOf(q.Get("client_id")), "Where": hostOf(q.Get("redirect_uri"))})
		return
	}
	p.redirectBack(w, r, url.Values{"code": {p.issueCode(code)}})
}

// purposeOf says in words what a client signs people in for.
func purposeOf(client string) string {
	switch client {
	case LoginClient:
		return "You are signing in to Switchboard,"
	case FriendClient:
		return "An agent of yours asks for friendship and proves whose it is. The answer goes to the program that sent it,"
	}
	return "A program signs you in,"
}

// hostOf is where an answer goes, for people.
func hostOf(redirect string) string {
	u, err := url.Parse(redirect)
	if err != nil {
		return redirect
	}
	return u.Host
}

// oauthError is an error of RFC 6749, with a text for developers.
type oauthError struct{ name, text string }

// grantFor reads what a code will stand for. The person is not known yet.
func grantFor(q url.Values) (grantedCode, *oauthError) {
	now := time.Now()
	g := grantedCode{
		client: q.Get("client_id"), redirect: q.Get("redirect_uri"), challenge: q.Get("code_challenge"), nonce: q.Get("nonce"),
		authTime: now, lifetime: time.Hour, expires: now.Add(time.Minute),
	}
	prompts := strings.Fields(q.Get("prompt"))
	switch {
	case q.Get("response_type") != "code":
		return g, &oauthError{"unsupported_response_type", "response_type has to be code"}
	case q.Has("response_mode") && q.Get("response_mode") != "query":
		return g, &oauthError{"invalid_request", "response_mode has to be query"}
	case !slices.Contains(strings.Fields(q.Get("scope")), "openid"):
		return g, &oauthError{"invalid_scope", "scope has to contain openid"}
	case g.challenge == "" || q.Get("code_challenge_method") != "S256":
		return g, &oauthError{"invalid_request", "PKCE is needed: code_challenge with code_challenge_method=S256"}
	case slices.Contains(prompts, "none") && len(prompts) > 1:
		return g, &oauthError{"invalid_request", "prompt=none stands alone"}
	}
	if text := q.Get("dev_id_token_lifetime"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return g, &oauthError{"invalid_request", "dev_id_token_lifetime is not a number of seconds"}
		}
		g.lifetime = time.Duration(seconds) * time.Second
	}
	if text := q.Get("dev_auth_time_offset"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return g, &oauthError{"invalid_request", "dev_auth_time_offset is not a number of seconds"}
		}
		g.authTimeOffset = time.Duration(seconds) * time.Second
	}
	return g, nil
}

// redirectBack sends the browser to the checked redirect_uri with answer, the
// request's state and our own name (RFC 9207).
func (p *Provider) redirectBack(w http.ResponseWriter, r *http.Request, answer url.Values) {
	target, err := url.Parse(r.Form.Get("redirect_uri"))
	if err != nil { // redirectAllowed has parsed it before
		http.Error(w, "redirect_uri cannot be read", http.StatusBadRequest)
		return
	}
	q := target.Query()
	for name := range answer {
		q.Set(name, answer.Get(name))
	}
	if r.Form.Has("state") {
		q.Set("state", r.Form.Get("state"))
	}
	q.Set("iss", p.issuer)
	target.RawQuery = q.Encode()
	// After a POST the browser has to come back with GET.
	http.Redirect(w, r, target.String(), http.StatusSeeOther)
}
