package provenancetest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
)

// Case is a good request changed in one way. Everything in it is optional;
// without changes the request is good.
//
// In strings, "@now", "@now-700" stand for seconds since 1970, "@iss:plain" and
// "@iss:plain|/x" for an issuer with nothing or /x after it, "@server|/x" for a
// place on the world's server, where a fetch would be noticed, "@jwk:agent" and
// "@jkt:agent" for a public key and its thumbprint, and "{{x*300}}" for 300
// times x.
type Case struct {
	Name    string `json:"name"`
	Reason  string `json:"reason"` // expected code; "" for accepted
	NotJSON bool   `json:"not_json"`

	Issuer    string         `json:"issuer"`    // default plain
	Method    string         `json:"method"`    // default oidc-nonce
	Key       string         `json:"key"`       // the agent's, default agent
	Request   map[string]any `json:"request"`   // merged (RFC 7396) before digest and signatures
	Nonce     map[string]any `json:"nonce"`     // replaces inputs of the nonce
	Token     JWS            `json:"token"`     // the ID token
	Statement JWS            `json:"statement"` // the statement
	Part      map[string]any `json:"part"`      // merged after signing
	Replace   [][2]string    `json:"replace"`   // text replaced after that, each must occur
	Raw       *string        `json:"raw"`       // the whole part instead
	Base64    string         `json:"base64"`    // the whole part instead, for bytes that are no text
}

// JWS says how a token differs from a good one.
type JWS struct {
	Claims    map[string]any `json:"claims"` // merged before signing; null takes one out
	Header    map[string]any `json:"header"`
	Alg       string         `json:"alg"`       // of the header
	SignedBy  string         `json:"signed_by"` // a key of the world; default a, or the agent's
	HMAC      string         `json:"hmac"`      // signed with this spelling of the public key: pem, der, jwk, n, empty
	Payload   *string        `json:"payload"`   // bytes signed instead of the claims
	HeaderRaw *string        `json:"header_raw"`
	After     map[string]any `json:"after"`     // claims merged after signing
	Signature string         `json:"signature"` // none, zeros, short, long, der, other
	Text      *string        `json:"text"`      // the whole token instead
	Append    string         `json:"append"`
	Prepend   string         `json:"prepend"`
}

// Corpus reads cases from a file.
func Corpus(t testing.TB, path string) []Case {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	var cases []Case
	require.NoError(t, dec.Decode(&cases))
	return cases
}

// Build returns the data part that the case describes.
func (w *World) Build(t testing.TB, c Case) []byte {
	t.Helper()
	if c.Base64 != "" {
		b, err := base64.StdEncoding.DecodeString(c.Base64)
		require.NoError(t, err)
		return b
	}
	if c.Raw != nil {
		return []byte(w.text(*c.Raw))
	}
	key := w.agents[or(c.Key, "agent")]
	part := w.request(key)
	merge(part, w.expand(c.Request).(map[string]any))
	digest := digestOf(t, part)
	salt := rand.Text()[:22] + "A" // 23 characters decode to 17 bytes
	salt = encode([]byte(salt))
	part["provenance"] = w.prove(t, c, key, digest, salt)
	merge(part, w.expand(c.Part).(map[string]any))
	raw, err := json.Marshal(part)
	require.NoError(t, err)
	text := string(raw)
	for _, r := range c.Replace {
		old, with := w.text(r[0]), w.text(r[1])
		require.Contains(t, text, old, "the case %q replaces nothing", c.Name)
		text = strings.Replace(text, old, with, 1)
	}
	return []byte(text)
}

func (w *World) request(key *provenance.Key) map[string]any {
	return map[string]any{
		"type":   "friend-request",
		"from":   map[string]any{"name": "release-bot", "card": "https://alice.example/a2a/release-bot/.well-known/agent-card.json"},
		"reason": "Hand you pull requests that touch billing for review.",
		"scope":  map[string]any{"queues": []any{"reviews"}, "verbs": []any{"create_for", "todo_status"}, "limits": map[string]any{"max_open": 20}},
		"key":    jwk(key),
	}
}

func jwk(key *provenance.Key) map[string]any {
	var out map[string]any
	if err := json.Unmarshal(key.Public().JWK(), &out); err != nil {
		panic(err)
	}
	return out
}

