package specs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"sort"
	"testing"
	"time"
	"unicode/utf8"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
	"switchboard/specs"
)

var update = flag.Bool("update", false, "make friend-request/vectors.json anew")

const vectorsFile = "friend-request/vectors.json"

// vectors is the file that outsiders check their own programs against.
type vectors struct {
	Comment     string             `json:"comment"`
	Canonical   []canonicalVector  `json:"canonical"`
	Thumbprints []thumbprintVector `json:"thumbprints"`
	Nonces      []nonceVector      `json:"nonces"`
	Target      targetVector       `json:"target"`
	Issuers     []issuerVector     `json:"issuers"`
	JWKS        jose.JSONWebKeySet `json:"jwks"`
	Requests    []requestVector    `json:"requests"`
}

type canonicalVector struct {
	In  string `json:"in"`
	Out string `json:"out"`
}

type thumbprintVector struct {
	JWK        json.RawMessage `json:"jwk"`
	Thumbprint string          `json:"thumbprint"`
}

type nonceVector struct {
	Aud     string `json:"aud"`
	Persona string `json:"persona"`
	JKT     string `json:"jkt"`
	Digest  string `json:"digest"`
	Salt    string `json:"salt"`
	Nonce   string `json:"nonce"`
}

type targetVector struct {
	Aud     string   `json:"aud"`
	Persona string   `json:"persona"`
	MayAsk  []string `json:"may_ask"`
	Now     int64    `json:"now"`
}

type issuerVector struct {
	Issuer       string   `json:"issuer"`
	Aliases      []string `json:"aliases,omitempty"`
	Algs         []string `json:"algs"`
	Provenance   bool     `json:"provenance"`
	ClientIDs    []string `json:"client_ids,omitempty"`
	LoginClient  string   `json:"login_client"`
	Identity     []string `json:"identity"`
	MaxAuthAge   int64    `json:"max_auth_age,omitempty"`
	ACR          []string `json:"acr,omitempty"`
	AMR          []string `json:"amr,omitempty"`
	EmailDomain  []string `json:"email_domain,omitempty"`
	HostedDomain []string `json:"hosted_domain,omitempty"`
	Tenant       []string `json:"tenant,omitempty"`
}

func (i issuerVector) entry(discovery string) provenance.Issuer {
	out := provenance.Issuer{
		Issuer: i.Issuer, Aliases: i.Aliases, Algs: i.Algs, Identity: i.Identity, Discovery: discovery,
		Login:      &provenance.LoginClient{ClientID: i.LoginClient},
		Conditions: provenance.Conditions{EmailDomain: i.EmailDomain, HostedDomain: i.HostedDomain, Tenant: i.Tenant},
	}
	if i.Provenance {
		out.Provenance = &provenance.ProvenanceClients{ClientIDs: i.ClientIDs, MaxAuthAge: time.Duration(i.MaxAuthAge) * time.Second, ACR: i.ACR, AMR: i.AMR}
	}
	return out
}

// requestVector is one data part as it comes over the wire. Digest, nonce and
// jkt are there when its form is good; reason is null when it is accepted.
type requestVector struct {
	Name       string  `json:"name"`
	Reason     *string `json:"reason"`
	NotJSON    bool    `json:"not_json,omitempty"`
	Part       string  `json:"part,omitempty"`
	PartBase64 []byte  `json:"part_base64,omitempty"`
	JKT        string  `json:"jkt,omitempty"`
	Digest     string  `json:"digest,omitempty"`
	Nonce      string  `json:"nonce,omitempty"`
}

func (r requestVector) bytes() []byte {
	if r.PartBase64 != nil {
		return r.PartBase64
	}
	return []byte(r.Part)
}

func verify(t *testing.T, v *provenance.Verifier, target provenance.Target, raw []byte) error {
	p, err := provenance.DecodePart(raw)
	if err != nil {
		return err
	}
	if p.Provenance != nil && p.Provenance.Method == provenance.MethodSignIn {
		_, err := v.VerifySignIn(target, p)
		return err
	}
	got, err := v.Verify(t.Context(), target, p)
	if err != nil {
		return err
	}
	if err := got.CheckTimes(target.Now); err != nil {
		return err
	}
	return got.CheckConditions()
}

