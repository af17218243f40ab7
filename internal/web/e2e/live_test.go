//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/scope"
)

// TestLive_BoardFollowsWhatOthersDo: what a friend and a worker do is on an open
// board sooner than polling would find it.
func TestLive_BoardFollowsWhatOthersDo(t *testing.T) {
	w := newWorld(t)
	bob := w.browser(t, "live", deskW, deskH, true)
	bob.signIn("bob", "/inbox")
	k := publish(t, bob, w)
	alice := w.agent(t, "alice")
	r := alice.ask(w, "reviewer", "ci", "Reviews.", scope.Asked{Queues: []string{"reviews"}})
	bob.open("/inbox")
	bob.follow(".card.ask .cover")
	bob.follow(".decide-bar .primary")
	e := alice.endpoint(r)

	bob.open("/queues/reviews")
	bob.until("the stream", `known.has('queue:reviews')`)
	soon := func(what, script string) {
		t.Helper()
		began := time.Now()
		bob.until(what, script)
		require.Less(t, time.Since(began), 1500*time.Millisecond, what)
	}
	_, err := e.Call(t.Context(), "create_for", map[string]any{"queue": "reviews", "title": "Look at this", "idempotency_key": "1"})
	require.NoError(t, err)
	soon("the new todo", `document.querySelector('#c-ready').parentElement.textContent.includes('Look at this')`)
	var claimed struct {
		Todos []struct {
			TodoID     string `json:"todo_id"`
			LeaseToken string `json:"lease_token"`
		} `json:"todos"`
	}
	k.call("claim_next", map[string]any{"queues": []string{"reviews"}}, &claimed)
	soon("the claim", `document.querySelector('#c-leased').parentElement.textContent.includes('Look at this')`)
	held := claimed.Todos[0]
	k.call("complete", map[string]any{"todo_id": held.TodoID, "lease_token": held.LeaseToken, "result": map[string]any{"ok": true}}, nil)
	soon("the end", `document.querySelector('#c-done').parentElement.textContent.includes('Look at this')`)

	bob.open("/inbox")
	bob.until("the stream", `known.has('inbox')`)
	w.agent(t, "carol").ask(w, "reviewer", "nightly", "Too.", scope.Asked{Queues: []string{"reviews"}})
	soon("the request", `document.querySelector('[data-waiting-number]').textContent === '1' && !!document.querySelector('.card.ask')`)
}
