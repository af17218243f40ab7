//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/scope"
)

// TestScriptless_NarrowingIsSeenBeforeItIsGranted: without a script a button shows
// what a choice comes to; nothing is decided by it, and what was typed stays.
func TestScriptless_NarrowingIsSeenBeforeItIsGranted(t *testing.T) {
	w := newWorld(t)
	setup := w.browser(t, "scriptless-setup", deskW, deskH, true)
	setup.signIn("bob", "/inbox")
	publish(t, setup, w)
	w.agent(t, "alice").ask(w, "reviewer", "release-bot", "Reviews.", scope.Asked{Queues: []string{"reviews"}})

	bob := w.browser(t, "scriptless", phoneW, phoneH, false)
	bob.signIn("bob", "/inbox")
	bob.click(".card.ask .cover")
	bob.sees("60 todos an hour")
	bob.click("#v-cancel_todo")
	bob.fill("#l-per_hour", "7")
	bob.fill("#note", "Welcome.")
	bob.click("[data-scriptless] button")
	bob.sees("Nothing is decided yet", "may add up to 7 todos an hour", "narrower than asked", "Show what this comes to")
	bob.hasNot("may cancel its own todos")
	bob.shot("previewed")
	bob.fill("#l-per_hour", "100000")
	bob.click("[data-scriptless] button")
	bob.sees("Nothing was granted", "which is all that was asked")
	bob.shot("previewed-wrong")
	bob.fill("#l-per_hour", "7")
	bob.click(".decide-bar .primary")
	bob.sees("Approved.", "may add up to 7 todos an hour")
	require.Contains(t, bob.where(), "/friends/")
}
