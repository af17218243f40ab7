package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/endpoint"
	"switchboard/internal/persona"
	"switchboard/internal/refusal"
)

// homeTools are the tools of a home endpoint, in their fixed order (specs/protocol.md section 5).
var homeTools = []string{
	"list_todos", "get_todo", "claim", "claim_next", "heartbeat", "complete", "fail", "release", "ask", "create",
	"discover", "friend_request", "friends", "whoami",
}

type endpointsPage struct {
	Home, Peer, Past []endpointRow
	Next             string
	Start            start
}

type endpointRow struct {
	endpoint.Endpoint
	Agent string
}

func (v *visit) endpoints() error {
	ctx := v.r.Context()
	list, next, err := v.Endpoints.List(ctx, v.owner(), v.r.URL.Query().Get("cursor"), listPage)
	if err != nil {
		return err
	}
	agents, err := v.agentNames()
	if err != nil {
		return err
	}
	page := endpointsPage{Next: next}
	for _, e := range list {
		row := endpointRow{e, agents[e.AgentID]}
		switch {
		case e.State != endpoint.Active && e.State != endpoint.Paused:
			page.Past = append(page.Past, row)
		case e.Kind == endpoint.Home:
			page.Home = append(page.Home, row)
		default:
			page.Peer = append(page.Peer, row)
		}
	}
	if page.Start, err = v.start(ctx); err != nil {
		return err
	}
	v.render(http.StatusOK, "endpoints", "Endpoints", "endpoints", page)
	return nil
}

func (v *visit) agentNames() (map[uuid.UUID]string, error) {
	agents, _, err := v.Personas.Agents(v.r.Context(), v.owner(), "", listPage)
	if err != nil {
		return nil, err
	}
	names := map[uuid.UUID]string{}
	for _, a := range agents {
		names[a.ID] = a.Name
	}
	return names, nil
}

type vendPage struct {
	Form     form
	Personas []persona.Persona
	Agents   map[uuid.UUID]string
	Queues   []string // that some persona works
	Tools    []string
	Fresh    bool
}

func (v *visit) endpointNew() error {
	q := v.r.URL.Query()
	f := newForm(url.Values{"expires_in_days": {"90"}, "tools": slices.Clone(homeTools), "once": {uuid.NewString()}, "persona_id": {q.Get("persona")}})
	if q.Has("once") || q.Has("queues") { // typed before a sign-in
		for name, values := range q {
			f.Values[name] = values
		}
	}
	return v.showVend(http.StatusOK, f)
}

func (v *visit) showVend(status int, f form) error {
	page := vendPage{Form: f, Tools: homeTools, Fresh: v.session.Fresh}
	var err error
	if page.Personas, _, err = v.Personas.List(v.r.Context(), v.owner(), "", listPage); err != nil {
		return err
	}
	if page.Agents, err = v.agentNames(); err != nil {
		return err
	}
	for _, p := range page.Personas {
		for _, q := range p.Queues {
			if !slices.Contains(page.Queues, q) {
				page.Queues = append(page.Queues, q)
			}
		}
	}
	slices.Sort(page.Queues)
	if f.Get("persona_id") == "" && len(page.Personas) == 1 {
		f.Values.Set("persona_id", page.Personas[0].ID.String())
	}
	if _, typed := f.Values["queues"]; !typed && status == http.StatusOK {
		f.Values["queues"] = page.Queues
	}
	v.render(status, "vend", "Vend an endpoint", "endpoints", page)
	return nil
}

// credentialPage shows what is shown once.
type credentialPage struct {
	E          endpoint.Endpoint
	URL        string
	Credential string
	Config     string // .mcp.json
	Rotated    bool
}

func (v *visit) endpointVend() error {
	f := newForm(v.r.PostForm)
	ctx := v.r.Context()
	personaID, err := uuid.Parse(f.Get("persona_id"))
	if err != nil {
		f.wrong("persona_id", "choose the persona that this worker serves")
	}
	days := f.integer("expires_in_days")
	tools := f.Values["tools"]
	if len(f.Values["queues"]) == 0 {
		f.wrong("queues", "tick at least one queue")
	}
	if len(tools) == 0 {
		f.wrong("tools", "tick at least one tool")
	}
	if len(tools) == len(homeTools) {
		tools = nil // all, and those that later releases add
	}
	if f.Bad() {
		return v.showVend(http.StatusUnprocessableEntity, f)
	}
	if !v.session.Fresh {
		kept := url.Values{}
		for _, name := range []string{"persona_id", "queues", "tools", "expires_in_days", "once"} {
			kept[name] = f.Values[name]
		}
		return v.confirm("/endpoints/new?" + kept.Encode())
	}
	p, err := v.Personas.Get(ctx, v.owner(), personaID)
	if err != nil {
		return err
	}
	first, err := v.Humans.Once(ctx, v.owner(), f.Get("once"))
	if err != nil {
		return err
	}
	if !first {
		return v.redirect("/endpoints?done=vended-again")
	}
	spec := endpoint.HomeSpec{AgentID: p.AgentID, PersonaID: p.ID, Queues: f.Values["queues"], Tools: tools}
	if days != nil {
		spec.ExpiresInDays = *days
	}
	e, credential, err := v.Endpoints.CreateHome(ctx, v.owner(), spec)
	if err != nil {
		if err := v.Humans.Forget(ctx, v.owner(), f.Get("once")); err != nil {
			return err
		}
		if err := f.refused(err, map[string]string{"verbs": "tools"}); err != nil {
			return err
		}
		return v.showVend(http.StatusUnprocessableEntity, f)
	}
	return v.showCredential(e, credential, false)
}