// prove makes token and statement.
func (w *World) prove(t testing.TB, c Case, key *provenance.Key, digest, salt string) map[string]any {
	t.Helper()
	in := map[string]any{"aud": w.Aud, "persona": w.Persona, "jkt": key.Thumbprint(), "digest": digest, "salt": salt}
	maps.Copy(in, w.expand(c.Nonce).(map[string]any))
	text := func(name string) string { s, _ := in[name].(string); return s }
	claims := w.claims(or(c.Issuer, "plain"), provenance.Nonce(text("aud"), text("persona"), text("jkt"), text("digest"), text("salt")))
	statement := map[string]any{
		"aud": w.Aud, "persona": w.Persona, "digest": digest, "salt": salt, "jti": rand.Text(), "iat": w.Now.Unix(), "exp": w.Now.Unix() + 300,
	}
	out := map[string]any{"method": or(c.Method, provenance.MethodOIDCNonce), "salt": salt}
	if c.Method != provenance.MethodSignIn {
		out["id_token"] = w.jws(t, c.Token, "a", map[string]any{"alg": "RS256", "typ": "JWT", "kid": or(c.Token.SignedBy, "a")}, claims)
		statement["iss"], statement["sub"] = claims["iss"], claims["sub"]
	}
	alg := "EdDSA"
	if strings.HasSuffix(or(c.Key, "agent"), "es256") {
		alg = "ES256"
	}
	out["statement"] = w.jws(t, c.Statement, or(c.Key, "agent"), map[string]any{"alg": alg, "typ": provenance.StatementType}, statement)
	return out
}

// claims are a good ID token's of alice.
func (w *World) claims(issuer, nonce string) map[string]any {
	c := map[string]any{
		"iss": w.URL(issuer), "sub": "alice", "aud": Client, "azp": Client, "nonce": nonce, "iat": w.Now.Unix(), "exp": w.Now.Unix() + 300,
		"auth_time": w.Now.Unix(), "email": "alice@alice.example", "email_verified": true, "name": "Alice",
	}
	if issuer == "strict" {
		merge(c, map[string]any{"hd": "alice.example", "tid": TenantID, "acr": "gold", "amr": []any{"pwd", "mfa"}})
	}
	if issuer == "tenants" {
		merge(c, map[string]any{"tid": TenantID, "oid": "object-1"})
	}
	return c
}

// IDToken returns a good token of the issuer with this nonce and these changes.
func (w *World) IDToken(t testing.TB, issuer, nonce string, change JWS) string {
	t.Helper()
	return w.jws(t, change, "a", map[string]any{"alg": "RS256", "typ": "JWT", "kid": or(change.SignedBy, "a")}, w.claims(issuer, nonce))
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// merge is RFC 7396.
func merge(into, patch map[string]any) {
	for name, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(into, name)
		case map[string]any:
			below, ok := into[name].(map[string]any)
			if !ok {
				below = map[string]any{}
				into[name] = below
			}
			merge(below, v)
		default:
			into[name] = value
		}
	}
}

var (
	moment = regexp.MustCompile(`^@now([+-][0-9]+)?$`)
	repeat = regexp.MustCompile(`\{\{(.+?)\*([0-9]+)\}\}`)
)

// expand replaces the macros in all strings of a value.
func (w *World) expand(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, below := range v {
			out[w.text(name)] = w.expand(below)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, below := range v {
			out[i] = w.expand(below)
		}
		return out
	case string:
		if m := moment.FindStringSubmatch(v); m != nil {
			n, _ := strconv.ParseInt(m[1], 10, 64)
			return w.Now.Add(time.Duration(n) * time.Second).Unix()
		}
		if name, ok := strings.CutPrefix(v, "@jwk:"); ok {
			return jwk(w.agents[name])
		}
		return w.text(v)
	}
	return v
}

func (w *World) text(s string) string {
	if name, ok := strings.CutPrefix(s, "@iss:"); ok {
		name, rest, _ := strings.Cut(name, "|")
		return w.URL(name) + rest
	}
	if path, ok := strings.CutPrefix(s, "@server|"); ok {
		return w.Server.URL + path
	}
	if name, ok := strings.CutPrefix(s, "@jkt:"); ok {
		return w.agents[name].Thumbprint()
	}
	return repeat.ReplaceAllStringFunc(s, func(m string) string {
		parts := repeat.FindStringSubmatch(m)
		n, _ := strconv.Atoi(parts[2])
		return strings.Repeat(parts[1], n)
	})
}
