package provenance

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
)

func TestAGoodRequestIsSomebodys(t *testing.T) {
	t.Parallel()
	issuer := newTestIssuer(t)
	entry := issuer.entry()
	entry.EmailAuthoritativeFor = []string{"alice.example"}
	v := newTestVerifier(entry)
	for name, key := range map[string]*Key{"EdDSA": newTestKey(t), "ES256": newES256(t)} {
		p := good(t, issuer, key, nil)
		got, err := v.Verify(t.Context(), testTarget(), p)
		require.NoError(t, err, name)
		require.NoError(t, got.CheckTimes(testNow))
		require.NoError(t, got.CheckConditions())
		require.Equal(t, issuer.URL, got.IssuerName)
		require.Equal(t, "alice", got.Subject)
		require.Equal(t, "alice@alice.example", got.Email)
		require.Len(t, got.Identity, 32)
		require.Equal(t, key.Thumbprint(), got.KeyThumbprint)
		require.Equal(t, p.Digest(), got.Digest)
		require.Equal(t, testNow.Add(300*time.Second+Leeway), got.NonceUntil)
		require.NotEmpty(t, got.StatementID)
		require.True(t, got.StatementUntil.After(testNow))
	}
}

func TestSignInBindsTheTokenThatTheServerObtained(t *testing.T) {
	t.Parallel()
	issuer := newTestIssuer(t)
	v := newTestVerifier(issuer.entry())
	raw, err := BuildSignIn(newTestKey(t), testRequest(), To{testAud, testPersona}, testNow)
	require.NoError(t, err)
	p, err := DecodePart(raw)
	require.NoError(t, err)

	pending, err := v.VerifySignIn(testTarget(), p)
	require.NoError(t, err)
	later := testNow.Add(9 * time.Minute) // a person takes time; the statement ends meanwhile
	token, err := issuer.obtain(t, func(c map[string]any) {
		c["aud"], c["azp"], c["iat"], c["exp"] = "login-client", "login-client", later.Unix(), later.Unix()+300
	})(t.Context(), pending.Nonce)
	require.NoError(t, err)
	got, err := v.CompleteSignIn(t.Context(), testTarget(), p, token, "login-client")
	require.NoError(t, err)
	require.NoError(t, got.CheckTimes(later))
	require.Equal(t, pending.Nonce, got.Nonce)

	_, err = v.CompleteSignIn(t.Context(), testTarget(), p, token, "another-client")
	require.Equal(t, refusal.IDTokenAudience, refusal.CodeOf(err))
	_, err = v.Verify(t.Context(), testTarget(), p)
	require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
	_, err = v.VerifySignIn(testTarget(), good(t, issuer, newTestKey(t), nil))
	require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
	late := testTarget()
	late.Now = testNow.Add(time.Hour)
	_, err = v.VerifySignIn(late, p)
	require.Equal(t, refusal.StatementInvalid, refusal.CodeOf(err))
}

func TestOneHumanHasOneIdentity(t *testing.T) {
	t.Parallel()
	google := Issuer{Issuer: "https://accounts.google.com", Aliases: []string{"accounts.google.com"}, Identity: []string{"iss", "sub"}}
	entra := Issuer{Issuer: "https://login.microsoftonline.com/{tenantid}/v2.0", Identity: []string{"iss", "tid", "oid"}}
	tid := "11111111-2222-3333-4444-555555555555"
	person := func(i Issuer, claims map[string]any) Person {
		b, err := json.Marshal(claims)
		require.NoError(t, err)
		p, err := i.Person(b)
		require.NoError(t, err)
		return p
	}
	a := person(google, map[string]any{"iss": "https://accounts.google.com", "sub": "1"})
	b := person(google, map[string]any{"iss": "accounts.google.com", "sub": "1"})
	require.Equal(t, a, b, "an alias makes no second person")
	require.NotEqual(t, a.Identity, person(google, map[string]any{"iss": "accounts.google.com", "sub": "2"}).Identity)

	x := person(entra, map[string]any{"iss": "https://login.microsoftonline.com/" + tid + "/v2.0", "tid": tid, "oid": "o", "sub": "pairwise-1"})
	y := person(entra, map[string]any{"iss": "https://login.microsoftonline.com/" + tid + "/v2.0", "tid": tid, "oid": "o", "sub": "pairwise-2"})
	require.Equal(t, x.Identity, y.Identity, "Entra's sub differs from client to client")
	require.Equal(t, "https://login.microsoftonline.com/"+tid+"/v2.0", x.Issuer)
	require.True(t, entra.names(x.Issuer, tid))
	require.False(t, entra.names(entra.Issuer, ""), "the template itself is nobody's iss")
	require.False(t, entra.names(entra.Issuer, "{tenantid}"))
	require.False(t, entra.names("https://login.microsoftonline.com/evil.example/v2.0", "evil.example"))

	_, err := entra.Person([]byte(`{"iss":"x","tid":"` + tid + `"}`))
	require.Equal(t, refusal.IssuerCondition, refusal.CodeOf(err))
}

func TestEmailIsShownOnlyWhereTheIssuerIsAuthoritative(t *testing.T) {
	t.Parallel()
	i := Issuer{Issuer: "https://i.example", Identity: []string{"iss", "sub"}, EmailAuthoritativeFor: []string{"alice.example"}}
	for claims, want := range map[string]string{
		`{"sub":"a","email":"a@Alice.Example","email_verified":true}`:    "a@Alice.Example",
		`{"sub":"a","email":"a@alice.example","email_verified":"true"}`:  "a@alice.example",
		`{"sub":"a","email":"a@alice.example","email_verified":false}`:   "",
		`{"sub":"a","email":"a@alice.example","email_verified":"false"}`: "",
		`{"sub":"a","email":"a@alice.example","email_verified":1}`:       "",
		`{"sub":"a","email":"a@alice.example"}`:                          "",
		`{"sub":"a","email":"a@bob.example","email_verified":true}`:      "",
		`{"sub":"a","email":"a@x.alice.example","email_verified":true}`:  "",
		`{"sub":"a","email":"@alice.example","email_verified":true}`:     "",
		`{"sub":"a","email":["a@alice.example"],"email_verified":true}`:  "",
	} {
		p, err := i.Person([]byte(claims))
		require.NoError(t, err)
		require.Equal(t, want, p.Email, claims)
	}
}
