package oauth_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/oauth"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
)

func TestServerMetadata(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.do(t, http.MethodGet, "/.well-known/oauth-authorization-server", "", "", nil)
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	m := r.json(t)
	require.Equal(t, b.url, m["issuer"])
	for name, path := range map[string]string{"authorization": "authorize", "token": "token", "revocation": "revoke"} {
		require.Equal(t, b.url+"/oauth/"+path, m[name+"_endpoint"])
	}
	require.Equal(t, []any{"private_key_jwt", "none"}, m["token_endpoint_auth_methods_supported"])
	require.Equal(t, []any{"client_credentials", "authorization_code", "refresh_token"}, m["grant_types_supported"])
	require.Equal(t, []any{"S256"}, m["code_challenge_methods_supported"])
	require.Equal(t, true, m["client_id_metadata_document_supported"])
	require.Equal(t, true, m["authorization_response_iss_parameter_supported"])
}

// Resource metadata is computed: it is the same for what exists and what does not.
func TestResourceMetadata(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/mcp/" + b.peer.String(), "/mcp/" + newID().String(), "/a2a/reviewer", "/a2a/nobody"} {
		r := b.do(t, http.MethodGet, "/.well-known/oauth-protected-resource"+path, "", "", nil)
		require.Equal(t, http.StatusOK, r.status)
		require.Equal(t, `{"resource":"`+b.url+path+`","authorization_servers":["`+b.url+`"],"bearer_methods_supported":["header"],`+
			`"dpop_signing_alg_values_supported":["EdDSA","Ed25519","ES256"]}`, r.body)
	}
	for _, path := range []string{"", "/mcp/x", "/mcp/" + strings.ToUpper(b.peer.String()), "/mcp/" + b.peer.String() + "/", "/a2a/No", "/a2a/a/b", "/a2a/%00", "/v1/me"} {
		r := b.do(t, http.MethodGet, "/.well-known/oauth-protected-resource"+path, "", "", nil)
		require.Equal(t, http.StatusNotFound, r.status, path)
	}
}

func TestAKeysToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.token(t, b.keyGrant(t, b.mcp()), nil)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
	m := r.json(t)
	require.Regexp(t, `^sbt_`, m["access_token"])
	require.Equal(t, "Bearer", m["token_type"])
	require.InDelta(t, 900, m["expires_in"], 0)
	require.Equal(t, "create_for:reviews todo_status:reviews", m["scope"])
	require.NotContains(t, m, "refresh_token")

	r = b.token(t, b.keyGrant(t, b.url+"/a2a/reviewer"), nil)
	require.NotContains(t, r.json(t), "scope")
}

