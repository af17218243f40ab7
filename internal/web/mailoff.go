package web

import (
	"errors"
	"net/http"

	"switchboard/internal/refusal"
)

// mailOffMost is how many mails' links one address may post in a minute: a mail
// provider posts for all of its readers.
const mailOffMost = 120

// mailOff switches e-mail off for whom a mail was (RFC 8058). A mail program posts
// it, without a session or a form of ours, and the link alone is its authority; the
// answer is the same whether or not it was good.
func (v *visit) mailOff() error {
	if wait := v.mailOffs.Take(v.ClientAddress(v.r)); wait > 0 {
		return refusal.New(refusal.RateLimited, "too many mails are switched off from there; try again in a minute").After(wait)
	}
	if err := v.r.ParseMultipartForm(maxForm); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return refusal.New(refusal.InvalidArgument, "this is no form").Because(err)
	}
	if v.Notices != nil && v.r.PostForm.Get("List-Unsubscribe") == "One-Click" {
		if err := v.Notices.MailOff(v.r.Context(), v.r.URL.Query().Get("of")); err != nil {
			return err
		}
	}
	v.w.WriteHeader(http.StatusNoContent)
	return errAnswered
}

// mailOffPage leads a person who followed that link to the setting. It changes
// nothing: programs follow links too, to look for harm.
func (v *visit) mailOffPage() error { return v.redirect("/settings#h-notify") }
