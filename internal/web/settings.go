package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/activity"
	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/notify"
	"switchboard/internal/refusal"
)

type settingsPage struct {
	Human     human.Human
	Form      form
	Sessions  []human.Session
	Current   uuid.UUID
	Tokens    []human.APIToken
	Blocks    []friend.Block
	NewToken  string // shown once
	NewSecret string // of the webhook, shown once
	Channels  []notify.Status
	CanTest   bool
	Fresh     bool
	Member    bool // a resident
}

// once is what a page shows this one time.
type once struct{ Token, Secret string }

func (v *visit) settings() error {
	f := v.storedSettings()
	if token := v.r.URL.Query().Get("token_name"); token != "" { // typed before a sign-in
		f.Values.Set("token_name", token)
	}
	return v.showSettings(http.StatusOK, f, once{})
}

func (v *visit) showSettings(status int, f form, shown once) error {
	ctx := v.r.Context()
	page := settingsPage{Human: v.session.Human, Form: f, Current: v.session.ID, NewToken: shown.Token, NewSecret: shown.Secret, CanTest: v.Notices != nil, Fresh: v.session.Fresh}
	var err error
	if page.Sessions, err = v.Humans.Sessions(ctx, v.owner()); err != nil {
		return err
	}
	if page.Tokens, err = v.Humans.APITokens(ctx, v.owner()); err != nil {
		return err
	}
	if page.Blocks, _, err = v.Friends.Blocks(ctx, v.owner(), "", listPage); err != nil {
		return err
	}
	if v.Notices != nil {
		if page.Channels, err = v.Notices.Status(ctx, v.owner()); err != nil {
			return err
		}
	}
	v.render(status, "settings", "Settings", "settings", page)
	return nil
}

func (v *visit) settingsAct() error {
	ctx, f := v.r.Context(), newForm(v.r.PostForm)
	switch v.r.PathValue("act") {
	case "profile":
		return v.settingsProfile(f)
	case "notifications":
		return v.settingsNotifications(f)
	case "test", "secret":
		return v.settingsSending(f, v.r.PathValue("act"))
	case "tokens":
		return v.settingsToken(f)
	case "delete-token":
		return v.settingsEnd(f, v.Humans.DeleteAPIToken, "deleted")
	case "end-session":
		return v.settingsEnd(f, v.Humans.EndSession, "session-out")
	case "unblock":
		if !v.session.Fresh {
			return v.confirm("/settings")
		}
		id, err := parseID(f.Get("id"))
		if err != nil {
			return err
		}
		err = v.Friends.Unblock(ctx, v.owner(), id)
		if refusal.CodeOf(err) == refusal.NotFound {
			return v.redirect("/settings")
		}
		return v.after(err, "/settings", "unblocked")
	}
	return errNoPage
}

func (v *visit) settingsProfile(f form) error {
	name := f.Get("name")
	_, err := v.Humans.Update(v.r.Context(), v.owner(), &name, nil, nil)
	return v.settingsSaved(f, err)
}

func (v *visit) settingsNotifications(f form) error {
	_, err := v.Humans.Update(v.r.Context(), v.owner(), nil, &human.Notifications{
		Email: f.Has("email", "yes"), Webhook: f.Get("webhook"), Digest: f.Get("digest"),
	}, nil)
	return v.settingsSaved(f, err)
}

// settingsSending sends a test, or makes the webhook's signing secret.
func (v *visit) settingsSending(f form, act string) error {
	if v.Notices == nil {
		return errNoPage
	}
	first, err := v.Humans.Once(v.r.Context(), v.owner(), f.Get("once"))
	if err != nil {
		return err
	}
	if !first {
		return v.redirect("/settings?done=again")
	}
	stored := v.storedSettings()
	if act == "secret" {
		secret, err := v.Notices.RotateSecret(v.r.Context(), v.owner())
		if err != nil {
			return v.settingsSaved(stored, err)
		}
		return v.showSettings(http.StatusOK, stored, once{Secret: secret})
	}
	if err := v.Notices.SendTest(v.r.Context(), v.owner()); err != nil {
		return v.settingsSaved(stored, err)
	}
	return v.redirect("/settings?done=sent")
}

// storedSettings is the page's form as it is stored.
func (v *visit) storedSettings() form {
	h := v.session.Human
	f := newForm(url.Values{"name": {h.Name}, "webhook": {h.Notifications.Webhook}, "digest": {h.Notifications.Digest}})
	if h.Notifications.Email {
		f.Values.Set("email", "yes")
	}
	return f
}

