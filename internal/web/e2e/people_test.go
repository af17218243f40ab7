//go:build e2e

package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"switchboard/internal/scope"
)

// TestPeople_FirstRunToFinishedWork is the whole life of the humans' side, with
// a script and on a desk: from an empty instance to work that a friend handed over.
func TestPeople_FirstRunToFinishedWork(t *testing.T) {
	w := newWorld(t)
	bob := w.browser(t, "desk", deskW, deskH, true)
	bob.watch()
	bob.open("/")
	bob.sees("Let somebody else’s agent", "Sign in with Example People")
	bob.shot("landing")
	bob.signIn("bob", "/inbox")
	bob.sees("Nothing waits for you yet", "Publish a persona", "Give your worker its endpoint")
	bob.shot("first-run")

	k := publish(t, bob, w)
	for path, name := range map[string]string{"/personas": "personas", "/endpoints": "endpoints", "/queues": "queues"} {
		bob.open(path)
		bob.shot(name)
	}

	// Notifications: what is to come shall reach bob.
	bob.open("/settings")
	require.True(t, value[bool](bob, `document.querySelector('#email').checked`), "on from the start, for a verified address")
	bob.fill("#webhook", w.hooks.url)
	bob.do(clickForm("/settings/notifications"))
	bob.sees("Saved.")
	bob.do(clickForm("/settings/test"))
	bob.sees("A test notification is on its way.")
	within(t, w.mails.arrived, func(m string) bool { return strings.Contains(m, "To: ") && strings.Contains(m, "bob@example.com") })
	got := within(t, w.hooks.arrived, func(hook) bool { return true })
	require.NotEmpty(t, got.header.Get("Webhook-Id"))
	require.NotEmpty(t, got.header.Get("Webhook-Signature"))
	bob.shot("settings")

	// A request arrives while the inbox is open, and shows itself.
	bob.open("/inbox")
	bob.sees("Nothing waits for you yet")
	alice := w.agent(t, "alice")
	r := alice.ask(w, "reviewer", "release-bot", "Hand you pull requests that touch billing for review.", scope.Asked{Queues: []string{"reviews"}})
	bob.sees("1 approval waiting", "alice@example.com", "Hand you pull requests")
	require.Equal(t, "1", value[string](bob, `document.querySelector('[data-waiting-number]').textContent`))
	bob.shot("inbox")
	mail := within(t, w.mails.arrived, func(m string) bool { return strings.Contains(m, "/inbox/requests/") })
	require.NotRegexp(t, `(?i)href="[^"]*approve`, mail, "no link approves")
	within(t, w.hooks.arrived, func(h hook) bool { return strings.Contains(h.body, "/inbox/requests/") })

	// Narrowing says at once what it comes to.
	bob.click(".card.ask .cover")
	bob.sees("alice@example.com asks to be a friend of reviewer", "60 todos an hour", "20 open", "First request from this person")
	bob.shot("request")
	bob.fill("#l-max_open", "3")
	bob.click("#v-cancel_todo")
	bob.sees("with at most 3 open at once", "narrower than asked")
	bob.until("a sentence less", `!document.querySelector('#outcome').textContent.includes('cancel')`)
	bob.fill("#note", "Welcome.")
	bob.shot("request-narrowed")
	bob.click(".decide-bar .primary")
	bob.sees("Approved.", "with at most 3 open at once")
	bob.shot("grant-new")

	// The friend hands work over, the worker takes it, asks, and finishes.
	e := alice.endpoint(r)
	tools, err := e.Tools(t.Context())
	require.NoError(t, err)
	require.NotContains(t, tools, "cancel_todo")
	made, err := e.Call(t.Context(), "create_for", map[string]any{"queue": "reviews", "title": "Review PR 7", "idempotency_key": "pr-7", "body": "It touches the billing path."})
	require.NoError(t, err)
	require.False(t, made.IsError, made.Text)
	bob.open("/queues/reviews")
	bob.sees("Review PR 7", "alice@example.com")
	var claimed struct {
		Todos []struct {
			TodoID     string `json:"todo_id"`
			LeaseToken string `json:"lease_token"`
		} `json:"todos"`
	}
	k.call("claim_next", map[string]any{"queues": []string{"reviews"}}, &claimed)
	require.Len(t, claimed.Todos, 1)
	held := claimed.Todos[0]
	k.call("heartbeat", map[string]any{"todo_id": held.TodoID, "lease_token": held.LeaseToken, "progress": map[string]any{"percent": 40, "note": "Reading the migration"}}, nil)
	bob.sees("40 %") // the board is live
	bob.shot("queue")
	bob.click(".ticket")
	bob.sees("Reading the migration", "Attempt 1", "under way")
	bob.shot("todo-leased")
	k.call("ask", map[string]any{"todo_id": held.TodoID, "lease_token": held.LeaseToken, "question": "Which of the two indexes may go?"}, nil)
	bob.sees("needs an answer", "Which of the two indexes may go?")
	bob.shot("todo-asks")
	_, err = e.Call(t.Context(), "answer", map[string]any{"todo_id": held.TodoID, "text": "The older one."})
	require.NoError(t, err)
	k.call("claim_next", map[string]any{"queues": []string{"reviews"}}, &claimed)
	held = claimed.Todos[0]
	k.call("complete", map[string]any{"todo_id": held.TodoID, "lease_token": held.LeaseToken, "result": map[string]any{"verdict": "approve"}}, nil)
	bob.sees("done", "verdict")
	bob.shot("todo-done")

	// What the friend did, and taking it back.
	bob.open("/friends")
	bob.sees("alice@example.com")
	bob.shot("friends")
	bob.click(".line .cover")
	bob.sees("Review PR 7", "Added this hour", "1 of 60", "Clients with a token", "Activity")
	bob.shot("grant")
	bob.button("Pause")
	bob.sees("Paused.")
	_, err = e.Call(t.Context(), "whoami", nil)
	require.Error(t, err, "a paused grant answers nothing")
	bob.button("Resume")
	bob.sees("Resumed, exactly as it was.")
	bob.button("Revoke…")
	bob.do(clickForm("/revoke"))
	bob.sees("Revoked.", "revoked")
	bob.shot("grant-revoked")
	_, err = e.Call(t.Context(), "whoami", nil)
	require.Error(t, err)

	// Decline and block.
	carol := w.agent(t, "carol")
	asked := carol.ask(w, "reviewer", "mailer", "I send many, many things.", scope.Asked{Queues: []string{"reviews"}})
	bob.open("/inbox")
	bob.click(".card.ask .cover")
	bob.fill("#decline_note", "Not now.")
	bob.click("#block")
	bob.shot("request-declining")
	bob.do(clickForm("/decline"))
	bob.sees("Declined and blocked.")
	require.NoError(t, carol.q.Update(t.Context(), carol.store, asked))
	require.Equal(t, "Not now.", asked.Note)
	bob.open("/settings")
	bob.sees("carol@example.com")
	bob.open("/activity")
	bob.sees("A friend request arrived", "You approved a friend request", "You revoked a grant")
	bob.shot("activity")
	require.Empty(t, bob.strangers(w.issuer), "pages load from one origin")
}