func TestVectors(t *testing.T) {
	t.Parallel()
	if *update {
		makeVectors(t)
	}
	text, err := os.ReadFile(vectorsFile)
	require.NoError(t, err)
	var file vectors
	require.NoError(t, json.Unmarshal(text, &file))

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			_ = json.NewEncoder(w).Encode(file.JWKS)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": r.URL.Query().Get("issuer"), "jwks_uri": "http://" + r.Host + "/keys"})
	}))
	t.Cleanup(server.Close)
	entries := make([]provenance.Issuer, 0, len(file.Issuers))
	for _, i := range file.Issuers {
		entries = append(entries, i.entry(server.URL+"/?issuer="+i.Issuer))
	}
	v := provenance.NewVerifier(entries, provenance.NewKeys(provenance.GuardedClient(true)))
	target := provenance.Target{Aud: file.Target.Aud, Persona: file.Target.Persona, Allowed: provenance.Only(file.Target.MayAsk...), Now: time.Unix(file.Target.Now, 0)}

	for _, c := range file.Thumbprints {
		key, err := provenance.ParsePublicKey(c.JWK)
		require.NoError(t, err)
		require.Equal(t, c.Thumbprint, key.Thumbprint())
	}
	for _, c := range file.Nonces {
		require.Equal(t, c.Nonce, provenance.Nonce(c.Aud, c.Persona, c.JKT, c.Digest, c.Salt))
	}
	require.NotEmpty(t, file.Requests)
	for _, r := range file.Requests {
		err := verify(t, v, target, r.bytes())
		want := ""
		if r.Reason != nil {
			want = *r.Reason
		}
		require.Equal(t, refusal.Code(want), refusal.CodeOf(err), "%s: %v", r.Name, err)
		require.Equal(t, r.NotJSON, errors.Is(err, provenance.ErrNotJSON), r.Name)
		if p, err := provenance.DecodePart(r.bytes()); err == nil {
			require.Equal(t, r.Digest, p.Digest(), r.Name)
			require.Equal(t, r.JKT, p.Key.Thumbprint(), r.Name)
		}
	}
}

// mostPerReason keeps the file readable; the whole corpus runs beside the code.
const mostPerReason = 40

