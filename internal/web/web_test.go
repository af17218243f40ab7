package web_test

import (
	"bufio"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
	"switchboard/internal/todo"
)

func TestLogin_GoesStraightThroughAndComesBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.get("/login?prompt=none&login_hint=bob&return_to=/queues")
	require.Equal(t, http.StatusFound, a.status)
	to, err := url.Parse(a.to())
	require.NoError(t, err)
	require.Equal(t, "none", to.Query().Get("prompt"))
	require.Equal(t, "bob", to.Query().Get("login_hint"))
	require.Equal(t, "S256", to.Query().Get("code_challenge_method"))

	a = b.signIn("bob", "/queues")
	require.Equal(t, http.StatusOK, a.status)
	has(t, a.body, "<h1>Queues</h1>")

	require.Equal(t, "/login?return_to=%2Finbox%3Fx%3D1", func() string { b.forget(); return b.get("/inbox?x=1").to() }())
	a = b.signIn("bob", "//evil.example/")
	has(t, a.body, "Inbox", "another site is never returned to")

	a = b.post("/logout", nil)
	require.Equal(t, "/?done=signed-out", a.to())
	require.Equal(t, http.StatusSeeOther, b.get("/inbox").status)
}

func TestLogin_AnswerOfAnotherBrowserIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	toIssuer := b.get("/login?prompt=none&login_hint=bob").to()
	back := b.get(toIssuer).to()
	b.forget()
	a := b.get(back)
	require.Equal(t, http.StatusUnauthorized, a.status)
	has(t, a.body, "started in another browser")
}

func TestGuest_SeesOwnFriendsOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	a := b.signIn("alice", "/")
	require.Equal(t, http.StatusForbidden, a.status)
	hasNot(t, a.body, "bob")

	alice := friend.Identity{}
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT ''::bytea`).Scan(&alice.Hash))
	b.guests = append(b.guests, identityOf(t, b, "alice"))
	a = b.signIn("alice", "/")
	require.Equal(t, http.StatusOK, a.status)
	has(t, a.body, "Take work from your agents")
	hasNot(t, a.body, "May hand you work")
	hasNot(t, a.body, "/inbox")
	for _, path := range []string{"/inbox", "/queues", "/personas", "/endpoints", "/activity", "/settings", "/inbox/requests/" + b.requests[0].ID.String(), "/friends/" + b.grants[0].ID.String()} {
		require.Equal(t, http.StatusNotFound, b.get(path).status, path)
	}
}

func TestPages_KeepThePolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	anonymous := b.get("/")
	b.signIn("bob", "/")
	pages := map[string]answer{"/": anonymous}
	for _, path := range []string{
		"/inbox", "/inbox/requests/" + b.requests[0].ID.String(), "/inbox/requests/" + b.requests[1].ID.String(), "/inbox/requests/" + b.requests[2].ID.String(),
		"/friends", "/friends/" + b.grants[0].ID.String(), "/friends/" + b.grants[1].ID.String(), "/friends/" + b.grants[2].ID.String(),
		"/personas", "/personas/new", "/personas/" + b.personas[0].ID.String(), "/endpoints", "/endpoints/new", "/endpoints/" + b.endpoints[0].ID.String(),
		"/queues", "/queues/reviews", "/queues/reviews?state=done", "/todos/" + b.todos[0].TodoID.String(), "/todos/" + b.todos[2].TodoID.String(), "/todos/" + b.todos[3].TodoID.String(),
		"/activity", "/activity?kind=grant.narrowed", "/settings",
	} {
		a := b.get(path)
		require.Equal(t, http.StatusOK, a.status, path)
		pages[path] = a
	}
	pages["/nothing"] = b.get("/nothing")
	require.Equal(t, http.StatusNotFound, pages["/nothing"].status)
	inline := regexp.MustCompile(`(?i)\sstyle=|\son[a-z]+="|<style|<script>|javascript:`)
	foreign := regexp.MustCompile(`(?:src|href|action)="(https?:)?//[^"]*"`)
	for path, a := range pages {
		require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'")
		require.NotContains(t, a.header.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "no-store", a.header.Get("Cache-Control"), path)
		require.Empty(t, inline.FindString(a.body), path)
		for _, link := range foreign.FindAllString(a.body, -1) {
			require.Contains(t, link, `href="`+b.server.URL, path)
		}
		hasNot(t, a.body, "\u202E", path)
		hasNot(t, a.body, "<script>alert", path)
		hasNot(t, a.body, "ZgotmplZ", path)
		require.Equal(t, 1, strings.Count(a.body, "<h1"), path)
	}
	hostile := html.UnescapeString(pages["/inbox/requests/"+b.requests[1].ID.String()].body)
	has(t, hostile, "admin⟦U+202E⟧gnp.exe")
	has(t, hostile, "Switchboard⟦U+200B⟧")
	style := regexp.MustCompile(`/assets/[0-9a-f]+/style.css`).FindString(anonymous.body)
	a := b.get(style)
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.header.Get("Cache-Control"), "immutable")
	require.Regexp(t, `url\("/assets/[0-9a-f]+/vendor/inter.woff2"\)`, a.body)
	require.Equal(t, http.StatusNotFound, b.get("/assets/vendor/htmx.LICENSE").status)
}

func TestPages_EmptyOnesNameTheNextStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.queues = []todo.Queue{{Name: "inbox"}}
	b.signIn("bob", "/")
	for path, next := range map[string]string{
		"/inbox": `href="/personas/new"`, "/personas": `href="/personas/new"`, "/endpoints": `href="/personas/new"`,
		"/endpoints/new": `href="/personas/new"`, "/queues": `action="/queues"`, "/friends": `href="/personas"`, "/activity": "kept here for ever",
	} {
		has(t, b.get(path).body, next, path)
	}
}

// approveForm is the form as the page shows it, everything granted.
func approveForm() url.Values {
	return url.Values{
		"offer_version": {"3"}, "queues": {"reviews"}, "verbs": {"create_for", "todo_status", "list_created", "cancel_todo"},
		"max_open": {"20"}, "per_hour": {"60"}, "max_payload_bytes": {"65536"}, "max_priority": {"5"}, "max_delay_days": {"7"}, "expires_in_days": {"90"},
	}
}

func TestApproval_SaysWhoWhyWhat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	body := b.get("/inbox/requests/" + b.requests[0].ID.String()).body
	for _, want := range []string{
		"alice@example.com", "Development", "release-bot", "not verified", "Hand you pull requests that touch billing",
		"may add up to <b>60 todos an hour</b> to <b>reviews</b>, with at most <b>20 open</b> at once", "64 KiB", "90 days",
		`name="max_open" type="number" inputmode="numeric" min="0" max="20" value="20"`, `name="offer_version" value="3"`,
		"<code>whoami</code>", "never fetched",
	} {
		has(t, body, want)
	}
	hasNot(t, body, "may answer", "what was not asked is not there")
	require.Regexp(t, `(?s)Per|Todos an hour.*>60<.*>120<`, body, "requested beside offered")
	again := b.get("/inbox/requests/" + b.requests[1].ID.String()).body
	has(t, again, "Asked before")
}

func TestApproval_GrantsWhatTheFormSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	here := "/inbox/requests/" + b.requests[0].ID.String()
	f := approveForm()
	f["verbs"] = []string{"create_for", "todo_status"}
	f.Set("max_open", "3")
	f.Set("expires_in_days", "30")
	f.Set("note", "Welcome.")

	preview := b.post(here+"/preview", f, "HX-Request", "true")
	require.Equal(t, http.StatusOK, preview.status)
	has(t, preview.body, "<b>3 open</b>")
	has(t, preview.body, "30 days")
	hasNot(t, preview.body, "<html")
	hasNot(t, preview.body, "list_created")

	a := b.post(here+"/approve", f)
	require.Equal(t, http.StatusSeeOther, a.status)
	require.Len(t, b.approvals, 1)
	got := b.approvals[0]
	require.Equal(t, []scope.Verb{scope.CreateFor, scope.TodoStatus}, got.Scope.Verbs)
	require.EqualValues(t, 3, *got.Scope.Limits.MaxOpen)
	require.EqualValues(t, 30, *got.ExpiresInDays)
	require.EqualValues(t, 3, *got.OfferVersion)
	require.Equal(t, "Welcome.", got.Note)

	again := b.post(here+"/approve", f)
	require.Equal(t, a.to(), again.to(), "a second click leads to the same grant")
	require.Len(t, b.approvals, 1)
	require.Equal(t, a.to(), b.post(here+"/decline", nil).to(), "a late decline shows the decision")
}