// publish makes bob's persona in one form and vends its worker's endpoint.
func publish(t *testing.T, bob *browser, w *world) worker {
	t.Helper()
	bob.open("/personas/new")
	bob.fill("#new_agent", "laptop")
	bob.fill("#slug", "reviewer")
	bob.fill("#name", "Reviewer")
	bob.fill("#description", "Reviews pull requests for correctness.")
	bob.fill("#new_queue", "reviews")
	bob.click(`[id="offer.0.answer"]`)
	bob.click(`[id="offer.0.cancel_todo"]`)
	bob.shot("persona-new")
	bob.button("Publish")
	bob.sees("Created.", "As others see it", "listed")
	bob.shot("persona")
	bob.button("Vend an endpoint for its worker")
	bob.sees("Persona that the worker serves")
	bob.shot("vend")
	bob.do(clickForm("/endpoints/new"))
	bob.sees("This is the only time that you see the credential")
	bob.shot("credential")
	text := bob.text()
	credential := regexp.MustCompile(`sbe_[A-Za-z0-9_-]+`).FindString(text)
	require.NotEmpty(t, credential)
	address := regexp.MustCompile(regexp.QuoteMeta(w.url) + `/mcp/[0-9a-f-]{36}`).FindString(text)
	require.NotEmpty(t, address)
	bob.button("I have kept it")
	bob.sees("laptop as reviewer")
	bob.hasNot(credential)
	bob.shot("endpoint")
	return worker{t, address, credential}
}

