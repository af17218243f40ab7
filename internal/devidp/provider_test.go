package devidp_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"switchboard/internal/devidp"
)

type testBundle struct {
	provider *devidp.Provider
	client   *oidc.Provider
	config   oauth2.Config
	verifier string
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	p, err := devidp.Start(t.Context(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	client, err := oidc.NewProvider(t.Context(), p.Issuer())
	require.NoError(t, err)
	return &testBundle{
		provider: p, client: client, verifier: oauth2.GenerateVerifier(),
		config: oauth2.Config{
			ClientID: devidp.FriendClient, Endpoint: client.Endpoint(),
			RedirectURL: "http://127.0.0.1:53682/callback", Scopes: []string{"openid", "email"},
		},
	}
}

func (b *testBundle) authURL(more ...string) string {
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(b.verifier), oidc.Nonce("our-nonce")}
	for i := 0; i < len(more); i += 2 {
		options = append(options, oauth2.SetAuthURLParam(more[i], more[i+1]))
	}
	return b.config.AuthCodeURL("our-state", options...)
}

// answer follows no redirect: it returns the parameters of the first one.
func answer(t *testing.T, resp *http.Response, err error) url.Values {
	t.Helper()
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, string(body))
	location, err := resp.Location()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(location.String(), "http://127.0.0.1:53682/callback?"), location)
	return location.Query()
}

var direct = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func get(t *testing.T, target string) url.Values {
	t.Helper()
	resp, err := direct.Get(target)
	return answer(t, resp, err)
}

func (b *testBundle) idToken(t *testing.T, back url.Values) (raw string) {
	t.Helper()
	require.Equal(t, "our-state", back.Get("state"))
	require.Equal(t, b.provider.Issuer(), back.Get("iss"))
	token, err := b.config.Exchange(t.Context(), back.Get("code"), oauth2.VerifierOption(b.verifier))
	require.NoError(t, err)
	raw, ok := token.Extra("id_token").(string)
	require.True(t, ok)
	return raw
}

type claims struct {
	Nonce, Name, Email, Azp string
	Sub                     string
	Aud                     any
	EmailVerified           bool `json:"email_verified"`
	Iat, Exp                int64
	AuthTime                int64 `json:"auth_time"`
}

func (b *testBundle) verified(t *testing.T, raw string) (c claims) {
	t.Helper()
	token, err := b.client.Verifier(&oidc.Config{ClientID: b.config.ClientID, SkipExpiryCheck: true}).Verify(t.Context(), raw)
	require.NoError(t, err)
	require.NoError(t, token.Claims(&c))
	return c
}

func TestPromptNoneSignsInStraightBackWithTheCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := time.Now().Unix()
	c := b.verified(t, b.idToken(t, get(t, b.authURL("prompt", "none", "login_hint", "alice"))))
	require.Equal(t, "our-nonce", c.Nonce)
	require.Equal(t, devidp.FriendClient, c.Aud, "aud is one string")
	require.Equal(t, devidp.FriendClient, c.Azp)
	require.Equal(t, "Alice", c.Name)
	require.Equal(t, "alice@example.com", c.Email)
	require.True(t, c.EmailVerified)
	require.InDelta(t, before, c.AuthTime, 5)
	require.InDelta(t, before, c.Iat, 5)
	alice, ok := devidp.PersonNamed("alice")
	require.True(t, ok)
	require.Equal(t, alice.Subject, c.Sub)
	require.NotEqual(t, "alice", c.Sub)
}

func TestKnobsBendLifetimeAndAuthTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.verified(t, b.idToken(t, get(t, b.authURL("prompt", "none", "login_hint", "carol",
		"dev_id_token_lifetime", "-120", "dev_auth_time_offset", "-864000"))))
	require.EqualValues(t, -120, c.Exp-c.Iat)
	require.InDelta(t, time.Now().Unix()-864000, c.AuthTime, 5)
	back := get(t, b.authURL("prompt", "none", "login_hint", "carol", "dev_id_token_lifetime", "soon"))
	require.Equal(t, "invalid_request", back.Get("error"))
}

func TestThePageLetsAPersonBeChosen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resp, err := direct.Get(b.authURL("login_hint", "bob"))
	require.NoError(t, err)
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, 3, strings.Count(string(page), "<button "))
	require.Contains(t, string(page), `value="bob" class="hinted" autofocus`)
	require.Contains(t, string(page), `name="nonce" value="our-nonce"`)

	asked, err := url.Parse(b.authURL("login_hint", "bob"))
	require.NoError(t, err)
	form := asked.Query()
	form.Set("person", "carol")
	resp, err = direct.PostForm(b.provider.Issuer()+"/authorize", form)
	require.Equal(t, "Carol", b.verified(t, b.idToken(t, answer(t, resp, err))).Name)
}