func TestApproval_RefusesBesideTheField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	here := "/inbox/requests/" + b.requests[0].ID.String() + "/approve"
	b.requests[0].Offered[0].Limits.PerHour = ref[int64](30) // fewer than the 60 that were asked
	for field, value := range map[string]string{"max_open": "21", "per_hour": "31", "max_payload_bytes": "-1", "expires_in_days": "0", "max_priority": "six"} {
		f := approveForm()
		f.Set(field, value)
		f.Set("note", "Typed & kept")
		a := b.post(here, f)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, field)
		says := regexp.MustCompile(`id="` + field + `-wrong">([^<]+)<`).FindStringSubmatch(a.body)
		require.NotNil(t, says, field)
		require.Equal(t, map[string]string{
			"max_open": "At most 20, which is all that was asked.", "per_hour": "At most 30, which is all that you offer.", "max_payload_bytes": "At least 0.",
			"expires_in_days": "At least 1.", "max_priority": "A whole number is expected.",
		}[field], says[1])
		has(t, a.body, `value="`+value+`"`, "what was typed is kept")
		has(t, a.body, "Typed &amp; kept")
	}
	f := approveForm()
	f.Set("per_hour", "30")
	// What only the packages behind the page know stands beside the field as well.
	b.refuse = refusal.New(refusal.Conflict, "the offer changed").Because(refusal.Invalid("scope.limits.per_hour", "limits.per_hour is wider than what this persona offers, which is at most 12"))
	has(t, b.post(here, f).body, `id="per_hour-wrong">Limits.per_hour is wider than what this persona offers, which is at most 12.<`)
	f.Del("queues")
	has(t, b.post(here, f).body, "Leave at least one queue")
	f = approveForm()
	f["queues"] = []string{"reviews", "secrets"}
	f["verbs"] = []string{"create_for", "answer"}
	f.Set("per_hour", "30")
	require.Equal(t, http.StatusSeeOther, b.post(here, f).status)
	require.Equal(t, []string{"reviews"}, b.approvals[0].Scope.Queues, "what was not asked cannot be granted")
	require.Equal(t, []scope.Verb{scope.CreateFor}, b.approvals[0].Scope.Verbs)
}

func TestApproval_IsPreviewedWithoutAScript(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	here := "/inbox/requests/" + b.requests[0].ID.String()
	page := b.get(here).body
	has(t, page, `formaction="`+here+`/preview#outcome" formnovalidate>Show what this comes to<`)
	require.Less(t, strings.Index(page, "data-preview-only"), strings.Index(page, `button primary" form="approve"`), "Enter presses the first button, which must not approve")

	f := approveForm()
	f["verbs"] = []string{"create_for"}
	f.Set("max_open", "2")
	f.Set("note", strings.Repeat("Long. ", 300)) // too long for an address
	a := b.post(here+"/preview", f)
	require.Equal(t, http.StatusOK, a.status)
	has(t, a.body, "Nothing is decided yet")
	has(t, a.body, "with at most <b>2 open</b> at once")
	hasNot(t, a.body, "<code>cancel_todo</code></li>", "the tools are those of the choice")
	has(t, a.body, `name="max_open" type="number" inputmode="numeric" min="0" max="20" value="2"`)
	has(t, a.body, f.Get("note"))
	f.Set("max_open", "21")
	a = b.post(here+"/preview", f)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	has(t, a.body, `id="max_open-wrong">At most 20, which is all that was asked.<`)
	has(t, a.body, `<li><a href="#l-max_open">Open at once</a>: At most 20, which is all that was asked.</li>`)
	part := b.post(here+"/preview", f, "HX-Request", "true").body
	has(t, part, `id="max_open-wrong">At most 20`, "a script gets what to put beside the field")
	has(t, part, `id="per_hour-wrong" hidden>`)
	f.Set("offer_version", "2")
	require.Equal(t, http.StatusConflict, b.post(here+"/preview", f).status)
	require.Equal(t, here, b.get(here+"/preview").to())
	require.Empty(t, b.approvals)
	require.Empty(t, b.declines)
	b.requests[0].State, b.requests[0].GrantID = friend.Approved, b.grants[0].ID
	require.Equal(t, "/friends/"+b.grants[0].ID.String()+"?done=approved", b.post(here+"/preview", f).to())
}

