package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/persona"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

type personasPage struct {
	Agents   []agentRow
	Personas []persona.Persona
	Form     form
	Start    start
	Next     string
}

type agentRow struct {
	persona.Agent
	Personas int
}

func (v *visit) personas() error { return v.showPersonas(http.StatusOK, newForm(nil)) }

func (v *visit) showPersonas(status int, f form) error {
	ctx := v.r.Context()
	page := personasPage{Form: f}
	agents, _, err := v.Personas.Agents(ctx, v.owner(), "", listPage)
	if err != nil {
		return err
	}
	if page.Personas, page.Next, err = v.Personas.List(ctx, v.owner(), v.r.URL.Query().Get("cursor"), listPage); err != nil {
		return err
	}
	for _, a := range agents {
		row := agentRow{Agent: a}
		for _, p := range page.Personas {
			if p.AgentID == a.ID {
				row.Personas++
			}
		}
		page.Agents = append(page.Agents, row)
	}
	if page.Start, err = v.start(ctx); err != nil {
		return err
	}
	v.render(status, "personas", "Personas", "personas", page)
	return nil
}

func (v *visit) agentCreate() error {
	f := newForm(v.r.PostForm)
	first, err := v.Humans.Once(v.r.Context(), v.owner(), f.Get("once"))
	if err != nil {
		return err
	}
	if !first {
		return v.redirect("/personas?done=again")
	}
	_, err = v.Personas.CreateAgent(v.r.Context(), v.owner(), f.Get("name"), f.Get("description"))
	if err == nil {
		return v.redirect("/personas?done=created")
	}
	if err := f.refused(err, nil); err != nil {
		return err
	}
	return v.showPersonas(http.StatusUnprocessableEntity, f)
}

func (v *visit) agentChange() error {
	id, err := v.id("id")
	if err != nil {
		return err
	}
	f := newForm(v.r.PostForm)
	if f.Get("do") == "delete" {
		err := v.Personas.DeleteAgent(v.r.Context(), v.owner(), id)
		switch refusal.CodeOf(err) {
		case "", refusal.NotFound:
			return v.redirect("/personas?done=deleted")
		case refusal.Conflict:
			f.Errors[""] = "This agent cannot be deleted: " + refusal.From(err).Message + "."
			return v.showPersonas(http.StatusConflict, f)
		}
		return err
	}
	name, description := f.Get("name"), f.Get("description")
	if _, err := v.Personas.UpdateAgent(v.r.Context(), v.owner(), id, &name, &description, nil); err != nil {
		if err := f.refused(err, nil); err != nil {
			return err
		}
		return v.showPersonas(http.StatusUnprocessableEntity, f)
	}
	return v.redirect("/personas?done=saved")
}

// personaPage is the form of a persona, and what others see of it.
type personaPage struct {
	P       *persona.Persona // nil while it is new
	Form    form
	Agents  []persona.Agent
	Queues  []string
	Offers  []offerRow
	Issuers []Issuer
	Skills  []persona.Skill
	Card    string // its URL
	Marked  []mark
}

// offerRow is one offer in the form. Its fields are named offer.<N>.<member>.
type offerRow struct {
	N      int
	Queue  string
	Verbs  []choiceRow
	Limits []limitRow
	Error  string
}

// Wrong reports whether one of its limits is.
func (o offerRow) Wrong() bool {
	return slices.ContainsFunc(o.Limits, func(l limitRow) bool { return l.Error != "" })
}

func (o offerRow) Field(name string) string { return fmt.Sprintf("offer.%d.%s", o.N, name) }

func (v *visit) personaNew() error {
	f := newForm(url.Values{"visibility": {"listed"}, "who": {"anyone"}, "once": {uuid.NewString()}})
	addOffer(&f, 0, scope.Offer{Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.ListCreated}})
	return v.showPersona(http.StatusOK, nil, f)
}

func (v *visit) persona() error {
	p, err := v.ownPersona()
	if err != nil {
		return err
	}
	return v.showPersona(http.StatusOK, &p, personaForm(p))
}

func (v *visit) ownPersona() (persona.Persona, error) {
	id, err := v.id("id")
	if err != nil {
		return persona.Persona{}, err
	}
	return v.Personas.Get(v.r.Context(), v.owner(), id)
}

