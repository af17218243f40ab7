package provenance_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
)

const goodIssuers = `
issuers:
  - issuer: https://accounts.google.com
    aliases: [accounts.google.com]
    name: Google
    algs: [RS256]
    provenance:
      published_client: {client_id: native, client_secret: not-a-secret}
      client_ids: [partner]
      max_auth_age: 3600
    login: {client_id: web, client_secret: s}
    conditions: {hosted_domain: [Alice.example]}
    email_authoritative_for: [GMAIL.com]
    ramp: true
  - issuer: https://login.microsoftonline.com/{tenantid}/v2.0
    provenance: {client_ids: [x], acr: [c1], amr: [mfa]}
    conditions: {tenant: [11111111-2222-3333-4444-555555555555]}
  - issuer: https://login.example/realms/a
    provenance: {enabled: false}
    login: {client_id: web}
`

func TestIssuersAreReadWithTheirDefaults(t *testing.T) {
	t.Parallel()
	got, err := provenance.ParseIssuers([]byte(goodIssuers), false)
	require.NoError(t, err)
	require.Len(t, got, 3)
	google, entra, login := got[0], got[1], got[2]
	require.Equal(t, []string{"partner", "native"}, google.Provenance.ClientIDs)
	require.Equal(t, []string{"http://127.0.0.1/callback"}, google.Provenance.PublishedClient.RedirectURIs)
	require.Equal(t, "openid email", google.Provenance.PublishedClient.Scope)
	require.Equal(t, time.Hour, google.Provenance.MaxAuthAge)
	require.Equal(t, []string{"iss", "sub"}, google.Identity)
	require.Equal(t, []string{"gmail.com"}, google.EmailAuthoritativeFor)
	require.Equal(t, []string{"alice.example"}, google.Conditions.HostedDomain)
	require.True(t, google.Ramp)
	require.Equal(t, []string{"iss", "tid", "oid"}, entra.Identity)
	require.Equal(t, []string{"RS256"}, entra.Algs)
	require.Equal(t, "login.microsoftonline.com", entra.Name)
	require.Nil(t, login.Provenance)
	require.Equal(t, "openid email profile", login.Login.Scope)

	v := provenance.NewVerifier(got, nil)
	require.Equal(t, "Google", v.Entry("accounts.google.com", "").Name)
	require.Nil(t, v.Entry("https://accounts.google.com/", ""), "a slash more is another issuer")

	fromJSON, err := provenance.ParseIssuers([]byte(`[{"issuer":"http://127.0.0.1:9","login":{"client_id":"a"}}]`), true)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:9", fromJSON[0].Name)
}

