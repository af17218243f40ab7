//go:build e2e

package web_test

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"switchboard/internal/todo"
)

// TestLook takes a picture of each page as it looks in use, on a phone and on a
// desk, in both colour schemes: SHOTS names the folder.
func TestLook(t *testing.T) {
	dir := os.Getenv("SHOTS")
	if dir == "" {
		dir = filepath.Join("..", "..", ".shots", "fixtures")
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	browser := newBrowser(t)
	pages := map[string]string{
		"landing": "/", "inbox": "/inbox", "request": "/inbox/requests/" + b.requests[0].ID.String(), "hostile": "/inbox/requests/" + b.requests[1].ID.String(),
		"decided": "/inbox/requests/" + b.requests[2].ID.String(), "friends": "/friends", "grant": "/friends/" + b.grants[0].ID.String(),
		"personas": "/personas", "persona": "/personas/" + b.personas[0].ID.String(), "persona-new": "/personas/new", "endpoints": "/endpoints", "vend": "/endpoints/new",
		"endpoint": "/endpoints/" + b.endpoints[0].ID.String(), "queues": "/queues", "queue": "/queues/reviews", "todo": "/todos/" + b.todos[3].TodoID.String(),
		"todo-leased": "/todos/" + b.todos[2].TodoID.String(), "activity": "/activity", "settings": "/settings", "erase": "/settings/erase", "nothing": "/nothing",
	}
	for name, path := range b.answers(t) {
		pages[name] = path
	}
	pages["dev-issuer"] = "/login?return_to=/inbox&login_hint=bob"
	b.guests = append(b.guests, identityOf(t, b, "alice"))
	only := os.Getenv("ONLY")
	for name, path := range pages {
		if only != "" && !strings.Contains(","+only+",", ","+name+",") {
			continue
		}
		for _, size := range []struct {
			name string
			w, h int64
		}{{"phone", 390, 844}, {"desk", 1280, 900}} {
			for _, scheme := range []string{"light", "dark"} {
				if os.Getenv("SCHEME") != "" && os.Getenv("SCHEME") != scheme {
					continue
				}
				steps := []chromedp.Action[chromedp.Void]{colours(scheme), chromedp.EmulateViewport(size.w, size.h), forgetCookies}
				if name != "landing" && name != "dev-issuer" {
					steps = append(steps, b.cookies())
				}
				steps = append(steps, chromedp.Navigate(b.server.URL+path), chromedp.WaitReady(chromedp.CSS("main, form")))
				require.NoError(t, chromedp.Do(browser, steps...), name)
				_, err := chromedp.Run(browser, chromedp.Evaluate[bool](`document.fonts.ready.then(() => true)`, chromedp.EvalAwaitPromise))
				require.NoError(t, err)
				fits, err := chromedp.Run(browser, chromedp.Evaluate[bool](`document.documentElement.scrollWidth <= innerWidth`))
				require.NoError(t, err)
				require.True(t, fits, "%s sticks out at %d pixels", name, size.w)
				top, err := chromedp.Run(browser, chromedp.CaptureScreenshot())
				require.NoError(t, err)
				whole, err := chromedp.Run(browser, chromedp.FullScreenshot(100))
				require.NoError(t, err)
				file := filepath.Join(dir, name+"-"+size.name+"-"+scheme)
				require.NoError(t, os.WriteFile(file+".png", top, 0o644))
				require.NoError(t, os.WriteFile(file+"-whole.png", whole, 0o644))
			}
		}
	}
}

// TestLook_HugeWordsStickOutNowhere fills every place where somebody's words stand
// with one endless word, and with marks that pile up and turn around.
func TestLook_HugeWordsStickOutNowhere(t *testing.T) {
	b := setup(t)
	b.fill()
	huge := strings.Repeat("W", 180) + "\u202E\u200B" + "z" + strings.Repeat("\u0336", 30)
	email, queue := strings.Repeat("w", 60)+"@example.com", strings.Repeat("q", 63)
	b.queues = append(b.queues, todo.Queue{Name: queue, Description: huge, Ready: 3})
	for i := range b.requests {
		b.requests[i].From.Name, b.requests[i].Reason, b.requests[i].Note = huge, strings.Repeat(huge, 3), huge
		b.requests[i].Identity.Name, b.requests[i].Identity.Subject, b.requests[i].Persona = huge, huge, queue
		b.requests[i].Scope.Queues = []string{queue}
	}
	b.requests[0].Identity.Email = email
	for i := range b.grants {
		b.grants[i].From.Name, b.grants[i].Persona, b.grants[i].Identity.Email = huge, queue, email
		b.grants[i].Scope.Queues = []string{queue}
	}
	for i := range b.items {
		b.items[i].Title, b.items[i].Queue = huge, queue
		if b.items[i].Question != nil {
			b.items[i].Question.Text = strings.Repeat(huge, 3)
		}
	}
	for i := range b.todos {
		b.todos[i].FromFriend.Title, b.todos[i].FromFriend.Body, b.todos[i].FromFriend.Identity = huge, strings.Repeat(huge, 4), email
		if p := b.todos[i].Progress; p != nil {
			p.Note = huge
		}
	}
	for i := range b.events {
		b.events[i].Personal = map[string]string{"calls_itself": huge, "reason": huge}
	}
	b.agents[0].Name, b.agents[0].Description = huge, huge
	for i := range b.personas {
		b.personas[i].Name, b.personas[i].Description, b.personas[i].Slug = huge, huge, queue
	}
	b.blocks[0].Identity.Name, b.blocks[0].Reason = huge, huge
	b.signIn("bob", "/")
	browser := newBrowser(t)
	for _, path := range []string{
		"/inbox", "/inbox/requests/" + b.requests[0].ID.String(), "/inbox/requests/" + b.requests[1].ID.String(), "/inbox/requests/" + b.requests[2].ID.String(),
		"/friends", "/friends/" + b.grants[0].ID.String(), "/personas", "/personas/" + b.personas[0].ID.String(), "/personas/new", "/endpoints", "/endpoints/new",
		"/endpoints/" + b.endpoints[0].ID.String(), "/queues", "/queues/reviews", "/queues/" + queue, "/queues/reviews?state=done", "/todos/" + b.todos[2].TodoID.String(), "/todos/" + b.todos[3].TodoID.String(),
		"/activity", "/settings", "/settings/erase",
	} {
		for _, width := range []int64{320, 390, 1280} {
			require.NoError(t, chromedp.Do(browser, chromedp.EmulateViewport(width, 844), b.cookies(), chromedp.Navigate(b.server.URL+path), chromedp.WaitReady(chromedp.CSS("main"))))
			out, err := chromedp.Run(browser, chromedp.Evaluate[string](`document.documentElement.scrollWidth <= innerWidth ? '' : [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join(' | ')`))
			require.NoError(t, err)
			if out != "" {
				t.Errorf("%s at %d pixels: %s", path, width, out)
			}
		}
	}
}

// answers are pages that only a form leads to; they are kept, and shown at
// addresses of their own.
func (b *bundle) answers(t *testing.T) map[string]string {
	t.Helper()
	here, wide := "/inbox/requests/"+b.requests[0].ID.String(), approveForm()
	wide.Set("max_open", "21")
	wide.Set("expires_in_days", "0")
	wide.Set("note", "Typed before.")
	narrow := approveForm()
	narrow.Set("max_open", "3")
	narrow["verbs"] = []string{"create_for", "todo_status"}
	longQueue := strings.Repeat("w", 63)
	kept := map[string]string{
		"request-wrong": b.post(here+"/approve", wide).body, "request-preview": b.post(here+"/preview", narrow).body,
		"persona-wrong": b.post("/personas/new", url.Values{
			"once": {newID().String()}, "agent_id": {""}, "new_agent": {""}, "slug": {"taken"}, "name": {strings.Repeat("Wide", 40)}, "description": {"Reviews."},
			"new_queue": {"Not a queue"}, "visibility": {"listed"}, "who": {"issuers"}, "offers": {"2"}, "offer.0.queue": {"reviews"},
			"offer.0.verbs": {"create_for"}, "offer.0.max_priority": {"12"}, "offer.1.queue": {longQueue},
		}).body,
		"erase-wrong": b.post("/settings/erase", url.Values{"phrase": {"erase"}}).body,
	}
	_, err := b.pool.Exec(t.Context(), `UPDATE session SET auth_time = clock_timestamp() - interval '13 hours'`)
	require.NoError(t, err)
	kept["confirm"] = b.post("/settings/erase", url.Values{"phrase": {"erase my account"}}).body
	_, err = b.pool.Exec(t.Context(), `UPDATE session SET auth_time = clock_timestamp()`)
	require.NoError(t, err)
	pages, out := b.server.Config.Handler, map[string]string{}
	for name := range kept {
		out[name] = "/shown/" + name
	}
	b.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, ok := kept[strings.TrimPrefix(r.URL.Path, "/shown/")]; ok {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte(body))
			return
		}
		pages.ServeHTTP(w, r)
	})
	return out
}

func colours(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

var forgetCookies = chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
	_, err := cdp.Call(ctx, t, network.ClearBrowserCookies, cdp.Empty{})
	return err
})

// cookies gives Chromium the session of the bundle's browser.
func (b *bundle) cookies() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		u, err := url.Parse(b.server.URL)
		if err != nil {
			return err
		}
		for _, c := range b.client.Jar.(*cookiejar.Jar).Cookies(u) {
			if _, err := cdp.Call(ctx, t, network.SetCookie, network.SetCookieParams{Name: c.Name, Value: c.Value, URL: b.server.URL}); err != nil {
				return err
			}
		}
		return nil
	})
}

func newBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", true))
	if path := os.Getenv("CHROMIUM"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	browser, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	return browser
}
