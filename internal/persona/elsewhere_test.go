package persona

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

const elsewhereCard = `{"name":"Reviewer","description":"Reviews.","capabilities":{"extensions":[{"uri":"urn:switchboard:a2a:friend-request:v1","params":{"aud":"https://bob.example","persona":"reviewer"}}]},"skills":[{"id":"reviews","name":"Reviews","description":"x"}]}`

func TestReadEntry(t *testing.T) {
	t.Parallel()
	e, err := readEntry("https://bob.example", "reviewer", []byte(elsewhereCard), nil)
	require.NoError(t, err)
	require.Equal(t, "Reviewer", e.Name)
	require.False(t, e.Verified, "nobody signed it")
	for what, card := range map[string]string{
		"another instance's":  strings.ReplaceAll(elsewhereCard, "https://bob.example", "https://carol.example"),
		"another persona's":   strings.ReplaceAll(elsewhereCard, `"persona":"reviewer"`, `"persona":"other"`),
		"without extension":   strings.ReplaceAll(elsewhereCard, "friend-request", "something"),
		"without a name":      strings.ReplaceAll(elsewhereCard, `"name":"Reviewer",`, ""),
		"no JSON":             "<html>",
		"a member twice":      strings.Replace(elsewhereCard, `"name":"Reviewer",`, `"name":"Reviewer","name":"Other",`, 1),
		"a list":              "[]",
		"names of other case": strings.ReplaceAll(elsewhereCard, `"name":"Reviewer"`, `"Name":"Reviewer"`),
	} {
		_, err := readEntry("https://bob.example", "reviewer", []byte(card), nil)
		require.Error(t, err, what)
	}
	long := strings.ReplaceAll(elsewhereCard, `"Reviews."`, `"`+strings.Repeat("é", 5000)+`"`)
	e, err = readEntry("https://bob.example", "reviewer", []byte(long), nil)
	require.NoError(t, err)
	require.Len(t, []rune(e.Description), maxRemoteText)
}

func TestReadCatalog_KeepsToItsOwnHost(t *testing.T) {
	t.Parallel()
	slugs, err := readCatalog("https://bob.example", []byte(`{"linkset":[{"item":[
		{"href":"https://bob.example/a2a/b/.well-known/agent-card.json"},
		{"href":"https://bob.example/a2a/a/.well-known/agent-card.json"},
		{"href":"https://bob.example/a2a/a/.well-known/agent-card.json"},
		{"href":"https://evil.example/a2a/a/.well-known/agent-card.json"},
		{"href":"https://bob.example.evil.example/a2a/a/.well-known/agent-card.json"},
		{"href":"https://bob.example/a2a/../../internal/.well-known/agent-card.json"},
		{"href":"https://bob.example/a2a/A/.well-known/agent-card.json"}]}]}`))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, slugs)
}

func FuzzReadEntry(f *testing.F) {
	f.Add([]byte(elsewhereCard))
	f.Add([]byte(`{"signatures":[{"protected":"eyJhbGciOiJFZERTQSJ9","signature":""}]}`))
	var keys jose.JSONWebKeySet
	require.NoError(f, json.Unmarshal([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`), &keys))
	f.Fuzz(func(t *testing.T, card []byte) {
		e, err := readEntry("https://bob.example", "reviewer", card, keys.Keys)
		if err == nil {
			require.False(t, e.Verified, "nothing here is signed by that key")
			require.LessOrEqual(t, len([]rune(e.Description)), maxRemoteText)
			require.LessOrEqual(t, len(e.Skills), maxSkills)
		}
	})
}