func makeVectors(t *testing.T) {
	t.Helper()
	now := time.Unix(1_790_000_000, 0)
	w := provenancetest.NewWorld(t, "https://bob.example", "reviewer", now)
	file := vectors{
		Comment: "Friend request vectors. Check your digests and nonces against requests[].digest and .nonce, your verifier against requests[].reason (null: accepted) with target, issuers and jwks. " +
			"All issuers share one key set here. Times are seconds since 1970. part is the text as it comes over the wire; part_base64 stands where it is no text.",
		Target: targetVector{Aud: w.Aud, Persona: w.Persona, MayAsk: w.MayAsk(), Now: now.Unix()},
		JWKS:   w.KeySet(),
	}
	for _, i := range w.Entries() {
		v := issuerVector{Issuer: i.Issuer, Aliases: i.Aliases, Algs: i.Algs, LoginClient: i.Login.ClientID, Identity: i.Identity,
			EmailDomain: i.Conditions.EmailDomain, HostedDomain: i.Conditions.HostedDomain, Tenant: i.Conditions.Tenant}
		if p := i.Provenance; p != nil {
			v.Provenance, v.ClientIDs, v.MaxAuthAge, v.ACR, v.AMR = true, p.ClientIDs, int64(p.MaxAuthAge/time.Second), p.ACR, p.AMR
		}
		file.Issuers = append(file.Issuers, v)
	}
	for _, in := range []string{
		`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
		`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
		`[2.0e1,20,9007199254740991,1e-7,0.000001,123456789012345.6]`,
	} {
		out, err := canonicalForm(in)
		require.NoError(t, err)
		file.Canonical = append(file.Canonical, canonicalVector{In: in, Out: out})
	}
	for _, jwk := range []string{
		`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`,
		`{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`,
	} {
		key, err := provenance.ParsePublicKey([]byte(jwk))
		require.NoError(t, err)
		file.Thumbprints = append(file.Thumbprints, thumbprintVector{JWK: json.RawMessage(jwk), Thumbprint: key.Thumbprint()})
	}
	accepted := provenancetest.Corpus(t, "../internal/provenance/testdata/accepted.json")
	refused := provenancetest.Corpus(t, "../internal/provenance/testdata/corpus.json")
	for _, c := range append(accepted, spread(refused)...) {
		r := requestOf(t, w, c)
		if len(r.bytes()) <= 4096 {
			file.Requests = append(file.Requests, r)
		}
		if r.Reason == nil && len(file.Nonces) < 3 {
			p, err := provenance.DecodePart(r.bytes())
			require.NoError(t, err)
			file.Nonces = append(file.Nonces, nonceVector{w.Aud, w.Persona, r.JKT, r.Digest, p.Provenance.Salt, r.Nonce})
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	require.NoError(t, enc.Encode(file))
	require.NoError(t, os.WriteFile(vectorsFile, out.Bytes(), 0o644)) //nolint:gosec // public
}

// canonicalForm is RFC 8785 by the second implementation at hand; the server's
// own is compared with it beside its code.
func canonicalForm(in string) (string, error) {
	v := jsontext.Value(in)
	err := v.Canonicalize()
	return string(v), err
}

// spread picks at most mostPerReason cases a reason, evenly.
func spread(cases []provenancetest.Case) []provenancetest.Case {
	count := map[string]int{}
	for _, c := range cases {
		count[c.Reason]++
	}
	seen := map[string]int{}
	var out []provenancetest.Case
	for _, c := range cases {
		n, total := seen[c.Reason], count[c.Reason]
		seen[c.Reason]++
		if total <= mostPerReason || n*mostPerReason/total != (n+1)*mostPerReason/total {
			out = append(out, c)
		}
	}
	sort.SliceStable(out, func(i, k int) bool { return out[i].Reason < out[k].Reason })
	return out
}

func requestOf(t *testing.T, w *provenancetest.World, c provenancetest.Case) requestVector {
	t.Helper()
	raw := w.Build(t, c)
	r := requestVector{Name: c.Name, NotJSON: c.NotJSON}
	if c.Reason != "" {
		r.Reason = &c.Reason
	}
	if utf8.Valid(raw) && len(raw) > 0 {
		r.Part = string(raw)
	} else {
		r.PartBase64 = raw
		if raw == nil {
			r.PartBase64 = []byte{}
		}
	}
	if p, err := provenance.DecodePart(raw); err == nil {
		r.JKT, r.Digest = p.Key.Thumbprint(), p.Digest()
		if p.Provenance != nil {
			r.Nonce = provenance.Nonce(w.Aud, w.Persona, r.JKT, r.Digest, p.Provenance.Salt)
		}
	}
	return r
}

// The published schema refuses nothing that the server accepts, and what the
// schema refuses, the server refuses too.
func TestTheSchemaAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(specs.FriendRequestSchema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("request.json", doc))
	schema, err := c.Compile("request.json")
	require.NoError(t, err)
	w := provenancetest.NewWorld(t, "https://bob.example", "reviewer", time.Unix(1_790_000_000, 0))
	inForm, bySchema := 0, 0
	for _, path := range []string{"../internal/provenance/testdata/accepted.json", "../internal/provenance/testdata/corpus.json"} {
		for _, c := range provenancetest.Corpus(t, path) {
			raw := w.Build(t, c)
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
			if err != nil {
				continue
			}
			p, decodeErr := provenance.DecodePart(raw)
			schemaErr := schema.Validate(value)
			if decodeErr == nil && p.Provenance != nil {
				require.NoError(t, schemaErr, c.Name)
				inForm++
			}
			if schemaErr != nil && (decodeErr != nil || p.Provenance == nil) {
				bySchema++
			}
		}
	}
	require.Greater(t, inForm, 200)
	require.Greater(t, bySchema, 100, "the schema must say most of what is refused for its form")
}

func TestTheOtherSchemasCompile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"statement", "params", "grant"} {
		text, err := os.ReadFile("friend-request/" + name + ".schema.json")
		require.NoError(t, err)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		c := jsonschema.NewCompiler()
		require.NoError(t, c.AddResource(name, doc))
		_, err = c.Compile(name)
		require.NoError(t, err, name)
	}
}
