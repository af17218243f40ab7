package endpoint

import (
	"testing"
	"time"

	"switchboard/internal/provenance"
)

// FuzzAssertion: whatever a stranger sends as an assertion, reading it ends, and
// nothing that the key did not sign is accepted.
func FuzzAssertion(f *testing.F) {
	key, err := provenance.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	now := time.Now()
	good, err := provenance.ClientAssertion(key, "https://bob.example", now)
	if err != nil {
		f.Fatal(err)
	}
	if _, _, err := checkAssertion(good, "", "https://bob.example", key.Public(), now); err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{good, "", "..", "e30.e30.", good[:len(good)-1], good + "A", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = issuerOf(text)
		jti, until, err := checkAssertion(text, "", "https://bob.example", key.Public(), now)
		if err != nil {
			return
		}
		if text != good {
			t.Fatalf("accepted %q", text)
		}
		if jti == "" || !until.After(now) || until.After(now.Add((assertionSeconds+2*leewaySeconds)*time.Second)) {
			t.Fatalf("kept as %q until %v", jti, until)
		}
	})
}

// FuzzProof is the same for DPoP proofs and their URLs.
func FuzzProof(f *testing.F) {
	key, err := provenance.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	good, err := key.SignJWT(map[string]any{"typ": "dpop+jwt", "jwk": key.Public().JWK()},
		map[string]any{"jti": "1", "htm": "POST", "htu": "https://bob.example/mcp/x", "iat": 1})
	if err != nil {
		f.Fatal(err)
	}
	for _, url := range []string{"https://bob.example/mcp/x", "https://bob.example:443/mcp/x?y", "https://bob.example/mcp/%78", "://", ""} {
		f.Add(good, url)
	}
	f.Fuzz(func(t *testing.T, proof, url string) {
		_ = sameURL(url, "https://bob.example/mcp/x")
		k, _, err := checkProof("POST", "https://bob.example/mcp/x", proof, "")
		if err == nil && k == key.Public() && proof != good {
			t.Fatalf("accepted %q", proof)
		}
	})
}
