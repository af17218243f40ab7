package web

import (
	"net/http"
	"net/url"
	"strings"

	"switchboard/internal/human"
	"switchboard/internal/refusal"
)

// home is the first page: the inbox for residents, friends for guests, and what this is for everybody else.
func (v *visit) home() error {
	switch {
	case v.signed && v.session.Human.Resident:
		return v.redirect("/inbox")
	case v.signed:
		return v.redirect("/friends")
	}
	v.render(http.StatusOK, "home", "Switchboard", "", v.Humans.Issuers())
	return nil
}

// login leads to the issuer: straight through where there is only one.
func (v *visit) login() error {
	q := v.r.URL.Query()
	issuers := v.Humans.Issuers()
	issuer := q.Get("issuer")
	if issuer == "" && len(issuers) > 1 {
		v.render(http.StatusOK, "login", "Sign in", "", loginPage{Issuers: issuers, Rest: carried(q)})
		return nil
	}
	redirect, state, err := v.Humans.Begin(v.r.Context(), issuer, q, q.Get("return_to"))
	if err != nil {
		return err
	}
	to, err := url.Parse(redirect)
	if err != nil {
		return err
	}
	v.stateCookie(to.Query().Get("state"), state)
	v.w.Header().Set("Cache-Control", "no-store")
	http.Redirect(v.w, v.r, redirect, http.StatusFound)
	return errAnswered
}

type loginPage struct {
	Issuers []human.LoginIssuer
	Rest    []field // parameters that go along
}

type field struct{ Name, Value string }

func carried(q url.Values) []field {
	var out []field
	for _, name := range []string{"prompt", "login_hint", "return_to"} {
		if q.Has(name) {
			out = append(out, field{name, q.Get(name)})
		}
	}
	return out
}

// stateCookie keeps a sign-in's sealed state. Each attempt has a cookie of its
// own, so that two tabs do not spoil one another; "" takes it away.
func (v *visit) stateCookie(param, sealed string) {
	c := &http.Cookie{
		Name: v.stateName(param), Value: sealed, Path: human.CallbackPath, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(v.PublicURL, "https:"), MaxAge: int(human.SignInLife.Seconds()),
	}
	if sealed == "" {
		c.MaxAge = -1
	}
	http.SetCookie(v.w, c)
}

func (v *visit) stateName(param string) string {
	instance := human.CookieName(v.PublicURL)
	return "sb_login_" + instance[len(instance)-8:] + "_" + cookieSafe(param)
}

// cookieSafe takes the start of a state parameter as part of a cookie's name.
func cookieSafe(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() == 10 {
			break
		}
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// loginCallback takes the issuer's answer.
func (v *visit) loginCallback() error {
	q := v.r.URL.Query()
	state := ""
	if c, err := v.r.Cookie(v.stateName(q.Get("state"))); err == nil {
		state = c.Value
	}
	v.stateCookie(q.Get("state"), "")
	old := v.Humans.TokenFromRequest(v.r)
	token, returnTo, err := v.Humans.Finish(v.r.Context(), state, q, v.r.UserAgent())
	if err != nil {
		return v.refuseEntry(err, returnTo)
	}
	if old != "" { // the same browser signed in again: its former session must not outlive this
		if err := v.Humans.SignOut(v.r.Context(), old); err != nil {
			return err
		}
	}
	v.Humans.SetCookie(v.w, token)
	v.w.Header().Set("Cache-Control", "no-store")
	return v.redirect(returnTo)
}

// refuseEntry says why somebody is not let in, with a way to try again.
func (v *visit) refuseEntry(err error, returnTo string) error {
	e := refusal.From(err)
	if e.Code == refusal.Internal {
		return err
	}
	v.Log.InfoContext(v.r.Context(), "sign-in refused", "code", e.Code, "error", err)
	v.render(e.Code.HTTP(), "refused", "Not signed in", "", refusedPage{Message: e.Message, Closed: e.Code == refusal.Forbidden, ReturnTo: human.LocalPath(returnTo)})
	return nil
}

type refusedPage struct {
	Message, ReturnTo string
	Closed            bool
}

func (v *visit) logout() error {
	if v.signed && v.r.PostForm.Get("csrf") != v.session.CSRF {
		return refusal.New(refusal.Forbidden, "This form belongs to a session that has ended. Load the page again.")
	}
	if err := v.Humans.SignOut(v.r.Context(), v.Humans.TokenFromRequest(v.r)); err != nil {
		return err
	}
	v.Humans.SetCookie(v.w, "")
	return v.redirect("/?done=signed-out")
}

// confirm answers a form that needs a fresh session: sign in again, then back to
// where everything typed is kept. It is a page and no redirect, because
// browsers hold a form's redirects to form-action, which names only us.
func (v *visit) confirm(back string) error {
	q := url.Values{"prompt": {"login"}, "return_to": {back}}
	for _, i := range v.Humans.Issuers() {
		if i.Issuer == v.session.Human.Issuer {
			q.Set("issuer", i.Issuer)
		}
	}
	v.w.Header().Set("Refresh", "0; url=/login?"+q.Encode())
	v.render(http.StatusOK, "confirm", "Confirm it is you", "", "/login?"+q.Encode())
	return errAnswered
}
