//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"switchboard/internal/scope"
)

const axeVersion = "4.14.1"

// axe returns the source of axe-core: of AXE, else fetched once with npm into .bin.
func axe(t *testing.T) string {
	t.Helper()
	file := os.Getenv("AXE")
	if file == "" {
		dir := filepath.Join("..", "..", "..", ".bin", "axe-core-"+axeVersion)
		file = filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
		if _, err := os.Stat(file); err != nil {
			out, err := exec.CommandContext(t.Context(), "npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", dir, "axe-core@"+axeVersion).CombinedOutput()
			require.NoError(t, err, "npm, to fetch axe-core: %s", out)
		}
	}
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(source)
}

// TestPages_AreAccessible runs axe-core over every page, on a phone and on a desk, in both colour schemes.
func TestPages_AreAccessible(t *testing.T) {
	source := axe(t)
	w := newWorld(t)
	bob := w.browser(t, "axe", deskW, deskH, true)
	check := func(path string) {
		t.Helper()
		if path != "" {
			bob.open(path)
		}
		for _, scheme := range []string{"light", "dark"} {
			for _, size := range [][2]int64{{deskW, deskH}, {phoneW, phoneH}} {
				bob.do(scheming(scheme), chromedp.EmulateViewport(size[0], size[1]))
				found := value[string](bob, source+`;
					document.querySelectorAll('details').forEach((d) => { d.open = true; });
					axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then((r) =>
						JSON.stringify({passes: r.passes.length, violations: r.violations.map((v) => ({id: v.id, impact: v.impact, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + ' ' + (n.any[0]?.message ?? ''))}))}))`)
				var report struct {
					Passes     int
					Violations []struct {
						ID, Impact string
						Nodes      []string
					}
				}
				require.NoError(t, json.Unmarshal([]byte(found), &report))
				require.Greater(t, report.Passes, 10, "axe has looked")
				for _, v := range report.Violations {
					t.Errorf("%s at %d pixels, %s: %s (%s): %q", bob.where(), size[0], scheme, v.ID, v.Impact, v.Nodes)
				}
			}
		}
		bob.do(chromedp.EmulateViewport(deskW, deskH))
	}
	check("/")
	bob.signIn("bob", "/inbox")
	check("/inbox")
	check("/personas/new")
	k := publish(t, bob, w)
	check("") // the endpoint
	alice := w.agent(t, "alice")
	r := alice.ask(w, "reviewer", "release-bot", "Hand you pull requests.", scope.Asked{Queues: []string{"reviews"}})
	check("/inbox")
	bob.follow(".card.ask .cover")
	check("")
	bob.fill("#l-max_open", "999")
	bob.sees("which is all that was asked")
	check("") // with something wrong marked
	bob.fill("#l-max_open", "3")
	bob.sees("with at most 3 open at once")
	bob.follow(".decide-bar .primary")
	bob.sees("Approved.")
	e := alice.endpoint(r)
	for _, key := range []string{"1", "2"} {
		_, err := e.Call(t.Context(), "create_for", map[string]any{"queue": "reviews", "title": "Review PR " + key, "idempotency_key": key})
		require.NoError(t, err)
	}
	var claimed struct {
		Todos []struct {
			TodoID     string `json:"todo_id"`
			LeaseToken string `json:"lease_token"`
		} `json:"todos"`
	}
	k.call("claim_next", map[string]any{"queues": []string{"reviews"}}, &claimed)
	k.call("ask", map[string]any{"todo_id": claimed.Todos[0].TodoID, "lease_token": claimed.Todos[0].LeaseToken, "question": "Which?"}, nil)
	check("/todos/" + claimed.Todos[0].TodoID)
	check("/friends")
	bob.follow(".line .cover")
	check("")
	for _, path := range []string{"/queues", "/queues/reviews", "/queues/reviews?state=ready", "/personas", "/endpoints", "/endpoints/new", "/activity", "/settings", "/settings/erase", "/nothing"} {
		check(path)
	}
	w.agent(t, "carol").ask(w, "reviewer", "mailer", "x", scope.Asked{Queues: []string{"reviews"}})
	bob.open("/inbox")
	bob.follow(".card.ask .cover")
	bob.leave(clickForm("/decline"))
	check("/inbox")
}
