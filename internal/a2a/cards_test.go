package a2a_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
)

func (b *bundle) card(path string) (servertest.Reply, map[string]any) {
	b.t.Helper()
	r := b.i.Stranger(b.t, "").Do(http.MethodGet, path+b.home.Slug+"/.well-known/agent-card.json", nil)
	require.Equal(b.t, http.StatusOK, r.Status)
	var card map[string]any
	r.Into(b.t, &card)
	return r, card
}

const (
	cardsV1  = "/a2a/"
	cardsV03 = "/a2a-v03/"
)

// TestTheCardOf10IsStrict: it passes a reader that knows A2A 1.0's schema and
// takes no other member. a2a-go writes the scopes of a requirement as a plain
// list, which that reader does not know; this is put right first.
func TestTheCardOf10IsStrict(t *testing.T) {
	t.Parallel()
	b := setup(t, servertest.V1)
	_, card := b.card(cardsV1)
	for _, m := range []string{"name", "description", "supportedInterfaces", "version", "capabilities", "defaultInputModes", "defaultOutputModes", "skills", "signatures"} {
		require.NotEmpty(t, card[m], m)
	}
	require.Equal(t, []any{map[string]any{"schemes": map[string]any{}}, map[string]any{"schemes": map[string]any{"friend": []any{}}}}, card["securityRequirements"])
	card["securityRequirements"].([]any)[1].(map[string]any)["schemes"] = map[string]any{"friend": map[string]any{}}
	text, err := json.Marshal(card)
	require.NoError(t, err)
	var strict a2apb.AgentCard
	require.NoError(t, protojson.Unmarshal(text, &strict))
	require.True(t, strict.GetCapabilities().GetStreaming())
	require.True(t, strict.GetCapabilities().GetExtendedAgentCard())
	require.False(t, strict.GetCapabilities().GetPushNotifications())
	require.Equal(t, b.resource(), strict.GetSupportedInterfaces()[0].GetUrl())
	require.Equal(t, "1.0", strict.GetSupportedInterfaces()[0].GetProtocolVersion())
	require.NotEmpty(t, strict.GetSecuritySchemes()["friend"].GetOauth2SecurityScheme().GetFlows().GetClientCredentials().GetTokenUrl())
	require.Len(t, strict.GetSkills(), 1)

	extensions := strict.GetCapabilities().GetExtensions()
	require.Len(t, extensions, 1)
	require.Equal(t, servertest.Extension, extensions[0].GetUri())
	require.True(t, extensions[0].GetRequired())
	params := extensions[0].GetParams().AsMap()
	require.ElementsMatch(t, []string{"v", "aud", "persona", "methods", "statement_algs", "offers", "max_pending", "request_schema", "authorization_server", "issuers"}, keys(params))
	require.Equal(t, b.i.URL, params["aud"])
	require.Equal(t, map[string]any{
		"issuer": b.i.Issuer.Issuer(), "client_id": "switchboard-friend", "redirect_uris": []any{"http://127.0.0.1/callback"}, "scope": "openid email",
	}, params["issuers"].([]any)[0])
	limits := params["offers"].([]any)[0].(map[string]any)["limits"].(map[string]any)
	require.Len(t, limits, 6, "every limit is spelled out")
	schema := b.i.Stranger(t, "").Do(http.MethodGet, params["request_schema"].(string), nil)
	require.Equal(t, http.StatusOK, schema.Status)
	for _, said := range []string{"no work over A2A", "bearer token", "no HTTP authentication"} {
		require.Contains(t, strict.GetDescription(), said)
	}
}

func keys(m map[string]any) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// TestTheCardOf03 has the members of 0.3 and none of 1.0.
func TestTheCardOf03(t *testing.T) {
	t.Parallel()
	b := setup(t, servertest.V03)
	_, card := b.card(cardsV03)
	require.ElementsMatch(t, []string{
		"protocolVersion", "name", "description", "url", "preferredTransport", "provider", "version", "capabilities", "securitySchemes", "security",
		"defaultInputModes", "defaultOutputModes", "skills", "supportsAuthenticatedExtendedCard", "signatures",
	}, keys(card))
	require.Equal(t, "0.3.0", card["protocolVersion"])
	require.Equal(t, b.resource(), card["url"])
	require.Equal(t, "JSONRPC", card["preferredTransport"])
	require.Equal(t, []any{map[string]any{}, map[string]any{"friend": []any{}}}, card["security"])
	scheme := card["securitySchemes"].(map[string]any)["friend"].(map[string]any)
	require.Equal(t, "http", scheme["type"])
	require.Equal(t, "Bearer", scheme["scheme"])
}

