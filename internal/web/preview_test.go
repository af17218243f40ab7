//go:build e2e

package web_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// TestPreview_OldAnswerNeverReplacesANewerOne holds the first preview back until
// the second has been shown. What is shown then has to be what the form says.
func TestPreview_OldAnswerNeverReplacesANewerOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	pages := b.server.Config.Handler
	var released sync.Once
	release, came := make(chan struct{}), make(chan string, 10)
	var first, failing sync.Once
	fail := false
	b.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/preview") {
			pages.ServeHTTP(w, r)
			return
		}
		if fail {
			failing.Do(func() { w.WriteHeader(http.StatusInternalServerError) })
			return
		}
		hold := false
		first.Do(func() { hold = true })
		came <- r.Header.Get("HX-Request")
		if hold {
			<-release
		}
		pages.ServeHTTP(w, r)
	})
	defer released.Do(func() { close(release) })
	browser := newBrowser(t)
	do := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		require.NoError(t, chromedp.Do(browser, steps...))
	}
	asked := func() {
		t.Helper()
		select {
		case how := <-came:
			require.Equal(t, "true", how, "asked by the script")
		case <-time.After(10 * time.Second):
			require.FailNow(t, "no preview was asked for")
		}
	}
	eventually := func(script string) {
		t.Helper()
		require.Eventually(t, func() bool {
			yes, err := chromedp.Run(browser, chromedp.Evaluate[bool](script))
			return err == nil && yes
		}, 10*time.Second, 20*time.Millisecond, script)
	}
	do(chromedp.EmulateViewport(390, 844), b.cookies(), chromedp.Navigate(b.server.URL+"/inbox/requests/"+b.requests[0].ID.String()), chromedp.WaitReady(chromedp.CSS("main")))
	set := func(value string) {
		t.Helper()
		_, err := chromedp.Run(browser, chromedp.Evaluate[bool](`(() => { const i = document.querySelector('#l-max_open'); i.value = '`+value+`'; i.dispatchEvent(new Event('input', {bubbles: true})); return true; })()`))
		require.NoError(t, err)
	}
	eventually(`!!window.htmx && document.readyState === 'complete'`)
	eventually(`[...document.querySelectorAll('[data-scriptless]')].every((e) => e.hidden)`)
	set("3")
	asked()
	eventually(`document.querySelector('#outcome').hasAttribute('data-outdated')`)
	set("4")
	asked()
	eventually(`document.querySelector('#outcome').textContent.includes('4 open')`)
	released.Do(func() { close(release) })
	// The answer to a third question is there only after the first one's would have been.
	set("21")
	asked()
	eventually(`document.querySelector('#max_open-wrong').textContent === 'At most 20, which is all that was asked.' && !document.querySelector('#max_open-wrong').hidden`)
	set("4")
	asked()
	eventually(`document.querySelector('#outcome').textContent.includes('4 open') && document.querySelector('#max_open-wrong').hidden && !document.querySelector('#outcome').hasAttribute('data-outdated')`)

	fail = true
	set("5")
	eventually(`document.querySelector('#outcome').textContent.includes('No answer') && document.querySelector('#outcome').hasAttribute('data-outdated')`)
	fail = false
	set("6")
	eventually(`document.querySelector('#outcome').textContent.includes('6 open') && !document.querySelector('#outcome').textContent.includes('No answer')`)

	// Enter in a field asks, and approves nothing.
	do(chromedp.SendKeys(chromedp.CSS("#l-max_open"), "\r"))
	asked()
	eventually(`location.pathname.endsWith('` + b.requests[0].ID.String() + `')`)
	require.Empty(t, b.approvals)
}