func TestAuthorizationIsRefusedByRedirectWithStateOrNotRedirectedAtAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tc := range []struct {
		name, err string
		more      []string
	}{
		{"nobody of that name", "login_required", []string{"prompt", "none", "login_hint", "mallory"}},
		{"prompt=none without a hint", "login_required", []string{"prompt", "none"}},
		{"implicit flow", "unsupported_response_type", []string{"response_type", "id_token"}},
		{"no openid", "invalid_scope", []string{"scope", "email"}},
		{"plain PKCE", "invalid_request", []string{"code_challenge_method", "plain"}},
		{"no PKCE", "invalid_request", []string{"code_challenge", ""}},
	} {
		back := get(t, b.authURL(tc.more...))
		require.Equal(t, tc.err, back.Get("error"), tc.name)
		require.Equal(t, "our-state", back.Get("state"), tc.name)
		require.Empty(t, back.Get("code"), tc.name)
	}
	for _, more := range [][]string{
		{"client_id", "nobody"},
		{"redirect_uri", "https://evil.example/callback"},
		{"redirect_uri", "http://127.0.0.1.evil.example/callback"},
		{"redirect_uri", "http://127.0.0.1@evil.example/callback"},
	} {
		resp, err := direct.Get(b.authURL(append(more, "prompt", "none", "login_hint", "alice")...))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, more)
	}
}

func TestACodeIsGoodOnceForItsClientRedirectAndVerifier(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := func() url.Values {
		return url.Values{
			"grant_type": {"authorization_code"}, "code": {get(t, b.authURL("prompt", "none", "login_hint", "alice")).Get("code")},
			"redirect_uri": {b.config.RedirectURL}, "client_id": {devidp.FriendClient}, "code_verifier": {b.verifier},
		}
	}
	redeem := func(form url.Values) (int, map[string]any) {
		resp, err := direct.PostForm(b.provider.Issuer()+"/token", form)
		require.NoError(t, err)
		defer resp.Body.Close()
		var body map[string]any
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
		return resp.StatusCode, body
	}
	for name, bad := range map[string][2]string{
		"another client":    {"client_id", devidp.OtherClient},
		"another redirect":  {"redirect_uri", "http://127.0.0.1:1/callback"},
		"another verifier":  {"code_verifier", oauth2.GenerateVerifier()},
		"a code never made": {"code", "x"},
	} {
		form := good()
		form.Set(bad[0], bad[1])
		status, body := redeem(form)
		require.Equal(t, http.StatusBadRequest, status, name)
		require.Equal(t, "invalid_grant", body["error"], name)
	}
	form := good()
	status, body := redeem(form)
	require.Equal(t, http.StatusOK, status)
	require.NotEmpty(t, body["id_token"])
	status, body = redeem(form)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "invalid_grant", body["error"])
}

func TestRotatedKeysVerifyUntilWithdrawn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.idToken(t, get(t, b.authURL("prompt", "none", "login_hint", "alice")))
	b.verified(t, old)
	fetched := b.provider.JWKSFetches()
	require.Positive(t, fetched)
	require.NoError(t, b.provider.RotateKey())
	b.verified(t, b.idToken(t, get(t, b.authURL("prompt", "none", "login_hint", "alice"))))
	require.Equal(t, fetched+1, b.provider.JWKSFetches(), "an unknown kid makes the client fetch")
	b.verified(t, old)
	b.provider.WithdrawOldKeys()
	fresh, err := oidc.NewProvider(t.Context(), b.provider.Issuer())
	require.NoError(t, err)
	_, err = fresh.Verifier(&oidc.Config{ClientID: devidp.FriendClient}).Verify(t.Context(), old)
	require.ErrorContains(t, err, "failed to verify signature")
}

func TestOnlyLoopbackIsServedAndTheContextEndsIt(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:0"} {
		_, err := devidp.Start(t.Context(), addr, devidp.Options{})
		require.ErrorContains(t, err, "loopback", addr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p, err := devidp.Start(ctx, "127.0.0.1:0", devidp.Options{})
	require.NoError(t, err)
	provider, err := oidc.NewProvider(ctx, p.Issuer())
	require.NoError(t, err)
	require.Equal(t, p.Issuer()+"/token", provider.Endpoint().TokenURL)
	cancel()
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err = http.Get(p.Issuer())
	require.Error(t, err)
}

func TestLoginRedirectsAreExactWhenListed(t *testing.T) {
	t.Parallel()
	p, err := devidp.Start(t.Context(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256, LoginRedirects: []string{"http://127.0.0.1:8080/login/callback"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	for redirect, status := range map[string]int{"http://127.0.0.1:8080/login/callback": http.StatusSeeOther, "http://127.0.0.1:9/login/callback": http.StatusBadRequest} {
		q := url.Values{"response_type": {"code"}, "client_id": {devidp.LoginClient}, "redirect_uri": {redirect}, "scope": {"openid"},
			"code_challenge": {oauth2.S256ChallengeFromVerifier("v")}, "code_challenge_method": {"S256"}, "prompt": {"none"}, "login_hint": {"bob"}}
		resp, err := direct.Get(p.Issuer() + "/authorize?" + q.Encode())
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, redirect)
	}
}