// TestCardsAreSigned: a second implementation of JCS and JWS finds the first
// signature good over the card as served, the second over the card without
// empty values, and neither after a change; after a rotation both the old key
// and the new one are published.
func TestCardsAreSigned(t *testing.T) {
	t.Parallel()
	b := setup(t, servertest.V1)
	var set jose.JSONWebKeySet
	b.i.Stranger(t, "").Do(http.MethodGet, "/.well-known/jwks.json", nil).Into(t, &set)
	require.NotEmpty(t, set.Keys)
	for _, k := range set.Keys {
		require.True(t, k.IsPublic())
		thumbprint, err := k.Thumbprint(5) // crypto.SHA256
		require.NoError(t, err)
		require.Equal(t, base64.RawURLEncoding.EncodeToString(thumbprint), k.KeyID)
	}
	for _, path := range []string{cardsV1, cardsV03} {
		_, card := b.card(path)
		signatures := card["signatures"].([]any)
		require.Len(t, signatures, 2)
		delete(card, "signatures")
		require.True(t, goodSignature(t, signatures[0], card, set))
		require.True(t, goodSignature(t, signatures[1], stripped(card), set))
		require.False(t, goodSignature(t, signatures[0], stripped(card), set))
		card["name"] = "mallory"
		require.False(t, goodSignature(t, signatures[0], card, set))
		require.False(t, goodSignature(t, signatures[1], stripped(card), set))
	}
}

// goodSignature verifies a detached JWS over the canonical form of the card.
func goodSignature(t *testing.T, signature any, card any, set jose.JSONWebKeySet) bool {
	t.Helper()
	text, err := json.Marshal(card)
	require.NoError(t, err)
	payload := jsontext.Value(text)
	require.NoError(t, payload.Canonicalize())
	s := signature.(map[string]any)
	jws, err := jose.ParseDetached(s["protected"].(string)+".."+s["signature"].(string), payload, []jose.SignatureAlgorithm{jose.EdDSA, jose.ES256})
	require.NoError(t, err)
	head := jws.Signatures[0].Protected
	require.Equal(t, "JOSE", head.ExtraHeaders[jose.HeaderType])
	found := set.Key(head.KeyID)
	require.Len(t, found, 1)
	return jws.DetachedVerify(payload, found[0]) == nil
}

// stripped drops what is empty, as the verifiers of the Python and JavaScript
// SDKs do.
func stripped(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if e = stripped(e); e != nil {
				out[k] = e
			}
		}
		if len(out) > 0 {
			return out
		}
		return nil
	case []any:
		out := slices.DeleteFunc(apply(v, stripped), func(e any) bool { return e == nil })
		if len(out) > 0 {
			return out
		}
		return nil
	case string:
		if v == "" {
			return nil
		}
	}
	return v
}

func apply(in []any, f func(any) any) []any {
	out := make([]any, 0, len(in))
	for _, e := range in {
		out = append(out, f(e))
	}
	return out
}

// TestPublicPathsAreCached: entity tags hold until something changes.
func TestPublicPathsAreCached(t *testing.T) {
	t.Parallel()
	b := setup(t, servertest.V1)
	s := b.i.Stranger(t, "")
	for path, media := range map[string]string{
		cardsV1 + "reviewer/.well-known/agent-card.json":  "application/json",
		cardsV03 + "reviewer/.well-known/agent-card.json": "application/json",
		"/.well-known/api-catalog":                        "application/linkset+json",
		"/.well-known/jwks.json":                          "application/jwk-set+json",
	} {
		r := s.Do(http.MethodGet, path, nil)
		require.Equal(t, http.StatusOK, r.Status)
		require.True(t, strings.HasPrefix(r.Header.Get("Content-Type"), media), r.Header.Get("Content-Type"))
		require.Contains(t, r.Header.Get("Cache-Control"), "max-age=")
		tag := r.Header.Get("ETag")
		require.NotEmpty(t, tag)
		require.Equal(t, r.Body, s.Do(http.MethodGet, path, nil).Body)
		head := s.Do(http.MethodHead, path, nil)
		require.Equal(t, http.StatusOK, head.Status)
		require.Empty(t, head.Body)
		require.Equal(t, tag, head.Header.Get("ETag"))
		require.Equal(t, r.Header.Get("Content-Type"), head.Header.Get("Content-Type"))
		for _, match := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			same := s.Do(http.MethodGet, path, nil, "If-None-Match", match)
			require.Equal(t, http.StatusNotModified, same.Status, match)
			require.Empty(t, same.Body)
			require.Equal(t, tag, same.Header.Get("ETag"))
		}
		require.Equal(t, http.StatusOK, s.Do(http.MethodGet, path, nil, "If-None-Match", `"other"`).Status)
	}
	before, _ := b.card(cardsV1)
	b.bob.Must(http.MethodPatch, "/v1/personas/"+b.home.PersonaID, map[string]any{"description": "Reviews what touches billing."}, nil)
	after := s.Do(http.MethodGet, cardsV1+"reviewer/.well-known/agent-card.json", nil, "If-None-Match", before.Header.Get("ETag"))
	require.Equal(t, http.StatusOK, after.Status)
	require.Contains(t, after.Body, "Reviews what touches billing.")
}

