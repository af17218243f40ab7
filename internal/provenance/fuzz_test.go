package provenance_test

import (
	"encoding/json"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
)

// seeds adds the corpus' parts that are not huge.
func seeds(f *testing.F, w *provenancetest.World) {
	for _, path := range []string{"testdata/corpus.json", "testdata/accepted.json"} {
		for _, c := range provenancetest.Corpus(f, path) {
			if raw := w.Build(f, c); len(raw) < 4096 {
				f.Add(raw)
			}
		}
	}
}

// What ParseStrict takes, every reader understands in the same way.
func FuzzStrict(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"x\ud83d\ude00"],"b":null}`, `-0`, `1e21`, `"\ud800"`, `{"a":1,"a":2}`, `[[[]]]`, ` true `, "\xff", "\ufeff{}", `9007199254740991`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := provenance.ParseStrict(b, 1<<16)
		if err != nil {
			require.Contains(t, []refusal.Code{refusal.InvalidArgument, refusal.PayloadTooLarge}, refusal.CodeOf(err))
			return
		}
		require.True(t, json.Valid(v))
		c, err := provenance.Canonical(v)
		require.NoError(t, err)
		again, err := provenance.ParseStrict(c, 1<<20)
		require.NoError(t, err, "the canonical form is strict too")
		twice, err := provenance.Canonical(again)
		require.NoError(t, err)
		require.Equal(t, string(c), string(twice))
		second := jsontext.Value(append([]byte(nil), v...))
		require.NoError(t, second.Canonicalize())
		require.Equal(t, string(second), string(c), "two implementations of RFC 8785")
	})
}

// What a part says is what was digested and what a plain reader reads.
func FuzzPart(f *testing.F) {
	w := newWorld(f)
	seeds(f, w)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := provenance.DecodePart(b)
		if err != nil {
			require.Contains(t, []refusal.Code{refusal.InvalidArgument, refusal.PayloadTooLarge}, refusal.CodeOf(err))
			return
		}
		var plain struct {
			From   struct{ Name, Card string }
			Reason string
			Scope  struct{ Queues, Verbs []string }
			Key    struct{ KTY, Crv, X, Y string }
		}
		require.NoError(t, json.Unmarshal(b, &plain))
		require.Equal(t, plain.From.Name, p.From.Name)
		require.Equal(t, plain.From.Card, p.From.Card)
		require.Equal(t, plain.Reason, p.Reason)
		require.Equal(t, plain.Scope.Queues, p.Scope.Queues)
		require.Equal(t, plain.Key.X, p.Key.X)
		require.NotNil(t, p.Key.Public())

		again, err := provenance.DecodePart(p.Canonical())
		require.NoError(t, err)
		require.Equal(t, p.Digest(), again.Digest())
		require.Equal(t, p.Scope, again.Scope)
		require.NoError(t, p.Scope.Check())
	})
}

// A statement that verifies says what the request says, whatever its bytes.
func FuzzStatement(f *testing.F) {
	w := newWorld(f)
	v := newVerifier(w)
	raw := w.Build(f, provenancetest.Case{Method: provenance.MethodSignIn})
	part, err := provenance.DecodePart(raw)
	require.NoError(f, err)
	header := []byte(`{"alg":"EdDSA","typ":"friend-statement+jwt"}`)
	segments := strings.Split(part.Provenance.Statement, ".")
	require.Len(f, segments, 3)
	payload, err := provenance.VerifyJWT(part.Provenance.Statement, part.Key, provenance.StatementType)
	require.NoError(f, err)
	f.Add(header, payload, true)
	f.Add(header, []byte(`{"aud":["https://bob.example"],"iat":"1"}`), true)
	f.Add([]byte(`{"alg":"none"}`), []byte(`{}`), true)
	f.Add([]byte(part.Provenance.Statement), []byte{}, false)
	f.Fuzz(func(t *testing.T, header, payload []byte, signed bool) {
		p := part
		text := string(header)
		if signed {
			text = w.SignBytes(t, "agent", header, payload)
		}
		p.Provenance = &provenance.Provenance{Method: provenance.MethodSignIn, Salt: part.Provenance.Salt, Statement: text}
		got, err := v.VerifySignIn(w.Target(), p)
		if err != nil {
			require.Equal(t, refusal.StatementInvalid, refusal.CodeOf(err))
			return
		}
		if !signed {
			require.Equal(t, part.Provenance.Statement, text, "nobody else can sign")
			return
		}
		var said struct {
			Aud     string `json:"aud"`
			Persona string `json:"persona"`
			Digest  string `json:"digest"`
			Salt    string `json:"salt"`
		}
		require.NoError(t, jsonv2.Unmarshal(payload, &said))
		require.Equal(t, [4]string{testAud, testPersona, part.Digest(), p.Provenance.Salt}, [4]string{said.Aud, said.Persona, said.Digest, said.Salt})
		require.NotEmpty(t, got.StatementID)
	})
}

// An ID token that verifies was made for this request, whatever its bytes.
func FuzzIDToken(f *testing.F) {
	w := newWorld(f)
	v := newVerifier(w)
	part, err := provenance.DecodePart(w.Build(f, provenancetest.Case{Token: provenancetest.JWS{SignedBy: "ed25519", Alg: "EdDSA"}}))
	require.NoError(f, err)
	verified, err := v.Verify(f.Context(), w.Target(), part)
	require.NoError(f, err)
	header := []byte(`{"alg":"EdDSA","kid":"ed25519"}`)
	f.Add(header, []byte(verified.Claims), true)
	f.Add(header, []byte(`{"iss":"plain.example","aud":["friend-client"],"sub":"a","exp":1e400}`), true)
	f.Add([]byte(`{"alg":"HS256","crit":["x"]}`), []byte(`[]`), true)
	f.Add([]byte(part.Provenance.IDToken), []byte{}, false)
	known := map[refusal.Code]bool{
		refusal.IssuerUntrusted: true, refusal.IDTokenSignature: true, refusal.IDTokenAudience: true, refusal.NonceMismatch: true, refusal.StatementInvalid: true,
		refusal.IDTokenExpired: true, refusal.IssuerCondition: true,
	}
	f.Fuzz(func(t *testing.T, header, payload []byte, signed bool) {
		p := part
		text := string(header)
		if signed {
			text = w.SignBytes(t, "ed25519", header, payload)
		}
		p.Provenance = &provenance.Provenance{Method: provenance.MethodOIDCNonce, IDToken: text, Salt: part.Provenance.Salt, Statement: part.Provenance.Statement}
		got, err := v.Verify(t.Context(), w.Target(), p)
		if err == nil {
			if err = got.CheckTimes(w.Now); err == nil {
				err = got.CheckConditions()
			}
		}
		if err != nil {
			require.True(t, known[refusal.CodeOf(err)], "%v", err)
			return
		}
		var said struct {
			Nonce string `json:"nonce"`
			Sub   string `json:"sub"`
		}
		require.NoError(t, jsonv2.Unmarshal(got.Claims, &said))
		require.Equal(t, verified.Nonce, said.Nonce)
		require.Equal(t, "alice", said.Sub)
		require.Equal(t, w.URL("plain"), got.IssuerName)
	})
}
