package a2a

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	legacy "github.com/a2aproject/a2a-go/a2a"

	"switchboard/internal/persona"
	"switchboard/internal/provenance"
	"switchboard/internal/scope"
)

const mediaJSON = "application/json"

// prose is what a client must know and no field of a card can say.
const prose = "This agent takes no work over A2A: plain messages are refused. It takes friend requests (extension " + Extension + "), which a person decides. " +
	"Sending one needs no HTTP authentication, its provenance is in the message; reading, listing and canceling them, and the extended card, take a bearer token for this URL. " +
	"Once approved, the task's artifact names an MCP endpoint, where work is handed over."

func (h *Handler) url(slug string) string { return h.PublicURL + "/a2a/" + slug }

// card10 builds the A2A 1.0 card; it claims what works here now.
func (h *Handler) card10(p persona.Persona) *a2a.AgentCard {
	const scheme = a2a.SecuritySchemeName("friend")
	card := &a2a.AgentCard{
		Name:        p.Name,
		Description: strings.TrimSpace(p.Description + "\n\n" + prose),
		Version:     strconv.FormatInt(p.Version, 10),
		Provider:    &a2a.AgentProvider{Org: host(h.PublicURL), URL: h.PublicURL},
		SupportedInterfaces: []*a2a.AgentInterface{
			{URL: h.url(p.Slug), ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2a.ProtocolVersion(v1)},
			{URL: h.url(p.Slug), ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2a.ProtocolVersion(v03)},
		},
		Capabilities: a2a.AgentCapabilities{
			Streaming:         true,
			ExtendedAgentCard: true,
			Extensions:        []a2a.AgentExtension{h.extension(p)},
		},
		SecuritySchemes: a2a.NamedSecuritySchemes{
			scheme: a2a.OAuth2SecurityScheme{
				Description:       "An access token for this agent's URL as resource, had with the key of a friend request (private_key_jwt). Needed to get, list and cancel, and for the extended card; sending needs none.",
				Oauth2MetadataURL: h.PublicURL + "/.well-known/oauth-authorization-server",
				Flows:             a2a.ClientCredentialsOAuthFlow{TokenURL: h.PublicURL + "/oauth/token", Scopes: map[string]string{}},
			},
		},
		SecurityRequirements: a2a.SecurityRequirementsOptions{{}, {scheme: a2a.SecuritySchemeScopes{}}},
		DefaultInputModes:    []string{mediaJSON},
		DefaultOutputModes:   []string{mediaJSON},
		Skills:               []a2a.AgentSkill{},
	}
	for _, s := range p.Skills() {
		card.Skills = append(card.Skills, a2a.AgentSkill{ID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags, Examples: s.Examples})
	}
	return card
}

// extension holds what a stranger needs to ask.
func (h *Handler) extension(p persona.Persona) a2a.AgentExtension {
	offers := make([]scope.Offer, 0, len(p.Offers))
	for _, o := range p.Offers {
		o.Limits = o.Full().Partial() // the server's defaults spelled out: strangers need not know them
		offers = append(offers, o)
	}
	methods := []string{"oidc-nonce"}
	if h.SignIn != nil && h.SignIn(p) {
		methods = append(methods, "sign-in")
	}
	issuers := []map[string]any{}
	for _, i := range h.Issuers {
		if i.Provenance == nil || i.Provenance.PublishedClient == nil || !mayAsk(p.WhoMayAsk, i) {
			continue
		}
		c := i.Provenance.PublishedClient
		entry := map[string]any{"issuer": i.Issuer, "client_id": c.ClientID, "redirect_uris": c.RedirectURIs, "scope": c.Scope}
		if c.ClientSecret != "" {
			entry["client_secret"] = c.ClientSecret
		}
		issuers = append(issuers, entry)
	}
	return a2a.AgentExtension{
		URI: Extension, Required: true,
		Description: "A friend request: the scope that is wanted, why, and provenance signed by the requester's OpenID provider. It grants nothing; a person decides.",
		Params: map[string]any{
			"v": 1, "aud": h.PublicURL, "persona": p.Slug, "methods": methods, "statement_algs": []string{"EdDSA", "ES256"},
			"offers": offers, "max_pending": 1, "request_schema": h.PublicURL + "/specs/friend-request/request.schema.json",
			"authorization_server": h.PublicURL, "issuers": issuers,
		},
	}
}

func mayAsk(w persona.WhoMayAsk, i *provenance.Issuer) bool {
	if w.Nobody {
		return false
	}
	return len(w.Issuers) == 0 || slices.Contains(w.Issuers, i.Issuer)
}

func host(publicURL string) string {
	if u, err := url.Parse(publicURL); err == nil {
		return u.Host
	}
	return publicURL
}

// card03 is a card in the form of 0.3.
func (h *Handler) card03(c *a2a.AgentCard) *legacy.AgentCard {
	ext := c.Capabilities.Extensions[0]
	card := &legacy.AgentCard{
		ProtocolVersion: "0.3.0", Name: c.Name, Description: c.Description, Version: c.Version,
		URL: c.SupportedInterfaces[0].URL, PreferredTransport: legacy.TransportProtocolJSONRPC,
		Provider: &legacy.AgentProvider{Org: c.Provider.Org, URL: c.Provider.URL},
		Capabilities: legacy.AgentCapabilities{
			Streaming:  c.Capabilities.Streaming,
			Extensions: []legacy.AgentExtension{{URI: ext.URI, Required: true, Description: ext.Description, Params: ext.Params}},
		},
		SecuritySchemes: legacy.NamedSecuritySchemes{
			"friend": legacy.HTTPAuthSecurityScheme{
				Scheme:      "Bearer",
				Description: "An access token for this agent's URL as resource, from " + h.PublicURL + "/oauth/token with the key of a friend request (private_key_jwt). Needed to get, list and cancel, and for the extended card; sending needs none.",
			},
		},
		Security:          []legacy.SecurityRequirements{{}, {"friend": legacy.SecuritySchemeScopes{}}},
		DefaultInputModes: c.DefaultInputModes, DefaultOutputModes: c.DefaultOutputModes, Skills: []legacy.AgentSkill{},
		SupportsAuthenticatedExtendedCard: c.Capabilities.ExtendedAgentCard,
	}
	for _, s := range c.Skills {
		card.Skills = append(card.Skills, legacy.AgentSkill{ID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags, Examples: s.Examples})
	}
	return card
}

// card builds a persona's card in the form of a version.
func (h *Handler) card(v version, p persona.Persona) any { return h.inForm(v, h.card10(p)) }

func (h *Handler) inForm(v version, c *a2a.AgentCard) any {
	if v == v03 {
		return h.card03(c)
	}
	return c
}