func (v *visit) settingsSaved(f form, err error) error {
	if err == nil {
		return v.redirect("/settings?done=saved")
	}
	if err := f.refused(err, nil); err != nil {
		return err
	}
	h := v.session.Human // the other form of the page keeps what is stored
	for name, value := range map[string]string{"name": h.Name, "webhook": h.Notifications.Webhook, "digest": h.Notifications.Digest} {
		if !f.known(name) {
			f.Values.Set(name, value)
		}
	}
	return v.showSettings(http.StatusUnprocessableEntity, f, once{})
}

func (v *visit) settingsToken(f form) error {
	ctx := v.r.Context()
	if !v.session.Fresh {
		return v.confirm("/settings?" + url.Values{"token_name": {f.Get("token_name")}}.Encode())
	}
	first, err := v.Humans.Once(ctx, v.owner(), f.Get("once"))
	if err != nil {
		return err
	}
	if !first {
		return v.redirect("/settings?done=again")
	}
	_, token, err := v.Humans.CreateAPIToken(ctx, v.owner(), f.Get("token_name"))
	if err != nil {
		if err := v.Humans.Forget(ctx, v.owner(), f.Get("once")); err != nil {
			return err
		}
		return v.settingsSaved(f, renamed(err, "name", "token_name"))
	}
	return v.showSettings(http.StatusOK, v.storedSettings(), once{Token: token})
}

// renamed returns the refusal with its field as the form calls it.
func renamed(err error, from, to string) error {
	if e := refusal.From(err); e.Field == from {
		c := *e
		c.Field = to
		return &c
	}
	return err
}

func (v *visit) settingsEnd(f form, end func(ctx context.Context, human, id uuid.UUID) error, done string) error {
	id, err := parseID(f.Get("id"))
	if err != nil {
		return err
	}
	err = end(v.r.Context(), v.owner(), id)
	if refusal.CodeOf(err) == refusal.NotFound {
		return v.redirect("/settings")
	}
	return v.after(err, "/settings", done)
}

// export hands the human what this instance holds of theirs, as JSON.
func (v *visit) export() error {
	ctx, h := v.r.Context(), v.session.Human
	out := map[string]any{
		"instance": v.PublicURL, "at": time.Now().UTC(),
		"human": map[string]any{"id": h.ID, "name": h.Name, "email": h.Email, "issuer": h.Issuer, "subject": h.Subject, "created_at": h.CreatedAt, "notifications": h.Notifications},
	}
	var err error
	if out["agents"], err = all(func(c string) (any, string, error) {
		l, n, err := v.Personas.Agents(ctx, h.ID, c, listPage)
		return l, n, err
	}); err != nil {
		return err
	}
	if out["personas"], err = all(func(c string) (any, string, error) {
		l, n, err := v.Personas.List(ctx, h.ID, c, listPage)
		return l, n, err
	}); err != nil {
		return err
	}
	if out["queues"], err = all(func(c string) (any, string, error) {
		l, n, err := v.Todos.Queues(ctx, h.ID, c, listPage)
		return l, n, err
	}); err != nil {
		return err
	}
	if out["friend_requests"], err = all(func(c string) (any, string, error) {
		l, n, err := v.Friends.Incoming(ctx, h.ID, "", c, listPage)
		return l, n, err
	}); err != nil {
		return err
	}
	if out["grants"], err = all(func(c string) (any, string, error) {
		l, n, err := v.Friends.Grants(ctx, h.ID, c, listPage)
		return l, n, err
	}); err != nil {
		return err
	}
	if out["activity"], err = all(func(c string) (any, string, error) {
		l, n, err := v.Activity.List(ctx, h.ID, activity.Filter{}, c, listPage)
		return l, n, err
	}); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Header().Set("Content-Disposition", `attachment; filename="switchboard.json"`)
	v.w.Header().Set("Cache-Control", "no-store")
	e := json.NewEncoder(v.w)
	e.SetIndent("", "  ")
	_ = e.Encode(out) // a reader that went away needs no answer
	return nil
}

// exportPages bounds each list of an export.
const exportPages = 200

func all(list func(cursor string) (any, string, error)) ([]any, error) {
	out, cursor := []any{}, ""
	for range exportPages {
		page, next, err := list(cursor)
		if err != nil {
			return nil, err
		}
		out = append(out, page)
		if next == "" {
			break
		}
		cursor = next
	}
	return out, nil
}
