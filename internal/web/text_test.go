package web_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

var (
	pagePattern = regexp.MustCompile(`s\.page\("(GET|POST) ([^"]+)"`)
	inPattern   = regexp.MustCompile(`\{[a-z]+\}`)
	formName    = regexp.MustCompile(`(?:f|Form|PostForm)\.(?:Get|Has)\("([a-z_]+)"\)`)
	readName    = regexp.MustCompile(`(?:q|u\.Query\(\)|r\.URL\.Query\(\))\.(?:Get|Has)\("([a-z_]+)"\)`)
)

// TestWhatIsNoTextIsRefused, on every page that there is and in every parameter
// that any of them reads, over the real packages and their database.
func TestWhatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	home := bob.Publish("reviewer")
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var routes [][]string
	var todo struct{ ID string }
	fields := map[string]bool{}
	names := map[string]bool{"of": true, "prompt": true, "error": true, "code": true}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		routes = append(routes, pagePattern.FindAllStringSubmatch(string(text), -1)...)
		for _, m := range readName.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		for _, m := range formName.FindAllStringSubmatch(string(text), -1) {
			fields[m[1]] = true
		}
	}
	require.Greater(t, len(routes), 40)
	require.True(t, names["cursor"] && names["kind"] && names["return_to"] && names["token_name"] && names["redirect_uri"], names)
	csrf := csrfField.FindStringSubmatch(bob.Do(http.MethodGet, "/friends", nil).Body)
	require.NotNil(t, csrf)
	send := func(method, at, form string) int {
		t.Helper()
		var body any
		if method == http.MethodPost {
			body = "csrf=" + url.QueryEscape(csrf[1]) + form
		}
		r := bob.Do(method, at, body, "Content-Type", "application/x-www-form-urlencoded", "Origin", i.URL)
		require.Less(t, r.Status, 500, "%s %s %s: %s", method, at, form, r.Body)
		return r.Status
	}
	do := func(method, at string) {
		t.Helper()
		require.GreaterOrEqual(t, send(method, at, ""), 400, "%s %s", method, at)
	}
	const unknown = "0197a3c2-7d7e-7cc3-98c4-dc0c0c07398f"
	for _, m := range routes {
		method, pattern := m[1], strings.TrimSuffix(m[2], "{$}")
		at := inPattern.ReplaceAllString(strings.ReplaceAll(pattern, "{name}", home.Queue), unknown)
		for _, text := range []string{"a%00b", "%ff"} {
			for name := range names {
				do(method, at+"?"+name+"="+text)
			}
			do(method, at+"?"+text+"=a")
			if inPattern.MatchString(pattern) {
				do(method, inPattern.ReplaceAllString(pattern, text))
			}
		}
	}
	// A form is answered beside its fields where they are looked at, and not with a fault where not.
	bob.Post("/v1/todos", map[string]any{"queue": home.Queue, "title": "a"}, &todo)
	for _, at := range []string{
		"/agents", "/agents/" + home.AgentID, "/personas/new", "/personas/" + home.PersonaID, "/endpoints/new", "/queues", "/queues/" + home.Queue,
		"/queues/" + home.Queue + "/todos", "/todos/" + todo.ID + "/answer", "/todos/" + todo.ID + "/cancel", "/settings/profile", "/settings/notifications", "/settings/tokens",
	} {
		for field := range fields {
			for _, text := range []string{"a%00b", "%ff"} {
				send(http.MethodPost, at, "&"+field+"="+text)
			}
		}
	}
	for _, of := range []string{"", "queue:", "queue:%00", "queue:No", "queue:" + strings.Repeat("a", 5000), "todo:%00", "todo:a", "request:%ff", "%00", strings.Repeat("a", 5000)} {
		do(http.MethodGet, "/events?of="+of)
	}
}