// showCredential answers the form itself, without a redirect, because nothing keeps the secret.
func (v *visit) showCredential(e endpoint.Endpoint, credential string, rotated bool) error {
	page := credentialPage{E: e, URL: v.PublicURL + "/mcp/" + e.ID.String(), Credential: credential, Rotated: rotated}
	page.Config = mcpConfig(page.URL, "Bearer "+credential)
	v.render(http.StatusOK, "credential", "Your credential", "endpoints", page)
	return nil
}

// mcpConfig is a ready .mcp.json.
func mcpConfig(address, authorization string) string {
	type server struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	// A buffer takes everything.
	_ = e.Encode(map[string]any{"mcpServers": map[string]server{
		"switchboard": {"http", address, map[string]string{"Authorization": authorization}},
	}})
	return strings.TrimSpace(b.String())
}

type endpointPage struct {
	E       endpoint.Endpoint
	Agent   string
	URL     string
	Config  string // with a placeholder for the credential
	Form    form
	Queues  []choiceRow
	Tools   []choiceRow
	Holders []holderRow
	Fresh   bool
	Past    bool
}

func (v *visit) ownEndpoint() (endpoint.Endpoint, error) {
	id, err := v.id("id")
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	return v.Endpoints.Get(v.r.Context(), v.owner(), id)
}

func (v *visit) endpoint() error {
	e, err := v.ownEndpoint()
	if err != nil {
		return err
	}
	if e.Kind == endpoint.Peer { // belongs to a grant, and is changed there
		return v.redirect("/friends/" + e.GrantID.String())
	}
	return v.showEndpoint(http.StatusOK, e, newForm(nil))
}

func (v *visit) showEndpoint(status int, e endpoint.Endpoint, f form) error {
	page := endpointPage{E: e, URL: v.PublicURL + "/mcp/" + e.ID.String(), Form: f, Fresh: v.session.Fresh}
	page.Config = mcpConfig(page.URL, "Bearer <the credential>")
	page.Past = e.State != endpoint.Active && e.State != endpoint.Paused
	agents, err := v.agentNames()
	if err != nil {
		return err
	}
	page.Agent = agents[e.AgentID]
	has := e.Tools
	if has == nil {
		has = homeTools
	}
	for _, q := range e.Scope.Queues {
		page.Queues = append(page.Queues, choiceRow{Value: q, Label: q, Granted: f.Values == nil || f.Has("queues", q)})
	}
	for _, t := range has {
		page.Tools = append(page.Tools, choiceRow{Value: t, Label: t, Granted: f.Values == nil || f.Has("tools", t)})
	}
	holders, err := v.Endpoints.Holders(v.r.Context(), v.owner(), e.ID)
	if err != nil {
		return err
	}
	page.Holders = holderRows(holders)
	v.render(status, "endpoint", "Endpoint", "endpoints", page)
	return nil
}

func (v *visit) endpointAct() error {
	e, err := v.ownEndpoint()
	if err != nil {
		return err
	}
	ctx, here := v.r.Context(), "/endpoints/"+e.ID.String()
	act := v.r.PathValue("act")
	if (act == "resume" || act == "rotate") && !v.session.Fresh {
		return v.confirm(here)
	}
	switch act {
	case "pause":
		_, err = v.Endpoints.PauseHome(ctx, v.owner(), e.ID)
		return v.after(err, here, "paused")
	case "resume":
		_, err = v.Endpoints.ResumeHome(ctx, v.owner(), e.ID)
		return v.after(err, here, "resumed")
	case "revoke":
		_, err = v.Endpoints.RevokeHome(ctx, v.owner(), e.ID)
		return v.after(err, here, "revoked")
	case "rotate":
		first, err := v.Humans.Once(ctx, v.owner(), v.r.PostForm.Get("once"))
		if err != nil {
			return err
		}
		if !first {
			return v.redirect(here + "?done=vended-again")
		}
		e, credential, err := v.Endpoints.RotateHome(ctx, v.owner(), e.ID)
		if err != nil {
			return v.after(err, here, "")
		}
		return v.showCredential(e, credential, true)
	case "narrow":
		return v.endpointNarrow(e, here)
	case "end-token":
		return v.endHolders(e.ID, v.r.PostForm, here)
	}
	return errNoPage
}

func (v *visit) endpointNarrow(e endpoint.Endpoint, here string) error {
	f := newForm(v.r.PostForm)
	if len(f.Values["queues"]) == 0 {
		f.wrong("queues", "leave at least one queue, or revoke")
	}
	tools := f.Values["tools"]
	if len(tools) == 0 {
		f.wrong("tools", "leave at least one tool, or revoke")
	}
	if e.Tools == nil && len(tools) == len(homeTools) {
		tools = nil
	}
	if !f.Bad() {
		_, err := v.Endpoints.NarrowHome(v.r.Context(), v.owner(), e.ID, f.Values["queues"], tools)
		if err == nil {
			return v.redirect(here + "?done=narrowed")
		}
		if err := f.refused(err, map[string]string{"verbs": "tools"}); err != nil {
			return err
		}
	}
	return v.showEndpoint(http.StatusUnprocessableEntity, e, f)
}

func parseID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, refusal.New(refusal.InvalidArgument, "the form is incomplete; load the page again")
	}
	return id, nil
}

// daysLeft is how long something lasts, rounded up.
func daysLeft(t time.Time) string {
	d := time.Until(t)
	if d <= 0 {
		return "0"
	}
	return strconv.Itoa(int((d + 24*time.Hour - 1) / (24 * time.Hour)))
}