// Each refusal is one body, whatever the reason.
func TestRefusalsOfTheTokenEndpoint(t *testing.T) { //nolint:tparallel // what follows the subtests looks at what they did
	t.Parallel()
	b := setup(t)
	const (
		client  = `{"error":"invalid_client","error_description":"client authentication failed"}`
		target  = `{"error":"invalid_target","error_description":"the resource is not open to this client"}`
		scope   = `{"error":"invalid_scope","error_description":"the scope is beyond what was granted"}`
		grant   = `{"error":"invalid_grant","error_description":"the grant is invalid, expired or was used before"}`
		proof   = `{"error":"invalid_dpop_proof","error_description":"the DPoP proof is missing or invalid"}`
		kind    = `{"error":"unsupported_grant_type","error_description":"grant_type is client_credentials, authorization_code or refresh_token"}`
		twice   = `{"error":"invalid_request","error_description":"a parameter was given more than once"}`
		broken  = `{"error":"invalid_request","error_description":"the parameters cannot be read"}`
		missing = `{"error":"invalid_request","error_description":"grant_type is missing"}`
	)
	with := func(bend func(url.Values)) string {
		f := b.keyGrant(t, b.mcp())
		bend(f)
		return f.Encode()
	}
	code := func(bend map[string]string) string {
		f := url.Values{"grant_type": {"authorization_code"}, "code": {"x"}, "client_id": {"x"}, "redirect_uri": {"x"}, "code_verifier": {"x"}}
		for k, v := range bend {
			f.Set(k, v)
		}
		return f.Encode()
	}
	for name, tt := range map[string]struct {
		body   string
		header map[string]string
		status int
		want   string
	}{
		"nothing":           {"", nil, 400, missing},
		"another grant":     {with(func(f url.Values) { f.Set("grant_type", "password") }), nil, 400, kind},
		"parameter twice":   {with(func(f url.Values) { f.Add("resource", b.mcp()) }), nil, 400, twice},
		"unknown one twice": {with(func(f url.Values) { f["x"] = []string{"1", "1"} }), nil, 400, twice},
		"broken escape":     {"grant_type=%zz", nil, 400, broken},
		"semicolon":         {"grant_type=client_credentials;x=y", nil, 400, broken},
		"no assertion":      {with(func(f url.Values) { f.Del("client_assertion") }), nil, 401, client},
		"no assertion type": {with(func(f url.Values) { f.Del("client_assertion_type") }), nil, 401, client},
		"another assertion type": {with(func(f url.Values) {
			f.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:saml2-bearer")
		}), nil, 401, client},
		"a secret":             {with(func(f url.Values) { f.Set("client_secret", "x") }), nil, 401, client},
		"basic authentication": {with(func(url.Values) {}), map[string]string{"Authorization": "Basic eDp5"}, 401, client},
		"another client_id":    {with(func(f url.Values) { f.Set("client_id", "x") }), nil, 401, client},
		"a broken assertion":   {with(func(f url.Values) { f.Set("client_assertion", "x.y.z") }), nil, 401, client},
		"no resource":          {with(func(f url.Values) { f.Del("resource") }), nil, 400, target},
		"home endpoint":        {with(func(f url.Values) { f.Set("resource", b.url+"/mcp/"+b.home.String()) }), nil, 400, target},
		"unknown endpoint":     {with(func(f url.Values) { f.Set("resource", b.url+"/mcp/"+newID().String()) }), nil, 400, target},
		"the instance":         {with(func(f url.Values) { f.Set("resource", b.url) }), nil, 400, target},
		"a wider scope":        {with(func(f url.Values) { f.Set("scope", "create_for:reviews cancel_todo:reviews") }), nil, 400, scope},
		"a broken proof":       {with(func(url.Values) {}), map[string]string{"DPoP": "x"}, 400, proof},
		"an unknown code":      {code(nil), nil, 400, grant},
		"an unknown refresh":   {"grant_type=refresh_token&refresh_token=x&client_id=x", nil, 400, grant},
		"a key's refresh":      {with(func(f url.Values) { f.Set("grant_type", "refresh_token"); f.Set("refresh_token", "x") }), nil, 401, client},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.do(t, http.MethodPost, "/oauth/token", "", tt.body, tt.header)
			require.Equal(t, tt.status, r.status, r.body)
			require.Equal(t, tt.want, r.body)
			require.Equal(t, "no-store", r.header.Get("Cache-Control"))
			require.Equal(t, "application/json", r.header.Get("Content-Type"))
		})
	}

	r := b.do(t, http.MethodPost, "/oauth/token", "", "x="+strings.Repeat("x", 64<<10), nil)
	require.Equal(t, http.StatusRequestEntityTooLarge, r.status)
	r = b.do(t, http.MethodPost, "/oauth/token", "", "{}", map[string]string{"Content-Type": "application/json"})
	require.Equal(t, http.StatusBadRequest, r.status)
	r = b.do(t, http.MethodGet, "/oauth/token", "", "", nil)
	require.Equal(t, http.StatusMethodNotAllowed, r.status)
	r = b.do(t, http.MethodPost, "/oauth/token?"+with(func(url.Values) {}), "", "", nil)
	require.JSONEq(t, missing, r.body, "what stands in the URL, and so in logs, does not count")
}

func TestABoundTokenAtTheTokenEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	prove := func(htu string) string {
		proof, err := b.key.SignJWT(map[string]any{"typ": "dpop+jwt", "jwk": b.key.Public().JWK()},
			map[string]any{"jti": newID().String(), "htm": "POST", "htu": htu, "iat": time.Now().Unix()})
		require.NoError(t, err)
		return proof
	}
	r := b.token(t, b.keyGrant(t, b.mcp()), map[string]string{"DPoP": prove(b.url + "/oauth/token")})
	require.Equal(t, "DPoP", r.json(t)["token_type"], r.body)
	c, err := b.endpoints.Authenticate(t.Context(), b.peer, r.json(t)["access_token"].(string))
	require.NoError(t, err)
	require.Equal(t, b.key.Thumbprint(), c.ProofKey)
	r = b.token(t, b.keyGrant(t, b.mcp()), map[string]string{"DPoP": prove(b.url + "/oauth/revoke")})
	require.Equal(t, "invalid_dpop_proof", r.json(t)["error"])

	// A proof without a good assertion is not remembered: strangers cost no rows.
	unspent := prove(b.url + "/oauth/token")
	f := b.keyGrant(t, b.mcp())
	f.Set("client_assertion", "x.y.z")
	r = b.token(t, f, map[string]string{"DPoP": unspent})
	require.Equal(t, "invalid_client", r.json(t)["error"])
	for kind, field := range map[string]string{"authorization_code": "code", "refresh_token": "refresh_token"} {
		for _, secret := range []string{"x", "sbc_" + strings.Repeat("a", 43), "sbr_" + strings.Repeat("a", 43)} {
			f := url.Values{"grant_type": {kind}, "client_id": {"x"}, "redirect_uri": {redirect}, "code_verifier": {strings.Repeat("a", 43)}, field: {secret}}
			r = b.token(t, f, map[string]string{"DPoP": unspent})
			require.Equal(t, "invalid_grant", r.json(t)["error"], "%s %s", kind, secret)
		}
	}
	r = b.token(t, b.keyGrant(t, b.mcp()), map[string]string{"DPoP": unspent})
	require.Equal(t, "DPoP", r.json(t)["token_type"], r.body)
}

func TestRevocationTellsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bearer := b.token(t, b.keyGrant(t, b.mcp()), nil).json(t)["access_token"].(string)
	for _, token := range []string{bearer, bearer, "x"} {
		r := b.do(t, http.MethodPost, "/oauth/revoke", "", url.Values{"token": {token}, "token_type_hint": {"refresh_token"}}.Encode(), nil)
		require.Equal(t, http.StatusOK, r.status)
		require.Empty(t, r.body)
	}
	_, err := b.endpoints.Authenticate(t.Context(), b.peer, bearer)
	require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
	r := b.do(t, http.MethodPost, "/oauth/revoke", "", "", nil)
	require.Equal(t, http.StatusBadRequest, r.status)
}

// A sign-in's code is redeemed with the request's own key, and the answer is the
// key's token for the persona.
func TestRedeemingASignIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	form := func() url.Values {
		f := b.keyGrant(t, b.url+"/a2a/reviewer")
		f.Set("grant_type", "authorization_code")
		f.Set("code", "c")
		f.Set("code_verifier", "v")
		f.Set("redirect_uri", redirect)
		return f
	}
	var got oauth.SignIn
	b.signIns = func(_ context.Context, s oauth.SignIn) error { got = s; return nil }
	r := b.token(t, form(), nil)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, oauth.SignIn{Code: "c", Verifier: "v", RedirectURI: redirect, Persona: "reviewer", Key: b.key.Thumbprint()}, got)
	who, err := b.endpoints.AuthenticateRequester(t.Context(), "reviewer", r.json(t)["access_token"].(string))
	require.NoError(t, err)
	require.Equal(t, b.key.Thumbprint(), who.Key)

	for _, tt := range []struct {
		err    error
		status int
		want   string
	}{
		{refusal.Invalid("code", "inside words"), 400, `{"error":"invalid_grant","error_description":"the grant is invalid, expired or was used before"}`},
		{refusal.New(refusal.Conflict, "you have a pending request there"), 400, `{"error":"invalid_grant","error_description":"conflict: you have a pending request there"}`},
		{errors.New("a fault"), 500, `{"error":"server_error"}`},
	} {
		b.signIns = func(context.Context, oauth.SignIn) error { return tt.err }
		r := b.token(t, form(), nil)
		require.Equal(t, tt.status, r.status)
		require.Equal(t, tt.want, r.body)
	}
	b.signIns = func(context.Context, oauth.SignIn) error { t.Error("redeemed"); return nil }
	f := form()
	f.Set("resource", b.mcp())
	require.Equal(t, "invalid_target", b.token(t, f, nil).json(t)["error"])
	stranger, err := provenance.NewKey()
	require.NoError(t, err)
	b.key = stranger
	require.Equal(t, "invalid_client", b.token(t, form(), nil).json(t)["error"])
}