// Each entry is wrong in the line that holds the mark #! and in no other.
func TestAWrongLineOfTheIssuersIsNamed(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a misspelt field":               "- issuer: https://a.example\n  login: {client_id: a}\n  condition: {} #!",
		"a misspelt condition":           "- issuer: https://a.example\n  login: {client_id: a}\n  conditions:\n    email_domains: [a.example] #!",
		"a field twice":                  "- issuer: https://a.example\n  login: {client_id: a}\n  issuer: https://b.example #!",
		"a wrong type":                   "- issuer: https://a.example\n  login: {client_id: a}\n  ramp: maybe #!",
		"no issuer":                      "- login: {client_id: a} #!",
		"http":                           "- login: {client_id: a}\n  issuer: http://a.example #!",
		"no URL":                         "- login: {client_id: a}\n  issuer: accounts.google.com #!",
		"a query":                        "- login: {client_id: a}\n  issuer: https://a.example/?x=1 #!",
		"a fragment":                     "- login: {client_id: a}\n  issuer: \"https://a.example/#x\" #!",
		"discovery over http":            "- issuer: https://a.example\n  discovery: http://a.example/x #!\n  login: {client_id: a}",
		"HMAC":                           "- issuer: https://a.example\n  algs:\n    - RS256\n    - HS256 #!\n  login: {client_id: a}",
		"none":                           "- issuer: https://a.example\n  login: {client_id: a}\n  algs: [none] #!",
		"neither provenance nor login":   "- issuer: https://a.example #!",
		"no login client":                "- issuer: https://a.example\n  login: {client_secret: s} #!",
		"no client for provenance":       "- issuer: https://a.example\n  provenance: {} #!",
		"the login client accepted":      "- issuer: https://a.example\n  login: {client_id: web}\n  provenance:\n    client_ids:\n      - web #!",
		"the login client published":     "- issuer: https://a.example\n  login: {client_id: web}\n  provenance:\n    published_client:\n      client_id: web #!",
		"an empty client id":             "- issuer: https://a.example\n  provenance:\n    client_ids: [\"\"] #!",
		"a negative max_auth_age":        "- issuer: https://a.example\n  provenance:\n    client_ids: [a]\n    max_auth_age: -1 #!",
		"a redirect that is no loopback": "- issuer: https://a.example\n  provenance:\n    published_client:\n      client_id: a\n      redirect_uris: [https://a.example/cb] #!",
		"a redirect to localhost":        "- issuer: https://a.example\n  provenance:\n    published_client:\n      client_id: a\n      redirect_uris: [\"http://localhost/cb\"] #!",
		"a scope without openid":         "- issuer: https://a.example\n  provenance:\n    published_client:\n      client_id: a\n      scope: email #!",
		"identity by e-mail":             "- issuer: https://a.example\n  login: {client_id: a}\n  identity: [iss, email] #!",
		"identity without iss":           "- issuer: https://a.example\n  login: {client_id: a}\n  identity: [sub, oid] #!",
		"a template without tid":         "- issuer: https://a.example/{tenantid}/v2\n  login: {client_id: a}\n  identity: [iss, oid] #!",
		"another template":               "- login: {client_id: a}\n  issuer: https://a.example/{tenant}/v2 #!",
		"a template within a segment":    "- login: {client_id: a}\n  issuer: https://a.example/x{tenantid}/v2 #!",
		"a domain with an at sign":       "- issuer: https://a.example\n  login: {client_id: a}\n  email_authoritative_for: [\"@a.example\"] #!",
		"a wildcard domain":              "- issuer: https://a.example\n  login: {client_id: a}\n  conditions:\n    email_domain: [\"*.a.example\"] #!",
		"an empty condition":             "- issuer: https://a.example\n  login: {client_id: a}\n  conditions:\n    email_domain: [] #!",
		"a tenant that is no id":         "- issuer: https://a.example\n  login: {client_id: a}\n  conditions:\n    tenant: [contoso] #!",
		"the same issuer twice":          "- issuer: https://a.example\n  login: {client_id: a}\n- login: {client_id: a}\n  issuer: https://a.example #!",
		"an alias of another":            "- issuer: https://a.example\n  login: {client_id: a}\n- issuer: https://b.example\n  login: {client_id: a}\n  aliases: [https://a.example] #!",
		"an empty alias":                 "- issuer: https://a.example\n  login: {client_id: a}\n  aliases: [\"\"] #!",
		"an entry that is no mapping":    "- https://a.example #!",
		"a list that is none":            "issuers: none #!",
		"broken YAML":                    "- issuer: [ #!",
	} {
		lines := strings.Split(text, "\n")
		want := 0
		for n, line := range lines {
			if strings.HasSuffix(line, "#!") {
				want = n + 1
			}
		}
		_, err := provenance.ParseIssuers([]byte(text), false)
		require.Error(t, err, name)
		require.Regexp(t, `(^|\D)line `+string(rune('0'+want))+`\b`, err.Error(), name)
		require.NotContains(t, err.Error(), "\n", name)
		require.NotContains(t, err.Error(), "provenance.entry", name)
	}
	_, err := provenance.ParseIssuers([]byte("- issuer: http://a.example\n  algs: [none]\n"), false)
	require.Len(t, strings.Split(err.Error(), "\n"), 3, "all that is wrong is told at once")
	_, err = provenance.ParseIssuers(nil, false)
	require.Error(t, err)
	_, err = provenance.ParseIssuers([]byte("- issuer: http://127.0.0.1:1\n  login: {client_id: a}\n"), false)
	require.Error(t, err, "http on loopback is for dev only")
}