func (v *visit) showPersona(status int, p *persona.Persona, f form) error {
	ctx := v.r.Context()
	page := personaPage{P: p, Form: f, Issuers: v.Issuers, Marked: marks(f)}
	var err error
	if page.Agents, _, err = v.Personas.Agents(ctx, v.owner(), "", listPage); err != nil {
		return err
	}
	queues, _, err := v.Todos.Queues(ctx, v.owner(), "", listPage)
	if err != nil {
		return err
	}
	for _, q := range queues {
		if q.Name != "inbox" {
			page.Queues = append(page.Queues, q.Name)
		}
	}
	for n := range offerCount(f) {
		page.Offers = append(page.Offers, readOfferRow(f, n))
	}
	title := "New persona"
	if p != nil {
		page.Skills, page.Card, title = p.Skills(), v.PublicURL+"/a2a/"+p.Slug+"/.well-known/agent-card.json", p.Name
	}
	v.render(status, "persona", title, "personas", page)
	return nil
}

const maxOfferRows = 32

func offerCount(f form) int {
	n, _ := strconv.Atoi(f.Get("offers"))
	return min(max(n, 0), maxOfferRows)
}

func readOfferRow(f form, n int) offerRow {
	row := offerRow{N: n, Error: f.Error(fmt.Sprintf("offer.%d", n))}
	row.Queue = f.Get(row.Field("queue"))
	for _, verb := range scope.Verbs() {
		row.Verbs = append(row.Verbs, choiceRow{Value: string(verb), Label: verbWords(verb), Granted: f.Has(row.Field("verbs"), string(verb))})
	}
	defaults := scope.Defaults()
	for _, l := range limits {
		name := row.Field(l.Name)
		row.Limits = append(row.Limits, limitRow{limit: l, Most: *l.of(&defaults), Value: f.Get(name), Error: f.Error(name)})
	}
	return row
}

// addOffer writes an offer into the form as row n.
func addOffer(f *form, n int, o scope.Offer) {
	row := offerRow{N: n}
	f.Values.Set(row.Field("queue"), o.Queue)
	for _, verb := range o.Verbs {
		f.Values.Add(row.Field("verbs"), string(verb))
	}
	for _, l := range limits {
		if v := *l.part(&o.Limits); v != nil {
			f.Values.Set(row.Field(l.Name), strconv.FormatInt(*v, 10))
		}
	}
	f.Values.Set("offers", strconv.Itoa(n+1))
}

func personaForm(p persona.Persona) form {
	f := newForm(url.Values{
		"agent_id": {p.AgentID.String()}, "slug": {p.Slug}, "name": {p.Name}, "description": {p.Description}, "prompt": {p.Prompt},
		"queues": slices.Clone(p.Queues), "visibility": {string(p.Visibility)}, "who": {"anyone"}, "version": {strconv.FormatInt(p.Version, 10)},
		"offers": {"0"},
	})
	switch {
	case p.WhoMayAsk.Nobody:
		f.Values.Set("who", "nobody")
	case p.WhoMayAsk.Issuers != nil:
		f.Values.Set("who", "issuers")
		f.Values["issuers"] = slices.Clone(p.WhoMayAsk.Issuers)
	}
	for n, o := range p.Offers {
		addOffer(&f, n, o)
	}
	return f
}

// reshapeOffers carries out the buttons that add and take away an offer, which
// work without a script too.
func reshapeOffers(f *form) bool {
	do := f.Get("do")
	n := offerCount(*f)
	switch {
	case do == "add-offer" && n < maxOfferRows:
		addOffer(f, n, scope.Offer{Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.ListCreated}})
		return true
	case strings.HasPrefix(do, "remove-offer-"):
		gone, err := strconv.Atoi(strings.TrimPrefix(do, "remove-offer-"))
		if err != nil || gone < 0 || gone >= n {
			return true
		}
		members := append([]string{"queue", "verbs"}, limitNames()...)
		for i := gone; i < n; i++ {
			for _, m := range members {
				here, after := offerRow{N: i}.Field(m), offerRow{N: i + 1}.Field(m)
				delete(f.Values, here)
				if values, ok := f.Values[after]; ok && i+1 < n {
					f.Values[here] = values
				}
			}
		}
		f.Values.Set("offers", strconv.Itoa(n-1))
		return true
	}
	return false
}