// TestTheCatalogHoldsListedPersonasOnly, one link each, and holds an address
// back that asks too often.
func TestTheCatalogHoldsListedPersonasOnly(t *testing.T) {
	t.Parallel()
	b := &bundle{t: t, v: servertest.V1, i: servertest.Start(t, func(c *server.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})}
	b.bob = b.i.SignIn(t, "bob")
	for _, slug := range []string{"listed", "unlisted", "off"} {
		h := b.bob.Publish(slug)
		b.bob.Must(http.MethodPatch, "/v1/personas/"+h.PersonaID, map[string]any{"visibility": slug}, nil)
	}
	s := b.i.Stranger(t, "")
	var catalog map[string]any
	r := s.Do(http.MethodGet, "/.well-known/api-catalog", nil)
	r.Into(t, &catalog)
	require.Equal(t, map[string]any{"linkset": []any{map[string]any{
		"anchor": b.i.URL + "/.well-known/api-catalog",
		"item":   []any{map[string]any{"href": b.i.URL + "/a2a/listed/.well-known/agent-card.json", "type": "application/json"}},
	}}}, catalog)
	require.Contains(t, r.Header.Get("Link"), `rel="api-catalog"`)
	require.Equal(t, http.StatusOK, s.Do(http.MethodGet, "/a2a/unlisted/.well-known/agent-card.json", nil).Status)

	const from = "X-Forwarded-For"
	var over servertest.Reply
	for n := range 1000 { // while this runs, two a second come back
		if over = s.Do(http.MethodGet, "/.well-known/api-catalog", nil, from, "192.0.2.1"); over.Status != http.StatusOK {
			require.GreaterOrEqual(t, n, 120)
			break
		}
	}
	require.Equal(t, http.StatusTooManyRequests, over.Status)
	require.NotEmpty(t, over.Header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, s.Do(http.MethodGet, "/.well-known/api-catalog", nil, from, "192.0.2.2").Status)
	require.Equal(t, http.StatusOK, s.Do(http.MethodGet, "/.well-known/api-catalog", nil).Status, "loopback is exempt in development")
}

// TestTheExtendedCardShowsTheCallersOwnGrants, as they are now, and nothing of
// anybody else.
func TestTheExtendedCardShowsTheCallersOwnGrants(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, v servertest.A2A, b *bundle) {
		alice, carol := b.i.Agent(t, "alice"), b.i.Agent(t, "carol")
		theirs := carol.Ask(t, v, b.home)
		b.decide(theirs.ID, "approve", map[string]any{})
		mine := alice.Ask(t, v, b.home)
		bearer := alice.Token(t, b.resource())
		extended := func() []any {
			r := b.call(bearer, v.Extended, nil)
			require.Nil(t, r.Error, r.Body)
			require.NotContains(t, r.Body, "carol")
			var card map[string]any
			require.NoError(t, json.Unmarshal(r.Result, &card))
			_, public := b.card(map[string]string{"1.0": cardsV1, "0.3": cardsV03}[v.Version])
			require.ElementsMatch(t, keys(public), keys(card))
			params := card["capabilities"].(map[string]any)["extensions"].([]any)[0].(map[string]any)["params"].(map[string]any)
			schema, err := jsonschema.NewCompiler().Compile("../../specs/friend-request/params.schema.json")
			require.NoError(t, err)
			require.NoError(t, schema.Validate(params))
			return params["grants"].([]any)
		}
		require.Empty(t, extended(), "nothing is granted yet")
		b.decide(mine.ID, "approve", map[string]any{"scope": map[string]any{
			"queues": []string{b.home.Queue}, "verbs": []string{"create_for", "todo_status"}, "limits": map[string]any{"max_open": 3},
		}})
		grants := extended()
		require.Len(t, grants, 1)
		g := grants[0].(map[string]any)
		require.Equal(t, "active", g["state"])
		granted := g["granted_scope"].(map[string]any)
		require.Equal(t, []any{"create_for", "todo_status"}, granted["verbs"])
		require.EqualValues(t, 3, granted["limits"].(map[string]any)["max_open"])

		path := "/v1/grants/" + g["grant_id"].(string)
		b.bob.Post(path+"/narrow", map[string]any{"scope": map[string]any{"queues": []string{b.home.Queue}, "verbs": []string{"todo_status"}}}, nil)
		require.Equal(t, []any{"todo_status"}, extended()[0].(map[string]any)["granted_scope"].(map[string]any)["verbs"])
		b.bob.Post(path+"/pause", map[string]any{}, nil)
		require.Equal(t, "paused", extended()[0].(map[string]any)["state"])
		b.bob.Post(path+"/revoke", map[string]any{}, nil)
		require.Empty(t, extended())
	})
}
