//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// shots is where pictures go.
var shots = filepath.Join("..", "..", "..", ".shots")

// allocate starts nothing yet; each browser of a test is a process of its own.
func allocate(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", true))
	if path := os.Getenv("CHROMIUM"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	return ctx
}

// browser is one person's Chromium.
type browser struct {
	t     *testing.T
	ctx   context.Context
	base  string
	stamp string // begins the names of its pictures

	mu      sync.Mutex
	foreign []string // requests to other origins while a page of the instance was loaded
}

const (
	phoneW, phoneH = 390, 844
	deskW, deskH   = 1280, 900
)

func (w *world) browser(t *testing.T, stamp string, width, height int64, script bool) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(allocate(t))
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, base: w.url, stamp: stamp}
	require.NoError(t, os.MkdirAll(shots, 0o755))
	steps := []chromedp.Action[chromedp.Void]{chromedp.EmulateViewport(width, height)}
	if !script {
		steps = append(steps, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
			return err
		}))
	}
	b.do(steps...)
	return b
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := b.ctx, context.CancelFunc(func() {})
	if chromedp.FromContext(ctx) != nil && chromedp.FromContext(ctx).Target != nil {
		ctx, cancel = context.WithTimeout(ctx, 30*time.Second)
	}
	defer cancel()
	err := chromedp.Do(ctx, steps...)
	for again := 0; len(steps) == 1 && again < 5 && err != nil && strings.Contains(err.Error(), "Could not find node"); again++ {
		err = chromedp.Do(ctx, steps...) // what was found was replaced before anything happened to it: pages are live
	}
	if err != nil {
		b.shot("failed")
	}
	require.NoError(b.t, err, "at %s", b.where())
}

func (b *browser) where() string {
	where, err := chromedp.Run(b.ctx, chromedp.Location())
	if err != nil {
		return err.Error()
	}
	return where
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base+path), chromedp.WaitReady(chromedp.CSS("main")))
}

// click clicks what is visible.
func (b *browser) click(css string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(css)))
}

// follow clicks what leads to another page, and waits until that is there.
func (b *browser) follow(css string) {
	b.t.Helper()
	b.leave(chromedp.Click(chromedp.CSS(css)))
}

// leave does what leads to another page, and waits until that is there. What comes
// next would otherwise meet the old page, or end the way to the new one.
func (b *browser) leave(step chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	value[bool](b, `window.left = true`)
	b.do(step)
	b.until("another page", `!window.left && document.readyState === 'complete' && !!document.querySelector('main')`)
}

// until waits until a script expression is true.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		// Between two pages there is nothing that could evaluate it.
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		if err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			b.shot("failed")
			require.FailNow(b.t, "never came", "%s at %s (%v)", what, b.where(), err)
		}
		b.pause()
	}
}

// pause lets the browser, which is another process, go on.
func (b *browser) pause() {
	wait, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
	<-wait.Done()
	cancel()
}

// button clicks the button or link with this text.
func (b *browser) button(text string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.Search(fmt.Sprintf(`//main//*[self::button or self::a or self::summary][contains(normalize-space(.), %q)]`, text))))
}

func (b *browser) fill(css, text string) {
	b.t.Helper()
	b.do(chromedp.WaitVisible(chromedp.CSS(css)))
	value[string](b, `document.querySelector(`+strconv.Quote(css)+`).value = ''`)
	b.do(chromedp.SendKeys(chromedp.CSS(css), text))
}

// text returns the text of main.
func (b *browser) text() string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("main")))
	require.NoError(b.t, err)
	return text
}

// sees waits until main says all of these.
func (b *browser) sees(wanted ...string) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		text, err := chromedp.Run(b.ctx, chromedp.TextContent(chromedp.CSS("main")))
		text = strings.Join(strings.Fields(text), " ")
		missing := ""
		for _, want := range wanted {
			if err != nil || !strings.Contains(text, want) {
				missing = want
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			b.shot("failed")
			require.FailNow(b.t, "not on the page", "%q is missing at %s (%v):\n%s", missing, b.where(), err, text)
		}
		b.pause()
	}
}

// hasNot waits until main does not say this.
func (b *browser) hasNot(unwanted string) {
	b.t.Helper()
	b.until("a page without "+unwanted, `!document.querySelector('main').textContent.includes(`+strconv.Quote(unwanted)+`)`)
}

// value is a number or text that a script expression gives.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return v
}

// shot keeps pictures of the page: what is seen first, in both colour schemes.
func (b *browser) shot(name string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		if err := chromedp.Do(b.ctx, scheming(scheme)); err != nil {
			return
		}
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return
		}
		require.NoError(b.t, os.WriteFile(filepath.Join(shots, b.stamp+"-"+name+"-"+scheme+".png"), picture, 0o644))
	}
}

func scheming(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// watch notes requests that leave the instance's origin.
func (b *browser) watch() {
	requests := chromedp.Events(b.ctx, network.RequestWillBeSent)
	go func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			if !strings.HasPrefix(e.Request.URL, b.base+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
				b.mu.Lock()
				b.foreign = append(b.foreign, e.Request.URL)
				b.mu.Unlock()
			}
		}
	}()
}

// strangers lists the other origins that were asked, without the issuer's, where people sign in.
func (b *browser) strangers(issuer string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, u := range b.foreign {
		if !strings.HasPrefix(u, issuer+"/") {
			out = append(out, u)
		}
	}
	return out
}

// signIn goes through the issuer's own page. More parameters may follow the person's name.
func (b *browser) signIn(person, returnTo string) {
	b.t.Helper()
	name, _, _ := strings.Cut(person, "&")
	b.do(chromedp.Navigate(b.base + "/login?login_hint=" + person + "&return_to=" + url.QueryEscape(returnTo)))
	b.leave(chromedp.Click(chromedp.CSS(`button[value="` + name + `"]`)))
	b.until("signed in", `location.origin === `+strconv.Quote(b.base)+` && document.readyState === 'complete' && !!document.querySelector('main')`)
}

// inView waits until the whole element can be seen without scrolling, and is what a click there would hit.
func (b *browser) inView(css, why string) {
	b.t.Helper()
	b.until(why, `(() => {
		const e = document.querySelector(`+strconv.Quote(css)+`), r = e.getBoundingClientRect();
		const hit = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
		return scrollY === 0 && r.top >= 0 && r.left >= 0 && r.bottom <= innerHeight && r.right <= innerWidth && (hit === e || e.contains(hit));
	})()`)
}

// clickForm clicks the last button of the form whose action ends so, which has to be in sight.
func clickForm(action string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(`form[action$="` + action + `"] p.actions button:last-of-type, form[action$="` + action + `"] > button:last-of-type`))
}
