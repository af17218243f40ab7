package provenance_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

const (
	testAud     = "https://bob.example"
	testPersona = "reviewer"
)

// testNow is fixed: times reach the package as arguments only.
var testNow = time.Unix(1_790_000_000, 0)

func newWorld(t testing.TB) *provenancetest.World {
	return provenancetest.NewWorld(t, testAud, testPersona, testNow)
}

func newVerifier(w *provenancetest.World) *provenance.Verifier {
	return provenance.NewVerifier(w.Entries(), provenance.NewKeys(provenance.GuardedClient(true)))
}

func testRequest() provenance.Request {
	open := int64(20)
	return provenance.Request{
		From:   provenance.From{Name: "release-bot", Card: "https://alice.example/a2a/release-bot/.well-known/agent-card.json"},
		Reason: "Hand you pull requests that touch billing for review.",
		Scope:  scope.Asked{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.CreateFor, scope.TodoStatus}, Limits: scope.Partial{MaxOpen: &open}},
	}
}

// check runs a received part through every row that this package does.
func check(ctx context.Context, w *provenancetest.World, v *provenance.Verifier, raw []byte) (*provenance.Verified, error) {
	p, err := provenance.DecodePart(raw)
	if err != nil {
		return nil, err
	}
	if p.Provenance != nil && p.Provenance.Method == provenance.MethodSignIn {
		_, err := v.VerifySignIn(w.Target(), p)
		return nil, err
	}
	got, err := v.Verify(ctx, w.Target(), p)
	if err != nil {
		return nil, err
	}
	if err := got.CheckTimes(w.Now); err != nil {
		return nil, err
	}
	return got, got.CheckConditions()
}

func TestWhatBuildSignsIsVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := newVerifier(w)
	for _, name := range []string{"agent", "es256"} {
		key := w.Agent(name)
		obtain := func(_ context.Context, nonce string) (string, error) {
			return w.IDToken(t, "plain", nonce, provenancetest.JWS{}), nil
		}
		raw, err := provenance.Build(t.Context(), key, testRequest(), provenance.To{Aud: testAud, Persona: testPersona}, func() time.Time { return testNow }, obtain)
		require.NoError(t, err)
		got, err := check(t.Context(), w, v, raw)
		require.NoError(t, err)
		p, err := provenance.DecodePart(raw)
		require.NoError(t, err)
		require.Equal(t, w.URL("plain"), got.IssuerName)
		require.Equal(t, "alice", got.Subject)
		require.Equal(t, "Alice", got.Name)
		require.Equal(t, "alice@alice.example", got.Email)
		require.Len(t, got.Identity, 32)
		require.Equal(t, key.Thumbprint(), got.KeyThumbprint)
		require.Equal(t, p.Digest(), got.Digest)
		require.NotContains(t, string(p.Canonical()), "provenance")
		require.Equal(t, testNow.Add(300*time.Second+provenance.Leeway), got.NonceUntil)
		require.NotEmpty(t, got.StatementID)
		require.Equal(t, testNow.Add(300*time.Second+provenance.Leeway), got.StatementUntil)
	}
}

func TestSignInBindsTheTokenThatTheServerObtained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := newVerifier(w)
	raw, err := provenance.BuildSignIn(w.Agent("agent"), testRequest(), provenance.To{Aud: testAud, Persona: testPersona}, testNow)
	require.NoError(t, err)
	p, err := provenance.DecodePart(raw)
	require.NoError(t, err)
	pending, err := v.VerifySignIn(w.Target(), p)
	require.NoError(t, err)

	later := testNow.Add(9 * time.Minute) // a person takes time; the statement ends meanwhile
	claims := map[string]any{"aud": provenancetest.LoginClient, "azp": provenancetest.LoginClient, "iat": later.Unix(), "exp": later.Unix() + 300}
	token := w.IDToken(t, "plain", pending.Nonce, provenancetest.JWS{Claims: claims})
	target := w.Target()
	target.Now = later
	got, err := v.CompleteSignIn(t.Context(), target, p, token, provenancetest.LoginClient)
	require.NoError(t, err)
	require.NoError(t, got.CheckTimes(later))
	require.NoError(t, got.CheckConditions())
	require.Equal(t, pending.Nonce, got.Nonce)
	require.Equal(t, pending.StatementID, got.StatementID)

	refused := func(want refusal.Code, token, client string) {
		t.Helper()
		_, err := v.CompleteSignIn(t.Context(), target, p, token, client)
		require.Equal(t, want, refusal.CodeOf(err))
	}
	refused(refusal.IDTokenAudience, token, "another-client")
	refused(refusal.IDTokenAudience, token, "")
	refused(refusal.NonceMismatch, w.IDToken(t, "plain", "of another request", provenancetest.JWS{Claims: claims}), provenancetest.LoginClient)
	refused(refusal.IssuerUntrusted, w.IDToken(t, "login", pending.Nonce, provenancetest.JWS{Claims: claims}), provenancetest.LoginClient)
	refused(refusal.IDTokenSignature, w.IDToken(t, "plain", pending.Nonce, provenancetest.JWS{Claims: claims, Signature: "flipped"}), provenancetest.LoginClient)

	_, err = v.Verify(t.Context(), w.Target(), p)
	require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err), "a sign-in statement is not an oidc-nonce request")
	other, err := provenance.DecodePart(w.Build(t, provenancetest.Case{}))
	require.NoError(t, err)
	_, err = v.VerifySignIn(w.Target(), other)
	require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(err))
}

func TestAPersonaThatNobodyMayAskTrustsNoIssuer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := newVerifier(w)
	p, err := provenance.DecodePart(w.Build(t, provenancetest.Case{}))
	require.NoError(t, err)
	for name, allowed := range map[string]provenance.Allowed{"nobody": provenance.Nobody(), "nil": nil, "others": provenance.Only(w.URL("strict")), "none": provenance.Only()} {
		target := w.Target()
		target.Allowed = allowed
		_, err := v.Verify(t.Context(), target, p)
		require.Equal(t, refusal.IssuerUntrusted, refusal.CodeOf(err), name)
	}
	for name, allowed := range map[string]provenance.Allowed{"anyone": provenance.Anyone(), "alias": provenance.Only("plain.example")} {
		target := w.Target()
		target.Allowed = allowed
		_, err := v.Verify(t.Context(), target, p)
		require.NoError(t, err, name)
	}
}

func TestOneHumanHasOneIdentity(t *testing.T) {
	t.Parallel()
	google := provenance.Issuer{Issuer: "https://accounts.google.com", Aliases: []string{"accounts.google.com"}, Identity: []string{"iss", "sub"}}
	entra := provenance.Issuer{Issuer: "https://login.microsoftonline.com/{tenantid}/v2.0", Identity: []string{"iss", "tid", "oid"}}
	tid := "11111111-2222-3333-4444-555555555555"
	person := func(i provenance.Issuer, claims map[string]any) provenance.Person {
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

	_, err := entra.Person([]byte(`{"iss":"x","tid":"` + tid + `"}`))
	require.Equal(t, refusal.IssuerCondition, refusal.CodeOf(err))
}

func TestEmailIsShownOnlyWhereTheIssuerIsAuthoritative(t *testing.T) {
	t.Parallel()
	i := provenance.Issuer{Issuer: "https://i.example", Identity: []string{"iss", "sub"}, EmailAuthoritativeFor: []string{"alice.example"}}
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
