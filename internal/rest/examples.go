package rest

import (
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

type object = map[string]any

// examples are bodies of requests, by operation.
var examples = map[string]object{
	"update-me":    {"notifications": object{"email": true, "webhook": "https://bob.example/hook", "digest": "daily"}},
	"create-agent": {"name": "bob's reviewer", "description": "Reviews pull requests."},
	"update-agent": {"name": "reviewer"},
	"create-queue": {"name": "reviews", "description": "Pull requests that wait for a review."},
	"update-queue": {"paused": true},
	"create-persona": {
		"agent_id": exampleID, "slug": "reviewer", "name": "Reviewer", "description": "Reviews pull requests that touch billing.",
		"queues": []string{"reviews"}, "visibility": "listed", "who_may_ask": "anyone",
		"offers": []object{{"queue": "reviews", "verbs": []string{"create_for", "todo_status"}, "limits": object{"max_open": 20, "per_hour": 60}}},
	},
	"update-persona":         {"visibility": "unlisted"},
	"vend-endpoint":          {"kind": "home", "agent_id": exampleID, "persona_id": exampleID, "queues": []string{"reviews"}},
	"narrow-endpoint":        {"verbs": []string{"claim_next", "heartbeat", "complete", "fail"}},
	"approve-friend-request": {"scope": object{"queues": []string{"reviews"}, "verbs": []string{"create_for"}, "limits": object{"per_hour": 10}}, "note": "Billing only, please.", "offer_version": 3},
	"decline-friend-request": {"note": "Ask me again in autumn.", "may_ask_again": true},
	"narrow-grant":           {"scope": object{"queues": []string{"reviews"}, "verbs": []string{"todo_status"}}},
	"revoke-grant":           {"open_todos": "finish"},
	"create-todo":            {"queue": "reviews", "title": "Review pull request 7", "payload": object{"pull_request": 7}, "priority": 5},
	"cancel-todo":            {"reason": "It was merged meanwhile."},
	"answer-todo":            {"text": "The one of 2027."},
	"create-api-token":       {"name": "laptop"},
	"redeem-program-sign-in": {"code": "AQ…", "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "redirect_uri": "http://127.0.0.1:53682/callback"},
	"send-friend-request":    {"type": "friend-request", "from": object{"name": "release-bot"}, "reason": "Hand you pull requests that touch billing for review.", "scope": object{"queues": []string{"reviews"}, "verbs": []string{"create_for", "todo_status"}}, "key": object{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}, "provenance": object{"method": "oidc-nonce", "id_token": "eyJ…", "salt": "c2FsdCBvZiAxNiBieXRlcw", "statement": "eyJ…"}},
}

// sampled are optional members that an example of an answer has all the same.
var sampled = []string{"title", "credential", "token", "identity", "url", "email", "session"}

// samples are values of members, by name.
var samples = object{
	"name": "release-bot", "description": "Reviews pull requests.", "prompt": "", "queue": "reviews", "queues": "reviews", "slug": "reviewer", "persona": "reviewer",
	"card": "https://bob.example/a2a/reviewer/.well-known/agent-card.json", "source": "https://bob.example", "reason": "Hand you pull requests that touch billing for review.",
	"title": "Review pull request 7", "issuer": "https://accounts.example", "subject": "248289761001", "email": "alice@example.com", "key": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
	"media_type": "text/plain", "credential": "sbe_…", "token": "sba_…", "url": "https://bob.example/mcp/" + exampleID, "mcp_endpoint": "https://bob.example/mcp/" + exampleID,
	"max_open": 20, "per_hour": 60, "max_payload_bytes": 65536, "max_priority": 5, "max_delay_days": 7, "expires_in_days": 90, "priority": 5, "attempt": 0, "max_attempts": 5,
	"retention_days": 30, "ready": 3, "leased": 1, "input_required": 0, "fresh": true, "resident": true, "verified": true, "id": exampleID,
}

// sample is an example of an answer, made of its schema: what is always there,
// and of the rest what is sampled.
func (a *api) sample(name string, s *huma.Schema) any {
	switch {
	case s.Ref != "":
		return a.sample(name, a.huma.OpenAPI().Components.Schemas.SchemaFromRef(s.Ref))
	case len(s.Examples) > 0:
		return s.Examples[0]
	case s.Nullable:
		return nil
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.OneOf) > 0:
		return a.sample(name, s.OneOf[0])
	case s.Format == "date-time":
		return "2027-01-31T09:00:00Z"
	}
	switch s.Type {
	case huma.TypeObject:
		out := object{}
		for member, of := range s.Properties {
			if slices.Contains(s.Required, member) || slices.Contains(sampled, member) {
				out[member] = a.sample(member, of)
			}
		}
		return out
	case huma.TypeArray:
		return []any{a.sample(name, s.Items)}
	}
	v := samples[name]
	_, text := v.(string)
	_, number := v.(int)
	_, truth := v.(bool)
	if text && s.Type == huma.TypeString || number && s.Type == huma.TypeInteger || truth && s.Type == huma.TypeBoolean {
		return v
	}
	return map[string]any{huma.TypeString: "…", huma.TypeInteger: 1, huma.TypeNumber: 1, huma.TypeBoolean: false}[s.Type]
}
