package web

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"switchboard/internal/friend"
)

// erasePhrase is what somebody types who wants their account erased.
const erasePhrase = "erase my account"

// confirmedFor is how recently the provider must have confirmed who erases: sooner
// than what a session is fresh for, because this cannot be taken back.
const confirmedFor = 10 * time.Minute

type erasePage struct {
	Form      form
	Phrase    string
	Confirmed bool
	Resident  bool
	Revoked   int // live grants that they gave
	Left      int // live grants that they hold
	More      bool
}

// erase says what erasing an account comes to, and asks for the words.
// The words are typed last, and never taken from an address: nobody can make a link
// that leaves one click to do.
func (v *visit) erase() error { return v.showErase(http.StatusOK, newForm(url.Values{})) }

func (v *visit) showErase(status int, f form) error {
	ctx := v.r.Context()
	page := erasePage{Form: f, Phrase: erasePhrase, Confirmed: v.justConfirmed(), Resident: v.session.Human.Resident}
	given, more, err := v.Friends.Grants(ctx, v.owner(), "", listPage)
	if err != nil {
		return err
	}
	held, moreHeld, err := v.Friends.GrantsOut(ctx, v.session.Human.Identity, "", listPage)
	if err != nil {
		return err
	}
	page.Revoked, page.Left, page.More = countAlive(given), countAlive(held), more != "" || moreHeld != ""
	v.render(status, "erase", "Erase your account", "settings", page)
	return nil
}

func countAlive(grants []friend.Grant) int {
	n := 0
	for _, g := range grants {
		if alive(g) {
			n++
		}
	}
	return n
}

func (v *visit) justConfirmed() bool { return time.Since(v.session.AuthTime) < confirmedFor }

// eraseAccount erases it, once the provider has confirmed who asks and they have
// typed the words.
func (v *visit) eraseAccount() error {
	f := newForm(v.r.PostForm)
	if !v.justConfirmed() {
		return v.confirm("/settings/erase?done=confirmed-erase")
	}
	if strings.ToLower(strings.Join(strings.Fields(f.Get("phrase")), " ")) != erasePhrase {
		f.wrong("phrase", "type “"+erasePhrase+"” to erase it; nothing has been erased")
		return v.showErase(http.StatusUnprocessableEntity, f)
	}
	if err := v.Humans.Erase(v.r.Context(), v.owner()); err != nil {
		return err
	}
	v.Humans.SetCookie(v.w, "")
	return v.redirect("/?done=erased")
}
