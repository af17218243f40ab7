package main

import (
	"bufio"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)
	cancelLink  = regexp.MustCompile(`href="(http://127[^"]+)"`)
)

// login starts the command and returns the page that it names, and what waits
// for its end.
func (c *commandLine) login(args ...string) (page string, wait func() (told string, err error)) {
	c.t.Helper()
	program, err := os.Executable()
	require.NoError(c.t, err)
	cmd := exec.CommandContext(c.t.Context(), program, append([]string{"login", c.instance.URL, "--no-browser"}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=yes", "XDG_CONFIG_HOME="+c.state)
	out, err := cmd.StderrPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	read := bufio.NewReader(out)
	for page == "" {
		line, err := read.ReadString('\n')
		require.NoError(c.t, err)
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "http") {
			page = line
		}
	}
	return page, func() (string, error) {
		rest, err := io.ReadAll(read)
		require.NoError(c.t, err)
		return string(rest), cmd.Wait()
	}
}

func TestLogin_InTheBrowser(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	page, wait := c.login("--name", "bob's laptop")
	shown := c.bob.Do(http.MethodGet, page, nil)
	require.Equal(t, http.StatusOK, shown.Status, shown.Body)
	require.Contains(t, html.UnescapeString(shown.Body), "bob's laptop")
	asked, err := url.Parse(page)
	require.NoError(t, err)
	back, err := url.Parse(asked.Query().Get("redirect_uri"))
	require.NoError(t, err)
	require.Contains(t, shown.Header.Get("Content-Security-Policy"), "form-action 'self' http://"+back.Host)

	form := url.Values{}
	for _, f := range hiddenField.FindAllStringSubmatch(shown.Body, -1) {
		form.Set(f[1], html.UnescapeString(f[2]))
	}
	answer := c.bob.Do(http.MethodPost, "/program-sign-in", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Origin", c.instance.URL)
	require.Contains(t, answer.Body, "Go back to the terminal", "the browser has come to the program")
	told, err := wait()
	require.NoError(t, err, told)
	require.Contains(t, told, "Signed in as Bob")
	require.NotContains(t, told, "sba_")

	kept, err := os.Stat(filepath.Join(c.state, "switchboard", "account.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), kept.Mode().Perm())
	_, told, err = c.own("", "", "personas")
	require.NoError(t, err, told)
	var tokens struct{ Items []struct{ Name string } }
	c.bob.Get("/v1/api-tokens", &tokens)
	require.Len(t, tokens.Items, 1)
	require.Equal(t, "bob's laptop", tokens.Items[0].Name)
	_, told, err = c.own("", "", "logout")
	require.NoError(t, err, told)
	require.Contains(t, told, `"bob's laptop" at `+c.instance.URL+"/settings", "by the name that it has there")
}

func TestLogin_SaidNo(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	page, wait := c.login()
	no := cancelLink.FindStringSubmatch(c.bob.Do(http.MethodGet, page, nil).Body)
	require.Len(t, no, 2)
	c.bob.Do(http.MethodGet, html.UnescapeString(no[1]), nil)
	told, err := wait()
	require.Error(t, err)
	require.Contains(t, told, "you said no")
	var tokens struct{ Items []any }
	c.bob.Get("/v1/api-tokens", &tokens)
	require.Empty(t, tokens.Items)
}

// TestLogout_ForgetsHereAndSaysWhatItDoesNot: it ends nothing at the server, where
// no token ends a token, and says so; it can be run again, and leaves another
// instance's sign-in alone.
func TestLogout_ForgetsHereAndSaysWhatItDoesNot(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	var made struct{ Token string }
	c.bob.Post("/v1/api-tokens", map[string]any{"name": "laptop"}, &made)
	_, told, err := c.own("", made.Token+"\n", "login", c.instance.URL, "--token-stdin")
	require.NoError(t, err, told)

	_, told, err = c.own("", "", "logout", "https://todo.example/")
	require.NoError(t, err, told)
	require.Contains(t, told, "at "+c.instance.URL+", stays")
	_, told, err = c.own("", "", "personas")
	require.NoError(t, err, told)

	out, told, err := c.own("", "", "logout", c.instance.URL+"/")
	require.NoError(t, err, told)
	require.Empty(t, out)
	require.Contains(t, told, "still works")
	require.Contains(t, told, c.instance.URL+"/settings")
	require.NoFileExists(t, filepath.Join(c.state, "switchboard", "account.json"))
	_, told, err = c.own("", "", "personas")
	require.Error(t, err)
	require.Contains(t, told, "not signed in")
	require.Equal(t, http.StatusOK, c.instance.Stranger(t, made.Token).Do(http.MethodGet, "/v1/me", nil).Status, "as it said")

	_, told, err = c.own("", "", "logout")
	require.NoError(t, err, told)
	require.Contains(t, told, "No sign-in is kept here")
	_, told, err = c.own(made.Token, "", "logout")
	require.NoError(t, err, told)
	require.Contains(t, told, "SWITCHBOARD_TOKEN", "what it cannot forget")
}

// TestLogout_ForgetsWhatIsDamaged: who cannot sign in must be able to sign out.
func TestLogout_ForgetsWhatIsDamaged(t *testing.T) {
	t.Parallel()
	c := &commandLine{t: t, state: t.TempDir()}
	path := filepath.Join(c.state, "switchboard", "account.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, told, err := c.own("", "", "logout", "https://todo.example")
	require.Error(t, err, "it may be another's")
	require.Contains(t, told, "damaged")
	require.FileExists(t, path)
	_, told, err = c.own("", "", "logout")
	require.NoError(t, err, told)
	require.NoFileExists(t, path)
}