func (v *visit) personaCreate() error {
	f := newForm(v.r.PostForm)
	if reshapeOffers(&f) {
		return v.showPersona(http.StatusOK, nil, f)
	}
	typed, err := v.readPersona(&f, nil)
	if err != nil {
		return err
	}
	if f.Bad() {
		return v.showPersona(http.StatusUnprocessableEntity, nil, f)
	}
	ctx := v.r.Context()
	first, err := v.Humans.Once(ctx, v.owner(), f.Get("once"))
	if err != nil {
		return err
	}
	if !first {
		return v.redirect("/personas?done=again")
	}
	var p persona.Persona
	err = v.makeQueue(&f, typed)
	if err == nil && !f.Bad() {
		if typed.Agent != "" {
			p, err = v.Personas.CreateWithAgent(ctx, v.owner(), typed.Spec, typed.Agent)
		} else {
			p, err = v.Personas.Create(ctx, v.owner(), typed.Spec)
		}
	}
	if err == nil && !f.Bad() {
		return v.redirect("/personas/" + p.ID.String() + "?done=created")
	}
	if forgetErr := v.Humans.Forget(ctx, v.owner(), f.Get("once")); forgetErr != nil {
		return forgetErr
	}
	if err != nil {
		if err := f.refused(err, personaFields); err != nil {
			return err
		}
	}
	if refusal.CodeOf(err) == refusal.Conflict { // it has no field, and only a slug can be taken
		f.wrong("slug", f.Notice())
		delete(f.Errors, "")
	}
	return v.showPersona(http.StatusUnprocessableEntity, nil, f)
}

func (v *visit) personaChange() error {
	p, err := v.ownPersona()
	if err != nil {
		return err
	}
	f := newForm(v.r.PostForm)
	f.Values.Set("slug", p.Slug)
	f.Values.Set("agent_id", p.AgentID.String())
	if reshapeOffers(&f) {
		return v.showPersona(http.StatusOK, &p, f)
	}
	typed, err := v.readPersona(&f, &p)
	if err != nil {
		return err
	}
	version := f.integer("version")
	stale := version != nil && *version != p.Version
	if !f.Bad() && !stale {
		if err := v.makeQueue(&f, typed); err != nil {
			return err
		}
	}
	if !f.Bad() && !stale {
		offers, queues := typed.Offers, typed.Queues
		if offers == nil {
			offers = []scope.Offer{}
		}
		if queues == nil {
			queues = []string{}
		}
		_, err := v.Personas.Update(v.r.Context(), v.owner(), p.ID, persona.Patch{
			Name: &typed.Name, Description: &typed.Description, Prompt: &typed.Prompt, Queues: &queues, Offers: &offers,
			Visibility: &typed.Visibility, WhoMayAsk: &typed.WhoMayAsk, IfVersion: version,
		})
		if err == nil {
			return v.redirect("/personas/" + p.ID.String() + "?done=saved")
		}
		if err := f.refused(err, personaFields); err != nil {
			return err
		}
		stale = refusal.CodeOf(err) == refusal.PreconditionFailed
	}
	if stale {
		f.Errors[""] = "This persona was changed elsewhere since you opened it. What you typed is kept; save again to put it in place of the other change."
		now, err := v.ownPersona()
		if err != nil {
			return err
		}
		f.Values.Set("version", strconv.FormatInt(now.Version, 10))
	}
	return v.showPersona(http.StatusUnprocessableEntity, &p, f)
}

func (v *visit) personaDelete() error {
	p, err := v.ownPersona()
	if refusal.CodeOf(err) == refusal.NotFound {
		return v.redirect("/personas?done=deleted")
	}
	if err != nil {
		return err
	}
	err = v.Personas.Delete(v.r.Context(), v.owner(), p.ID)
	if refusal.CodeOf(err) == refusal.Conflict {
		f := personaForm(p)
		f.Errors[""] = "This persona cannot be deleted: " + refusal.From(err).Message + ". Turn it off instead."
		return v.showPersona(http.StatusConflict, &p, f)
	}
	if err != nil {
		return err
	}
	return v.redirect("/personas?done=deleted")
}
