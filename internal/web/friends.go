package web

import (
	"net/http"

	"switchboard/internal/activity"
	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

const listPage = 100

type friendsPage struct {
	In, Past           []friend.Grant // what others hold on mine
	Out, OutPast       []friend.Grant // what this person holds here
	Asked              []friend.Request
	Pending            int // requests that wait for me
	Resident, AnyAlive bool
	Next               string
}

func alive(g friend.Grant) bool {
	return g.State == friend.GrantActive || g.State == friend.GrantPaused
}

// friends shows both directions.
func (v *visit) friends() error {
	ctx, h := v.r.Context(), v.session.Human
	page := friendsPage{Resident: h.Resident}
	if h.Resident {
		grants, next, err := v.Friends.Grants(ctx, h.ID, v.r.URL.Query().Get("cursor"), listPage)
		if err != nil {
			return err
		}
		page.Next = next
		for _, g := range grants {
			if alive(g) {
				page.In = append(page.In, g)
				page.AnyAlive = page.AnyAlive || g.State == friend.GrantActive
			} else {
				page.Past = append(page.Past, g)
			}
		}
		pending, _, err := v.Friends.Incoming(ctx, h.ID, friend.Pending, "", listPage)
		if err != nil {
			return err
		}
		page.Pending = len(pending)
	}
	out, _, err := v.Friends.GrantsOut(ctx, h.Identity, "", listPage)
	if err != nil {
		return err
	}
	for _, g := range out {
		if alive(g) {
			page.Out = append(page.Out, g)
		} else {
			page.OutPast = append(page.OutPast, g)
		}
	}
	page.Asked, _, _, err = v.Friends.ListOwn(ctx, friend.Asker{Identity: h.Identity}, friend.AskerFilter{}, "", listPage)
	if err != nil {
		return err
	}
	v.render(http.StatusOK, "friends", "Friends", "friends", page)
	return nil
}

func (v *visit) friendsPauseAll() error {
	if _, err := v.Friends.PauseAll(v.r.Context(), v.owner()); err != nil {
		return err
	}
	return v.redirect("/friends?done=paused-all")
}

type grantPage struct {
	G         friend.Grant
	Mine      bool // direction in: this human granted it
	Editor    scopeEditor
	Form      form
	Used      *todo.Used
	Open      bar
	Hour      bar
	Holders   []holderRow
	Todos     []todo.Detail
	Events    []activity.Event
	Past      bool
	Permitted []permission
	Fresh     bool
}

// grant shows one grant to the human who gave it, or to the one who holds it.
func (v *visit) grant() error {
	page, err := v.loadGrant()
	if err != nil {
		return err
	}
	v.showGrant(http.StatusOK, page)
	return nil
}

func (v *visit) showGrant(status int, page grantPage) {
	v.render(status, "grant", "Friend", "friends", page)
}

func (v *visit) loadGrant() (grantPage, error) {
	ctx, h := v.r.Context(), v.session.Human
	id, err := v.id("grant")
	if err != nil {
		return grantPage{}, err
	}
	page := grantPage{Fresh: v.session.Fresh}
	err = errNoPage // a guest grants nothing
	if h.Resident {
		page.G, err = v.Friends.Grant(ctx, h.ID, id)
	}
	if refusal.CodeOf(err) == refusal.NotFound {
		if page.G, err = v.Friends.GrantOut(ctx, h.Identity, id); err != nil {
			return page, err
		}
		page.finish()
		return page, nil
	}
	if err != nil {
		return page, err
	}
	page.Mine = true
	page.finish()
	page.Editor = narrowEditor(page.G.Scope, page.G.ApprovedAt)
	page.Form = newForm(page.Editor.values())
	page.Editor.read(&page.Form)
	if err := v.loadUse(&page); err != nil {
		return page, err
	}
	return page, nil
}

func (p *grantPage) finish() {
	p.Past = !alive(p.G)
	p.Permitted = permissions(p.G.Scope)
}

// loadUse gathers what the friend did: limits, tokens, todos, activity.
func (v *visit) loadUse(page *grantPage) error {
	ctx, g := v.r.Context(), page.G
	if e, err := v.Endpoints.Get(ctx, v.owner(), g.EndpointID); err == nil && !page.Past {
		used, err := v.Todos.Used(ctx, endpoint.Caller{Endpoint: e, Until: e.ExpiresAt})
		if err == nil {
			page.Used = &used
			page.Open = newBar(used.Open, g.Scope.Limits.MaxOpen)
			page.Hour = newBar(used.ThisHour, g.Scope.Limits.PerHour)
		} else {
			v.Log.DebugContext(ctx, "use of a grant is not shown", "grant", g.ID, "error", err)
		}
	}
	var err error
	if !page.Past {
		holders, err := v.Endpoints.Holders(ctx, v.owner(), g.EndpointID)
		if err != nil {
			return err
		}
		page.Holders = holderRows(holders)
	}
	if page.Todos, _, err = v.Todos.List(ctx, v.owner(), todo.Filter{GrantID: g.ID}, "", 20); err != nil {
		return err
	}
	page.Events, _, err = v.Activity.List(ctx, v.owner(), activity.Filter{GrantID: g.ID}, "", 20)
	return err
}

// grantAct changes a grant. A change that is made already is shown as it is.
func (v *visit) grantAct() error {
	id, err := v.id("grant")
	if err != nil {
		return err
	}
	ctx, h := v.r.Context(), v.session.Human
	here := "/friends/" + id.String()
	act := v.r.PathValue("act")
	if act == "leave" {
		_, err := v.Friends.Leave(ctx, h.Identity, id)
		return v.after(err, here, "left")
	}
	if !h.Resident {
		return errNoPage
	}
	switch act {
	case "narrow":
		return v.grantNarrow(here)
	case "pause":
		_, err = v.Friends.Pause(ctx, h.ID, id)
		return v.after(err, here, "paused")
	case "resume":
		if !v.session.Fresh {
			return v.confirm(here)
		}
		_, err = v.Friends.Resume(ctx, h.ID, id)
		return v.after(err, here, "resumed")
	case "revoke":
		_, err = v.Friends.Revoke(ctx, h.ID, id, v.r.PostForm.Get("open_todos") == "finish")
		return v.after(err, here, "revoked")
	case "end-token":
		return v.endToken(here)
	}
	return errNoPage
}

// after leads on after a change. A conflict means that the change was made
// already, here or elsewhere: the page shows how things stand.
func (v *visit) after(err error, to, done string) error {
	switch refusal.CodeOf(err) {
	case "":
		return v.redirect(to + "?done=" + done)
	case refusal.Conflict:
		return v.redirect(to)
	}
	return err
}

func (v *visit) endToken(here string) error {
	page, err := v.loadGrant()
	if err != nil {
		return err
	}
	return v.endHolders(page.G.EndpointID, v.r.PostForm, here)
}

func (v *visit) grantNarrow(here string) error {
	page, err := v.loadGrant()
	if err != nil {
		return err
	}
	if !page.Mine {
		return errNoPage
	}
	page.Editor = narrowEditor(page.G.Scope, page.G.ApprovedAt)
	page.Form = newForm(v.r.PostForm)
	page.Editor.read(&page.Form)
	if !page.Form.Bad() {
		version := page.Form.integer("version")
		_, err = v.Friends.Narrow(v.r.Context(), v.owner(), page.G.ID, page.Editor.Asked, version)
		if err == nil {
			return v.redirect(here + "?done=narrowed")
		}
		if err := page.Form.refused(err, nil); err != nil {
			return err
		}
		page.Editor.refused(page.Form)
	}
	v.showGrant(http.StatusUnprocessableEntity, page)
	return nil
}

func (v *visit) requestWithdraw() error {
	id, err := v.id("id")
	if err != nil {
		return err
	}
	_, err = v.Friends.Withdraw(v.r.Context(), friend.Asker{Identity: v.session.Human.Identity}, id)
	return v.after(err, "/friends", "withdrawn")
}