func TestApproval_IsShownAgainWhenTheOfferChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	here := "/inbox/requests/" + b.requests[0].ID.String() + "/approve"
	b.requests[0].OfferVersion = 4
	b.requests[0].Offered = []scope.Offer{{Queue: "reviews", Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Partial{MaxOpen: ref[int64](5)}}}
	f := approveForm()
	a := b.post(here, f)
	require.Equal(t, http.StatusConflict, a.status)
	has(t, a.body, "The offer changed since you saw this page")
	has(t, a.body, `name="offer_version" value="4"`)
	has(t, a.body, "not offered any more")
	require.Empty(t, b.approvals)

	// The same when it changes between looking and granting.
	f.Set("offer_version", "4")
	f.Set("max_open", "5")
	f["verbs"] = []string{"create_for", "todo_status"}
	b.refuse = refusal.New(refusal.Conflict, "the offer changed")
	require.Equal(t, http.StatusUnprocessableEntity, b.post(here, f).status)
	require.Equal(t, http.StatusSeeOther, b.post(here, f).status)
}

func TestApproval_NeedsAFreshSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	_, err := b.pool.Exec(t.Context(), `UPDATE session SET auth_time = clock_timestamp() - interval '13 hours'`)
	require.NoError(t, err)
	here := "/inbox/requests/" + b.requests[0].ID.String()
	f := approveForm()
	f.Set("max_open", "4")
	f.Set("note", "Welcome.")
	a := b.post(here+"/approve", f)
	require.Equal(t, http.StatusOK, a.status, "a page: browsers hold redirects of forms to form-action")
	require.Empty(t, b.approvals)
	_, to, _ := strings.Cut(a.header.Get("Refresh"), "url=")
	q, err := url.Parse(to)
	require.NoError(t, err)
	require.Equal(t, "login", q.Query().Get("prompt"))
	back := q.Query().Get("return_to")
	require.Equal(t, back, human.LocalPath(back))
	page := b.signIn("bob", back)
	require.Equal(t, http.StatusOK, page.status)
	has(t, page.body, `value="4"`)
	has(t, page.body, "Welcome.")
	require.Equal(t, http.StatusSeeOther, b.post(here+"/approve", f).status)
	for _, act := range []string{"pause", "revoke"} {
		_, err := b.pool.Exec(t.Context(), `UPDATE session SET auth_time = clock_timestamp() - interval '13 hours'`)
		require.NoError(t, err)
		require.Equal(t, http.StatusSeeOther, b.post("/friends/"+b.grants[0].ID.String()+"/"+act, nil).status, "taking back needs none")
	}
	has(t, b.post("/friends/"+b.grants[1].ID.String()+"/resume", nil).body, "Confirm it is you")
}

func TestDecline_WithNoteBlockAndCoolDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	here := "/inbox/requests/" + b.requests[0].ID.String() + "/decline"
	a := b.post(here, url.Values{"decline_note": {"Not now."}, "may_ask_again": {"yes"}, "block": {"yes"}})
	require.Equal(t, "/inbox?done=blocked", a.to())
	require.Equal(t, "Not now.", b.declines[0].Note)
	require.True(t, *b.declines[0].MayAskAgain)
	require.True(t, b.declines[0].Block)
	require.Equal(t, "/inbox/requests/"+b.requests[0].ID.String(), b.post(here, nil).to())
	require.Len(t, b.declines, 1)
	has(t, b.get("/inbox?done=blocked").body, "Declined and blocked")
}

