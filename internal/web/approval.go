package web

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// approvalPage is one friend request before its human: who, why, what.
type approvalPage struct {
	R        friend.Request
	Earlier  []friend.Request // of the same identity, newest first
	Grants   []friend.Grant   // that the same identity holds
	Editor   scopeEditor
	Form     form
	Fresh    bool
	SignedAt time.Time
	Changed  bool // the offer changed since the page was shown
	// Previewed is set when somebody without a script asked what their choice comes to.
	Previewed bool
	Renews    *friend.Grant
}

func (p approvalPage) Pending() bool { return p.R.State == friend.Pending }

// request shows a friend request: the approval while it is pending, the decision afterwards.
func (v *visit) request() error {
	id, err := v.id("id")
	if err != nil {
		return err
	}
	r, err := v.Friends.GetIncoming(v.r.Context(), v.owner(), id)
	if err != nil {
		return err
	}
	// What was typed before a sign-in comes back in the address.
	typed := v.r.URL.Query()
	if !typed.Has("offer_version") {
		typed = nil
	}
	page, err := v.approval(r, typed)
	if err != nil {
		return err
	}
	page.Changed = typed != nil && typed.Get("offer_version") != strconv.FormatInt(r.OfferVersion, 10)
	v.showApproval(http.StatusOK, page)
	return nil
}

func (v *visit) showApproval(status int, page approvalPage) {
	v.render(status, "request", "Friend request", "inbox", page)
}

// approval gathers what the page says. typed is nil for what was requested.
func (v *visit) approval(r friend.Request, typed url.Values) (approvalPage, error) {
	ctx := v.r.Context()
	p := approvalPage{R: r, Fresh: v.session.Fresh, SignedAt: v.session.AuthTime}
	requests, _, err := v.Friends.Incoming(ctx, v.owner(), "", "", 100)
	if err != nil {
		return p, err
	}
	for _, e := range requests {
		if e.ID != r.ID && bytes.Equal(e.Identity.Hash, r.Identity.Hash) && e.CreatedAt.Before(r.CreatedAt) && len(p.Earlier) < 5 {
			p.Earlier = append(p.Earlier, e)
		}
	}
	grants, _, err := v.Friends.Grants(ctx, v.owner(), "", 100)
	if err != nil {
		return p, err
	}
	for _, g := range grants {
		if g.ID == r.Supersedes {
			p.Renews = &g
		}
		if bytes.Equal(g.Identity.Hash, r.Identity.Hash) && (g.State == friend.GrantActive || g.State == friend.GrantPaused) {
			p.Grants = append(p.Grants, g)
		}
	}
	p.Editor = newEditor(r.Scope, offered(r.Scope, r.Offered))
	p.Form = newForm(typed)
	if typed == nil {
		p.Form.Values = p.Editor.values()
		p.Form.Values.Set("offer_version", strconv.FormatInt(r.OfferVersion, 10))
	}
	p.Editor.read(&p.Form)
	return p, nil
}

// requestPreview answers with what the form as typed would grant, and decides
// nothing: a part of the page for a script, the page without one.
func (v *visit) requestPreview() error {
	page, err := v.typedApproval()
	if err != nil {
		return err
	}
	switch {
	case v.fragment():
		v.part("request", "preview", page)
	case !page.Pending():
		return v.decided(page.R)
	case page.Form.Get("offer_version") != strconv.FormatInt(page.R.OfferVersion, 10):
		return v.offerChanged(page)
	case page.Form.Bad():
		v.showApproval(http.StatusUnprocessableEntity, page)
	default:
		page.Previewed = true
		v.showApproval(http.StatusOK, page)
	}
	return nil
}

// requestPreviewed is for who loads a preview's address again.
func (v *visit) requestPreviewed() error {
	id, err := v.id("id")
	if err != nil {
		return err
	}
	return v.redirect("/inbox/requests/" + id.String())
}

func (v *visit) typedApproval() (approvalPage, error) {
	id, err := v.id("id")
	if err != nil {
		return approvalPage{}, err
	}
	r, err := v.Friends.GetIncoming(v.r.Context(), v.owner(), id)
	if err != nil {
		return approvalPage{}, err
	}
	return v.approval(r, v.r.PostForm)
}

