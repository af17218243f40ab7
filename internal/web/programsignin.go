package web

import (
	"net/http"
	"net/url"

	"switchboard/internal/human"
	"switchboard/internal/refusal"
)

// programSignInPage is what somebody sees before a program of theirs gets an API token.
type programSignInPage struct {
	human.ProgramSignIn
	To, Cancel string
	Fields     []field
}

func (s *site) programSignInRoutes() {
	s.page("GET /program-sign-in", resident, (*visit).programSignIn)
	s.page("POST /program-sign-in", resident, (*visit).programSignInAllow)
}

// program reads what the program appended to its link, or the form repeats.
func (v *visit) program() (human.ProgramSignIn, errand, error) {
	q := v.signInForm()
	p := human.ProgramSignIn{Name: q.Get("name"), RedirectURI: q.Get("redirect_uri"), Challenge: q.Get("code_challenge")}
	e := errand{RedirectURI: p.RedirectURI, State: q.Get("state")}
	if q.Get("code_challenge_method") != "S256" || len(e.State) > maxAnswer {
		return p, e, refusal.Invalid("code_challenge", "code_challenge with code_challenge_method=S256 is needed")
	}
	return p, e, p.Check()
}

// programSignIn asks whether a program may have an API token.
func (v *visit) programSignIn() error {
	p, e, err := v.program()
	if err != nil {
		return err
	}
	if !v.session.Fresh {
		return v.confirm(v.r.URL.RequestURI())
	}
	u, err := url.Parse(p.RedirectURI)
	if err != nil {
		return err
	}
	page := programSignInPage{
		ProgramSignIn: p, To: u.Host,
		Cancel: e.back(v.PublicURL, url.Values{"error": {"access_denied"}, "error_description": {"the human said no"}}),
		Fields: []field{
			{"name", p.Name}, {"redirect_uri", p.RedirectURI}, {"code_challenge", p.Challenge}, {"code_challenge_method", "S256"}, {"state", e.State},
		},
	}
	v.formLeadsTo(p.RedirectURI, nil)
	v.render(http.StatusOK, "program_sign_in", "Sign a program in", "", page)
	return nil
}

// programSignInAllow takes the click and sends the code to the program.
func (v *visit) programSignInAllow() error {
	p, e, err := v.program()
	if err != nil {
		return err
	}
	if !v.session.Fresh { // it was, when the page was shown
		return v.confirm("/program-sign-in?" + url.Values{
			"name": {p.Name}, "redirect_uri": {p.RedirectURI}, "code_challenge": {p.Challenge}, "code_challenge_method": {"S256"}, "state": {e.State},
		}.Encode())
	}
	code, err := v.Humans.AllowProgram(v.r.Context(), v.session, p)
	if err != nil {
		return err
	}
	v.w.Header().Set("Cache-Control", "no-store")
	v.w.Header().Set("Referrer-Policy", "no-referrer")
	return v.redirect(e.back(v.PublicURL, url.Values{"code": {code}}))
}