func TestForms_NeedTheirSessionAndOrigin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	here := "/friends/" + b.grants[0].ID.String() + "/revoke"
	require.Equal(t, http.StatusForbidden, b.do(http.MethodPost, here, url.Values{}).status, "no token")
	require.Equal(t, http.StatusForbidden, b.post(here, nil, "Origin", "https://evil.example").status)
	require.Equal(t, http.StatusForbidden, b.post(here, nil, "Sec-Fetch-Site", "cross-site").status)
	require.Equal(t, friend.GrantActive, b.grants[0].State)
	require.Equal(t, here[:len(here)-7]+"?done=revoked", b.post(here, nil).to())
	require.Equal(t, here[:len(here)-7], b.post(here, nil).to(), "twice is no error")
	require.Equal(t, http.StatusRequestEntityTooLarge, b.post(here, url.Values{"x": {strings.Repeat("x", 300<<10)}}).status)
}

func TestGrant_Narrow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	here := "/friends/" + b.grants[0].ID.String()
	body := b.get(here).body
	has(t, body, "7 of 20")
	has(t, body, "51 of 60")
	f := approveForm()
	f.Set("version", "4")
	f.Set("per_hour", "61")
	a := b.post(here+"/narrow", f)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	has(t, a.body, `id="per_hour-wrong"`)
	f.Set("per_hour", "10")
	b.refuse = refusal.New(refusal.PreconditionFailed, "the grant changed since it was read")
	a = b.post(here+"/narrow", f)
	has(t, a.body, "The grant changed since it was read.")
	require.Equal(t, here+"?done=narrowed", b.post(here+"/narrow", f).to())
	require.EqualValues(t, 10, *b.narrowed[0].Limits.PerHour)
}

func TestPersona_FirstOneIsOneForm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.queues = []todo.Queue{{Name: "inbox"}}
	b.signIn("bob", "/")
	once := uuid.NewString()
	f := url.Values{
		"once": {once}, "new_agent": {"laptop"}, "slug": {"reviewer"}, "name": {"Reviewer"}, "description": {"Reviews."}, "new_queue": {"reviews"},
		"visibility": {"listed"}, "who": {"anyone"}, "offers": {"1"}, "offer.0.verbs": {"create_for", "todo_status"}, "offer.0.max_open": {"9"}, "do": {"save"},
	}
	clone := func() url.Values {
		c := url.Values{}
		for k, v := range f {
			c[k] = append([]string{}, v...)
		}
		return c
	}
	more := clone()
	more.Set("do", "add-offer")
	a := b.post("/personas/new", more)
	require.Equal(t, http.StatusOK, a.status)
	has(t, a.body, `name="offer.1.queue"`)
	has(t, a.body, `value="Reviewer"`, "buttons that reshape the form keep what was typed")
	less := clone()
	less.Set("do", "remove-offer-0")
	hasNot(t, b.post("/personas/new", less).body, `name="offer.0.queue"`)

	b.refuse = refusal.New(refusal.Conflict, "the slug reviewer is taken")
	a = b.post("/personas/new", clone())
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	has(t, a.body, `id="slug-wrong"`)
	has(t, a.body, `value="laptop"`, "what is to be made along is still typed")
	require.Empty(t, b.agents, "nothing is left of a refused form")
	a = b.post("/personas/new", clone())
	require.Equal(t, http.StatusSeeOther, a.status, "a refused form can be sent again")
	require.Len(t, b.personas, 1)
	require.Equal(t, b.agents[0].ID, b.personas[0].AgentID)
	require.Equal(t, []string{"reviews"}, b.personas[0].Queues)
	require.EqualValues(t, 9, *b.personas[0].Offers[0].Limits.MaxOpen)
	require.Nil(t, b.personas[0].Offers[0].Limits.PerHour, "an empty limit is the server's default")
	require.Equal(t, "/personas?done=again", b.post("/personas/new", clone()).to())
	require.Len(t, b.personas, 1)
}

func TestVend_ShowsTheCredentialOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	f := url.Values{"once": {uuid.NewString()}, "persona_id": {b.personas[0].ID.String()}, "queues": {"reviews"}, "tools": {"claim_next", "complete"}, "expires_in_days": {"30"}}
	bad := url.Values{"once": f["once"], "tools": {"claim_next"}}
	a := b.post("/endpoints/new", bad)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	has(t, a.body, `id="queues-wrong"`)
	a = b.post("/endpoints/new", f)
	require.Equal(t, http.StatusOK, a.status)
	has(t, a.body, "sbe_7fJ2kQ9xW3mN8vB4tR6yL1pZ5cD0gHs2aE")
	has(t, a.body, "mcpServers")
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Equal(t, "/endpoints?done=vended-again", b.post("/endpoints/new", f).to())
	require.Equal(t, 1, b.vended)
}

