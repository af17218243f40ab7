package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
)

// found are the lines of a diagnosis that must be mended, each with its remedy.
func found(t *testing.T, c server.Config, wrong error) string {
	t.Helper()
	var out strings.Builder
	err := server.Diagnose(t.Context(), c, wrong, &out)
	require.Equal(t, strings.Contains(out.String(), "WRONG"), err != nil, out.String())
	var lines []string
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "ok ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// Each thing that can be wrong outside the configuration is named, with what
// mends it, and nothing else is.
func TestDiagnose_NamesWhatIsWrongAndHowToMendIt(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	i.SignIn(t, "bob").Publish("reviewer")
	i.Stranger(t, "").Get("/.well-known/jwks.json", nil) // makes the first card key
	require.Empty(t, found(t, i.Config, nil), "nothing is")

	pool := pgtest.Open(t, i.Database)
	for what, c := range map[string]struct {
		change func(*server.Config)
		want   []string
	}{
		"no server":        {func(c *server.Config) { c.DatabaseURL = "postgres://switchboard:hidden@127.0.0.1:1/switchboard" }, []string{"the database answers", "connection refused", "No server answers"}},
		"no URL":           {func(c *server.Config) { c.DatabaseURL = "postgres://a:hidden@b@c:x/y" }, []string{"the database answers", "postgres://user:password@host"}},
		"no host":          {func(c *server.Config) { c.DatabaseURL = "postgres://switchboard:hidden@nowhere.invalid/switchboard" }, []string{"the database answers", "has no address"}},
		"no database":      {func(c *server.Config) { c.DatabaseURL = withDatabase(t, c.DatabaseURL, "nothing_of_this_name") }, []string{"3D000", "There is no such database"}},
		"another seal key": {func(c *server.Config) { c.SealKeys = [][]byte{[]byte(strings.Repeat("x", 32))} }, []string{"seal_key opens", "the key that was used before"}},
		"no mail server":   {func(c *server.Config) { c.SMTP = "smtp://127.0.0.1:1" }, []string{"the mail server answers", "Check smtp_url"}},
	} {
		config := i.Config
		c.change(&config)
		told := found(t, config, nil)
		require.Equal(t, 1, strings.Count(told, "WRONG"), "%s: %s", what, told)
		require.NotContains(t, told, "hidden", what)
		for _, want := range c.want {
			require.Contains(t, told, want, what)
		}
	}
	// A role that serves only, before and after each of its rights.
	role := "serving_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	do := func(sql string) {
		_, err := pool.Exec(t.Context(), strings.ReplaceAll(sql, "@role", `"`+role+`"`))
		require.NoError(t, err, sql)
	}
	do(`CREATE ROLE @role LOGIN`)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), `DROP OWNED BY "`+role+`"; DROP ROLE "`+role+`"`) })
	serving := i.Config
	serving.DatabaseURL = withUser(t, serving.DatabaseURL, role)
	require.Contains(t, found(t, serving, nil), "permission denied for table goose_db_version")
	do(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO @role`)
	require.Contains(t, found(t, serving, nil), "no right to write to river")
	do(`GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO @role`)
	do(`REVOKE UPDATE, DELETE ON activity FROM @role`)
	require.Empty(t, found(t, serving, nil))

	require.NoError(t, i.Issuer.Close())
	told := found(t, i.Config, nil)
	require.Contains(t, told, "issuer "+i.Issuer.Issuer()+" answers")
	require.Contains(t, told, "Check the URL in issuers_file")

	_, err := pool.Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
	require.NoError(t, err)
	require.Contains(t, found(t, i.Config, nil), "switchboard admin migrate")
}

func withDatabase(t *testing.T, url, name string) string {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	require.Contains(t, url, "/"+c.Database)
	return strings.Replace(url, "/"+c.Database, "/"+name, 1)
}

func withUser(t *testing.T, url, name string) string {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	require.Contains(t, url, "//"+c.User+"@")
	return strings.Replace(url, "//"+c.User+"@", "//"+name+"@", 1)
}

// A configuration that is wrong is told line by line, each setting once, and
// what is right in it is tried all the same.
func TestDiagnose_TellsAWrongConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issuers := filepath.Join(dir, "issuers.yaml")
	const good = `
- issuer: https://issuer.invalid
  algs: [RS256]
  login: {client_id: a}
  provenance: {published_client: {client_id: b, redirect_uris: ["http://127.0.0.1/callback"]}}
`
	key := "SWITCHBOARD_SEAL_KEY=" + "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="
	for what, c := range map[string]struct {
		public, key, issuers string
		want                 string
	}{
		"http":          {"http://todo.example", key, good, "public_url: http is for loopback only"},
		"slash":         {"https://todo.example/", key, good, "public_url: "},
		"no seal key":   {"https://todo.example", "", good, "switchboard admin seal-key"},
		"bad seal key":  {"https://todo.example", "SWITCHBOARD_SEAL_KEY=abc", good, "seal_key: key 1"},
		"misspelled":    {"https://todo.example", key, strings.Replace(good, "algs", "algz", 1), "line 3"},
		"no provenance": {"https://todo.example", key, good[:strings.Index(good, "  provenance")], "nobody could ask"},
	} {
		require.NoError(t, os.WriteFile(issuers, []byte(c.issuers), 0o600))
		config, err := server.Load("", []string{
			"SWITCHBOARD_PUBLIC_URL=" + c.public, "SWITCHBOARD_DATABASE_URL=" + pgtest.URL(t), "SWITCHBOARD_RESIDENTS=@example.com", "SWITCHBOARD_ISSUERS_FILE=" + issuers, c.key,
		})
		require.Error(t, err, what)
		config.Issuers = nil // of no interest here
		told := found(t, config, err)
		require.Equal(t, 1, strings.Count(told, "WRONG"), "%s: %s", what, told)
		require.Contains(t, told, c.want, what)
	}
	config, err := server.Load("", nil)
	require.Equal(t, 5, strings.Count(found(t, config, err), "WRONG"), "all that is missing, at once")
}