// requestApprove grants what the form says. A request that is decided already is shown as it is.
func (v *visit) requestApprove() error {
	page, err := v.typedApproval()
	if err != nil {
		return err
	}
	r := page.R
	here := "/inbox/requests/" + r.ID.String()
	if !page.Pending() {
		return v.decided(r)
	}
	version, err := strconv.ParseInt(page.Form.Get("offer_version"), 10, 64)
	if err != nil || version != r.OfferVersion {
		return v.offerChanged(page)
	}
	if page.Form.Bad() {
		v.showApproval(http.StatusUnprocessableEntity, page)
		return nil
	}
	if !v.session.Fresh {
		kept := url.Values{}
		for _, name := range append([]string{"queues", "verbs", "note", "offer_version"}, limitNames()...) {
			if values, ok := page.Form.Values[name]; ok {
				kept[name] = values
			}
		}
		kept.Set("done", "confirmed")
		back := here + "?" + kept.Encode()
		if len(back) > 1900 { // a long note is the only thing that can be that long
			kept.Del("note")
			back = here + "?" + kept.Encode()
		}
		return v.confirm(back)
	}
	asked := page.Editor.Asked
	grant, err := v.Friends.Approve(v.r.Context(), v.owner(), r.ID, friend.Approval{
		Scope: &asked, ExpiresInDays: asked.Limits.ExpiresInDays, Note: page.Form.Get("note"), OfferVersion: &version,
	})
	if err == nil {
		return v.redirect("/friends/" + grant.ID.String() + "?done=approved")
	}
	if refusal.CodeOf(err) == refusal.Conflict {
		// Decided elsewhere, or the offer moved between looking and approving.
		fresh, lookErr := v.Friends.GetIncoming(v.r.Context(), v.owner(), r.ID)
		if lookErr != nil {
			return lookErr
		}
		if fresh.State != friend.Pending {
			return v.decided(fresh)
		}
		if fresh.OfferVersion != version {
			page.R = fresh
			return v.offerChanged(page)
		}
		// What exactly no longer fits, beside its field.
		var why *refusal.Error
		if errors.As(refusal.From(err).Cause, &why) {
			err = why
		}
	}
	if err := page.Form.refused(err, nil); err != nil {
		return err
	}
	page.Editor.refused(page.Form)
	v.showApproval(http.StatusUnprocessableEntity, page)
	return nil
}

// offerChanged shows the page again, as the offer is now, with what was typed.
func (v *visit) offerChanged(page approvalPage) error {
	typed := page.Form.Values
	typed.Set("offer_version", strconv.FormatInt(page.R.OfferVersion, 10))
	again, err := v.approval(page.R, typed)
	if err != nil {
		return err
	}
	again.Changed = true
	v.showApproval(http.StatusConflict, again)
	return nil
}

// decided leads to what became of a request: twice the same click is no error.
func (v *visit) decided(r friend.Request) error {
	if r.State == friend.Approved && r.GrantID != uuid.Nil {
		return v.redirect("/friends/" + r.GrantID.String() + "?done=approved")
	}
	return v.redirect("/inbox/requests/" + r.ID.String())
}

func (v *visit) requestDecline() error {
	id, err := v.id("id")
	if err != nil {
		return err
	}
	f := newForm(v.r.PostForm)
	again, block := f.Has("may_ask_again", "yes"), f.Has("block", "yes")
	_, err = v.Friends.Decline(v.r.Context(), v.owner(), id, friend.Refusal{Note: f.Get("decline_note"), MayAskAgain: &again, Block: block})
	switch refusal.CodeOf(err) {
	case "":
		if block {
			return v.redirect("/inbox?done=blocked")
		}
		return v.redirect("/inbox?done=declined")
	case refusal.Conflict, refusal.InvalidArgument:
	default:
		return err
	}
	r, lookErr := v.Friends.GetIncoming(v.r.Context(), v.owner(), id)
	if lookErr != nil {
		return lookErr
	}
	if r.State != friend.Pending {
		return v.decided(r)
	}
	page, lookErr := v.approval(r, nil)
	if lookErr != nil {
		return lookErr
	}
	for _, name := range []string{"decline_note", "may_ask_again", "block"} {
		page.Form.Values[name] = f.Values[name]
	}
	if err := page.Form.refused(err, map[string]string{"note": "decline_note"}); err != nil {
		return err
	}
	v.showApproval(http.StatusUnprocessableEntity, page)
	return nil
}

// offered is what the offers allow within a requested scope: queues and verbs
// that are offered together, and for each limit the least of what they allow.
// A pair of queue and verb that is offered more than once counts at its widest.
func offered(asked scope.Scope, offers []scope.Offer) scope.Scope {
	out := scope.Scope{}
	queues, verbs := map[string]bool{}, map[scope.Verb]bool{}
	first := true
	for _, q := range asked.Queues {
		for _, verb := range asked.Verbs {
			var best scope.Limits
			found := false
			for _, o := range offers {
				if o.Queue != q || !hasVerb(o.Verbs, verb) {
					continue
				}
				full := o.Full()
				for _, l := range limits {
					if !found || *l.of(&full) > *l.of(&best) {
						*l.of(&best) = *l.of(&full)
					}
				}
				found = true
			}
			if !found {
				continue
			}
			queues[q], verbs[verb] = true, true
			for _, l := range limits {
				if first || *l.of(&best) < *l.of(&out.Limits) {
					*l.of(&out.Limits) = *l.of(&best)
				}
			}
			first = false
		}
	}
	for _, q := range asked.Queues {
		if queues[q] {
			out.Queues = append(out.Queues, q)
		}
	}
	for _, verb := range asked.Verbs {
		if verbs[verb] {
			out.Verbs = append(out.Verbs, verb)
		}
	}
	return out
}

func hasVerb(verbs []scope.Verb, v scope.Verb) bool {
	for _, have := range verbs {
		if have == v {
			return true
		}
	}
	return false
}