// TestPeople_DecideOnAPhone: at most two clicks from an arriving request to the
// grant, and no scrolling, for one that needs no narrowing; with and without a script.
func TestPeople_DecideOnAPhone(t *testing.T) {
	for name, script := range map[string]bool{"phone": true, "phone-noscript": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			bob := w.browser(t, name, phoneW, phoneH, script)
			bob.signIn("bob", "/")
			publish(t, bob, w)
			r := w.agent(t, "alice").ask(w, "reviewer", "release-bot", "Hand you pull requests that touch billing for review. We release on Tuesdays, so expect a handful on Mondays and next to nothing in between.",
				scope.Asked{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus, scope.ListCreated}})
			bob.open("/inbox")
			bob.sees("1 approval waiting")
			bob.shot("inbox")
			if script {
				bob.inView(".card.ask .cover", "the request is seen without scrolling")
			}
			bob.click(".card.ask .cover") // one
			bob.sees("asks to be a friend of")
			bob.shot("request")
			if script {
				bob.inView(".decide-bar .primary", "Approve is seen without scrolling")
				require.True(t, value[bool](bob, "scrollY === 0"))
				require.True(t, value[bool](bob, `document.documentElement.scrollWidth <= innerWidth`), "nothing sticks out")
				require.True(t, value[bool](bob, `[...document.querySelectorAll('.can li')].every(e => e.getBoundingClientRect().bottom < document.querySelector('.decide-bar').getBoundingClientRect().top)`),
					"what it may do is read without scrolling")
			}
			bob.click(".decide-bar .primary") // two
			bob.sees("Approved.", "release-bot")
			bob.shot("grant")

			// Without a script the same forms narrow and refuse.
			bob.button("Narrow…")
			bob.fill("#l-per_hour", "5")
			bob.do(clickForm("/narrow"))
			bob.sees("Narrowed.", "5 todos an hour")
			a := w.agent(t, "carol")
			a.ask(w, "reviewer", "mailer", "x", scope.Asked{Queues: []string{"reviews"}})
			bob.open("/inbox")
			bob.click(".card.ask .cover")
			bob.do(clickForm("/decline"))
			bob.sees("Declined.")
			_ = r
		})
	}
}

// TestPeople_ConfirmAndLookAgain: an old sign-in is confirmed on the way and nothing typed is lost; an offer that
// changed meanwhile is shown again; a click twice does nothing twice.
func TestPeople_ConfirmAndLookAgain(t *testing.T) {
	w := newWorld(t)
	bob := w.browser(t, "confirm", deskW, deskH, true)
	bob.signIn("bob", "/")
	publish(t, bob, w)
	bob.signIn("bob&dev_auth_time_offset=-50000", "/inbox")
	w.agent(t, "alice").ask(w, "reviewer", "release-bot", "Hand you pull requests.", scope.Asked{Queues: []string{"reviews"}})
	bob.sees("1 approval waiting")
	bob.click(".card.ask .cover")
	bob.sees("Approving asks your provider once more")
	bob.fill("#l-max_open", "4")
	bob.fill("#note", "Welcome & enjoy.")
	bob.click(".decide-bar .primary")
	bob.leave(chromedp.Click(chromedp.CSS(`button[value="bob"]`))) // at the issuer
	bob.sees("Welcome back. Look once more, then approve.", "with at most 4 open at once")
	require.Equal(t, "Welcome & enjoy.", value[string](bob, `document.querySelector('#note').value`))
	bob.shot("request")

	// The same persona, in another tab: its offer becomes narrower.
	other := w.browser(t, "confirm-other", deskW, deskH, true)
	other.signIn("bob", "/personas")
	other.click(".line .cover")
	other.sees("As others see it")
	other.click(".offer details summary")
	other.fill(`[id="offer.0.max_open"]`, "2")
	other.click(".form-end .primary")
	other.sees("Saved.")
	bob.sees("This request changed since you opened it.")
	bob.click(".decide-bar .primary")
	bob.sees("The offer changed since you saw this page.")
	bob.shot("request-changed")
	bob.fill("#l-max_open", "2")
	bob.sees("with at most 2 open at once")
	value[bool](bob, `(() => { const b = document.querySelector('.decide-bar .primary'); b.click(); b.click(); return true; })()`)
	bob.sees("Approved.", "with at most 2 open at once")
	bob.open("/friends")
	require.EqualValues(t, 1, value[int64](bob, `document.querySelectorAll('.list .line').length`))
}
