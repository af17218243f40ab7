package a2a

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// one is an instance's only persona, and its friends: what is asked well is
// taken, so that the fuzzer reaches every way of answering.
type one struct{ persona persona.Persona }

func (o one) BySlug(_ context.Context, slug string) (persona.Persona, error) {
	if slug != o.persona.Slug {
		return persona.Persona{}, refusal.New(refusal.NotFound, "there is no such persona")
	}
	return o.persona, nil
}

func (o one) Catalog(context.Context, string, string, int) ([]persona.Persona, string, error) {
	return []persona.Persona{o.persona}, "", nil
}

func (o one) request(state friend.RequestState) friend.Request {
	return friend.Request{ID: uuid.Max, Persona: o.persona.Slug, State: state, UpdatedAt: time.Unix(1, 0)}
}

func (o one) Submit(_ context.Context, s friend.Submission) (friend.Request, bool, error) {
	if _, err := provenance.DecodePart(s.Part); err != nil {
		return friend.Request{}, false, err
	}
	return o.request(friend.Declined), false, nil
}

func (o one) GetOwn(_ context.Context, _ friend.Asker, id uuid.UUID) (friend.Request, error) {
	if id != uuid.Max {
		return friend.Request{}, refusal.New(refusal.NotFound, "no such friend request")
	}
	r := o.request(friend.Approved)
	r.Artifact = &friend.Artifact{}
	return r, nil
}

func (o one) ListOwn(_ context.Context, _ friend.Asker, _ friend.AskerFilter, cursor string, _ int) ([]friend.Request, string, int, error) {
	if cursor != "" {
		return nil, "", 0, refusal.Invalid("cursor", "not one of ours")
	}
	return []friend.Request{o.request(friend.Pending)}, "next", 2, nil
}

func (o one) Withdraw(context.Context, friend.Asker, uuid.UUID) (friend.Request, error) {
	return friend.Request{}, refusal.New(refusal.Conflict, "already declined")
}

func (o one) Follow(uuid.UUID) (<-chan struct{}, func())                 { return nil, func() {} }
func (o one) Held(context.Context, friend.Asker) ([]friend.Grant, error) { return nil, nil }

type cardKey struct{}

func (cardKey) Sign(_ context.Context, card []byte) (string, string, error) {
	_, err := jcs.Transform(card)
	return "protected", "signature", err
}

func (cardKey) Public(context.Context) ([]jose.JSONWebKey, error) { return nil, nil }

func handlerOf(p persona.Persona) *Handler {
	return New(Deps{
		PublicURL: "https://bob.example", Personas: one{p}, Friends: one{p}, Keys: cardKey{},
		Requester:     func(*http.Request, string) (endpoint.Requester, error) { return endpoint.Requester{Key: "key"}, nil },
		ClientAddress: func(*http.Request) netip.Addr { return netip.Addr{} },
	})
}

// FuzzRPC: whatever bytes arrive, the answer is one JSON-RPC answer, or the
// events of one, and nothing panics.
func FuzzRPC(f *testing.F) {
	for _, v := range []version{v1, v03} {
		for method := range methods[v] {
			for _, params := range []string{
				`{}`, `{"id":"ffffffff-ffff-ffff-ffff-ffffffffffff","historyLength":1}`, `{"pageSize":2,"status":"TASK_STATE_COMPLETED","statusTimestampAfter":"2026-01-01T00:00:00Z"}`,
				`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"type":"friend-request"},"mediaType":"application/json"}]}}`,
				`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"type":"friend-request"}}]},"configuration":{"blocking":true}}`,
			} {
				f.Add(string(v), `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
			}
		}
	}
	f.Add("1.0", `[]`)
	f.Add("1.0", `{"jsonrpc":"2.0","id":"\ud800","method":"x"}`)
	f.Add("9", "\xff")
	h := handlerOf(persona.Persona{Slug: "reviewer", Name: "reviewer"})
	mux := http.NewServeMux()
	h.Routes(mux)
	f.Fuzz(func(t *testing.T, version, body string) {
		r := httptest.NewRequest(http.MethodPost, "/a2a/reviewer", strings.NewReader(body))
		r.Header["A2a-Version"] = []string{version}
		r.Header.Set("A2A-Extensions", Extension)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		text := w.Body.String()
		if events, ok := strings.CutPrefix(text, "data: "); ok {
			text, _, _ = strings.Cut(events, "\n\n")
		}
		var a struct {
			JSONRPC string           `json:"jsonrpc"`
			ID      *json.RawMessage `json:"id"`
			Result  json.RawMessage  `json:"result"`
			Error   *struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
				Data    []struct {
					Type   string `json:"@type"`
					Reason string `json:"reason"`
					Domain string `json:"domain"`
				} `json:"data"`
			} `json:"error"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &a), "%q", text)
		require.Equal(t, "2.0", a.JSONRPC)
		require.Contains(t, []int{200, 401, 413}, w.Code)
		require.NotEqual(t, a.Error == nil, a.Result == nil)
		if a.Error != nil {
			require.NotEqual(t, -32603, a.Error.Code, "%q", text)
			require.NotEmpty(t, a.Error.Message)
			require.NotEmpty(t, a.Error.Data)
			require.NotEmpty(t, a.Error.Data[0].Reason)
			require.NotEmpty(t, a.Error.Data[0].Domain)
		}
	})
}

// FuzzCard: whatever a persona says of itself, its cards are JSON that both
// parsers of a2a-go read and that can be signed.
func FuzzCard(f *testing.F) {
	f.Add("Reviewer", "Reads <b>&amp; \u2028", "reviews", "create_for", int64(3), "https://id.example")
	f.Add("", "", "", "", int64(-1), "")
	f.Add("\xff", "\x00\u202e", "a-1", "answer", int64(1)<<62, "\u0000")
	f.Fuzz(func(t *testing.T, name, description, queue, verb string, limit int64, issuer string) {
		h := handlerOf(persona.Persona{})
		h.Issuers = []*provenance.Issuer{{Issuer: issuer, Provenance: &provenance.ProvenanceClients{PublishedClient: &provenance.PublishedClient{ClientID: name}}}}
		p := persona.Persona{Slug: "reviewer", Name: name, Description: description, Offers: []scope.Offer{
			{Queue: queue, Verbs: []scope.Verb{scope.Verb(verb), scope.CreateFor}, Limits: scope.Partial{MaxOpen: &limit}}, {Queue: queue},
		}}
		parse := map[version]func([]byte) (*a2a.AgentCard, error){
			v1: func(b []byte) (*a2a.AgentCard, error) {
				var c a2a.AgentCard
				return &c, json.Unmarshal(b, &c)
			},
			v03: a2av0.NewAgentCardParser(),
		}
		for v, read := range parse {
			body, err := h.signed(t.Context(), h.card(v, p))
			require.NoError(t, err)
			card, err := read(body)
			require.NoError(t, err, "%s", body)
			require.Len(t, card.Signatures, 2)
			require.Len(t, card.Skills, 2)
			require.Equal(t, strings.ToValidUTF8(name, "\ufffd") == name, card.Name == name)
		}
	})
}