func TestSettings_TokenIsShownOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	f := url.Values{"once": {uuid.NewString()}, "token_name": {"laptop"}}
	a := b.post("/settings/tokens", f)
	require.Regexp(t, `sba_[A-Za-z0-9_-]{43}`, a.body)
	require.Equal(t, "/settings?done=again", b.post("/settings/tokens", f).to())
	page := b.get("/settings").body
	hasNot(t, page, "sba_")
	has(t, page, "laptop")
	a = b.post("/settings/notifications", url.Values{"webhook": {"ftp://x"}, "email": {"yes"}})
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	has(t, a.body, `id="webhook-wrong"`)
	has(t, a.body, `value="ftp://x"`)
	has(t, b.get("/settings/export").body, `"friend_requests"`)
}

func TestTodo_NewOneIsMadeOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	f := url.Values{"once": {uuid.NewString()}, "title": {""}}
	has(t, b.post("/queues/reviews/todos", f).body, `id="title-wrong"`)
	f.Set("title", "Look at this")
	require.Contains(t, b.post("/queues/reviews/todos", f).to(), "done=created")
	require.Contains(t, b.post("/queues/reviews/todos", f).to(), "done=again")
	require.Len(t, b.created, 1)
	require.Equal(t, http.StatusNotFound, b.get("/queues/nothing").status)
}

func TestQueue_DayIsCountedAndSaysWhenItIsNotWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	body := b.get("/queues/reviews").body
	require.Regexp(t, `[1-9]\d* todos made, [1-9]\d* finished`, body)
	hasNot(t, body, "there were more")
	b.partial = true
	body = b.get("/queues/reviews").body
	has(t, body, "5120 todos made, 4880 finished")
	has(t, body, "counted from your newest 10\u202f000 todos; there were more")
}

func TestEvents_TellThatTheInboxChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.server.URL+"/events?of=inbox", nil)
	require.NoError(t, err)
	res, err := b.client.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	lines := bufio.NewScanner(res.Body)
	require.True(t, lines.Scan())
	require.Equal(t, "retry: 5000", lines.Text())
	b.mu.Lock()
	b.items = b.items[:2]
	b.mu.Unlock()
	for lines.Scan() && lines.Text() != "event: changed" {
		continue
	}
	require.True(t, lines.Scan())
	require.Equal(t, "data: 2", lines.Text())
	// The part that the page then asks for is the same as in the page.
	hasNot(t, b.get("/inbox", "HX-Request", "true").body, "<html")

	require.Equal(t, "/settings", b.post("/settings/end-session", url.Values{"id": {uuid.NewString()}}).to())
	_, err = b.pool.Exec(t.Context(), `DELETE FROM session_token`)
	require.NoError(t, err)
	for lines.Scan() { // ends by itself when the session has ended
		continue
	}
	require.NoError(t, lines.Err())
}

// identityOf computes what sign-in would: the hash of issuer and subject.
func identityOf(t *testing.T, b *bundle, person string) []byte {
	t.Helper()
	return personIdentity(t, b.issuer, person)
}

// has is require.Contains without the whole page in the message.
func has(t *testing.T, body, want string, why ...any) {
	t.Helper()
	if !strings.Contains(body, want) {
		require.Fail(t, "missing on the page", "%q %v", want, why)
	}
}

func hasNot(t *testing.T, body, unwanted string, why ...any) {
	t.Helper()
	if strings.Contains(body, unwanted) {
		require.Fail(t, "on the page", "%q %v", unwanted, why)
	}
}

// TestPages_SpellStatesAsTheContractDoes: what a page says is what a filter takes.
func TestPages_SpellStatesAsTheContractDoes(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"templates/*.html", "templates/*/*.html", "assets/app.js", "*.go", "../notify/*.tmpl"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NotContains(t, strings.ToLower(string(text)), "cancel"+"led", file)
		}
	}
}
