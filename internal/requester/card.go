package requester

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"switchboard/internal/scope"
)

// Extension is the A2A extension that friend requests travel in.
const Extension = "urn:switchboard:a2a:friend-request:v1"

const cardSuffix = "/.well-known/agent-card.json"

// Issuer is an OpenID provider that the card's owner trusts, with the public
// native client that strangers sign in through.
type Issuer struct {
	Issuer       string   `json:"issuer"`
	ClientID     string   `json:"client_id"`
	ClientSecret string   `json:"client_secret,omitempty"` // where a provider demands one of installed apps; no secret
	RedirectURIs []string `json:"redirect_uris"`
	Scope        string   `json:"scope"`
}

// Card is what a persona's card says to somebody who wants to ask it for friendship.
type Card struct {
	URL                 string
	Name, Description   string
	A2A                 string // where friend requests go
	Aud, Persona        string // instance and slug: what a request is bound to
	Methods             []string
	Offers              []scope.Offer
	Issuers             []Issuer
	AuthorizationServer string
}

type wireCard struct {
	Name, Description   string
	SupportedInterfaces []struct {
		URL             string
		ProtocolBinding string
		ProtocolVersion string
	}
	Capabilities struct {
		Extensions []wireExtension
	}
}

type wireExtension struct {
	URI    string
	Params struct {
		V                   int           `json:"v"`
		Aud                 string        `json:"aud"`
		Persona             string        `json:"persona"`
		Methods             []string      `json:"methods"`
		Offers              []scope.Offer `json:"offers"`
		Issuers             []Issuer      `json:"issuers"`
		AuthorizationServer string        `json:"authorization_server"`
	}
}

// Find returns the card that target means: a card's URL, a persona's A2A URL, or
// an instance (its URL or its catalog's) that lists exactly one persona.
// A scheme may be left out.
func (q *Requester) Find(ctx context.Context, target string) (*Card, error) {
	u, err := checkURL(withScheme(target))
	if err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(u.String(), "/")
	switch {
	case strings.HasSuffix(text, cardSuffix):
		return q.card(ctx, text)
	case strings.Contains(u.Path, "/a2a/"):
		return q.card(ctx, text+cardSuffix)
	}
	links, err := q.Catalog(ctx, text)
	if err != nil {
		return nil, err
	}
	switch len(links) {
	case 0:
		return nil, fmt.Errorf("%s lists no persona; give the persona's own URL", text)
	case 1:
		return q.card(ctx, links[0])
	}
	return nil, fmt.Errorf("%s lists %d personas; give one of them:\n  %s", text, len(links), strings.Join(links, "\n  "))
}

// withScheme completes what a human types: https, on loopback http.
func withScheme(target string) string {
	if strings.Contains(target, "://") {
		return target
	}
	if u, err := url.Parse("http://" + target); err == nil && isLoopback(u.Hostname()) {
		return u.String()
	}
	return "https://" + target
}

// Catalog returns the card URLs that an instance lists (RFC 9727). Links that
// lead to another origin are left out.
func (q *Requester) Catalog(ctx context.Context, target string) ([]string, error) {
	u, err := checkURL(target)
	if err != nil {
		return nil, err
	}
	catalog := strings.TrimSuffix(u.String(), "/")
	if !strings.HasSuffix(catalog, "/.well-known/api-catalog") {
		catalog += "/.well-known/api-catalog"
	}
	var set struct {
		Linkset []struct{ Item []struct{ Href string } }
	}
	if err := q.getJSON(ctx, catalog, &set); err != nil {
		if errors.Is(err, errNoDocument) {
			return nil, fmt.Errorf("%s lists no personas: it has no catalog, so it is no instance, or the URL is another's", strings.TrimSuffix(u.String(), "/"))
		}
		return nil, fmt.Errorf("catalog: %w", err)
	}
	var links []string
	for _, context := range set.Linkset {
		for _, item := range context.Item {
			if l, err := url.Parse(item.Href); err == nil && l.Scheme == u.Scheme && l.Host == u.Host {
				links = append(links, item.Href)
			}
		}
	}
	return links, nil
}

func (q *Requester) card(ctx context.Context, target string) (*Card, error) {
	var w wireCard
	if err := q.getJSON(ctx, target, &w); err != nil {
		if errors.Is(err, errNoDocument) {
			return nil, fmt.Errorf("there is no persona at %s: it is unknown there, or off", strings.TrimSuffix(target, cardSuffix))
		}
		return nil, fmt.Errorf("card: %w", err)
	}
	c, err := readCard(target, w)
	if err != nil {
		return nil, fmt.Errorf("card %s: %w", target, err)
	}
	return c, nil
}

// readCard checks that a card speaks for the place it came from. The audience
// goes into what the human's OpenID provider signs, so a card must not be able
// to name somebody else's.
func readCard(target string, w wireCard) (*Card, error) {
	i := slices.IndexFunc(w.Capabilities.Extensions, func(e wireExtension) bool {
		return e.URI == Extension
	})
	if i < 0 {
		return nil, errors.New("this agent takes no friend requests: the extension " + Extension + " is missing")
	}
	p := w.Capabilities.Extensions[i].Params
	c := &Card{
		URL: target, Name: w.Name, Description: w.Description, Aud: p.Aud, Persona: p.Persona,
		Methods: p.Methods, Offers: p.Offers, Issuers: p.Issuers, AuthorizationServer: p.AuthorizationServer,
	}
	for _, face := range w.SupportedInterfaces {
		if face.ProtocolBinding == "JSONRPC" && face.ProtocolVersion == "1.0" {
			c.A2A = strings.TrimSuffix(face.URL, "/")
			break
		}
	}
	switch {
	case p.V != 1:
		return nil, fmt.Errorf("version %d of the friend request extension is unknown here", p.V)
	case !scope.QueueName(c.Persona):
		return nil, errors.New("its persona is no slug")
	case c.A2A != c.Aud+"/a2a/"+c.Persona:
		return nil, errors.New("its A2A 1.0 interface is not its own persona at its own audience")
	case target != c.A2A+cardSuffix:
		return nil, fmt.Errorf("it speaks for %s and not for the place it was fetched from", c.A2A)
	case c.AuthorizationServer != c.Aud:
		return nil, errors.New("its authorization server is another instance")
	}
	return c, nil
}
