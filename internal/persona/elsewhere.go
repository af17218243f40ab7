package persona

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/gowebpki/jcs"

	"switchboard/internal/scope"
)

// Bounds of what is taken from another instance's catalog.
const (
	maxCards       = 200
	maxName        = 100
	maxRemoteText  = 2000
	maxSkills      = 64
	catalogTimeout = 2 * time.Minute
)

// friendExtension is what makes a card one of a persona.
const friendExtension = "urn:switchboard:a2a:friend-request:v1"

// fetch reads the catalog at base and every card that it lists on the same
// host. A card that cannot be read is left out.
func (d *Directory) fetch(ctx context.Context, base string) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
	defer cancel()
	body, err := d.get(ctx, base+"/.well-known/api-catalog")
	if err != nil {
		return nil, err
	}
	slugs, err := readCatalog(base, body)
	if err != nil {
		return nil, err
	}
	var keys jose.JSONWebKeySet
	if body, err = d.get(ctx, base+"/.well-known/jwks.json"); err == nil {
		err = json.Unmarshal(body, &keys)
	}
	if err != nil {
		return nil, fmt.Errorf("card keys: %w", err)
	}
	entries := []Entry{}
	for _, slug := range slugs {
		body, err := d.get(ctx, cardURL(base, slug))
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			continue
		}
		e, err := readEntry(base, slug, body, keys.Keys)
		if err != nil {
			continue
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func cardURL(base, slug string) string {
	return base + "/a2a/" + slug + "/.well-known/agent-card.json"
}

func (d *Directory) get(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := d.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers HTTP %d", url, resp.StatusCode)
	}
	return io.ReadAll(resp.Body) // the guarded client bounds it
}

// readCatalog returns the slugs of the cards that a catalog (RFC 9727) lists on
// its own host, sorted. Other links are left out: nothing is fetched from where
// a stranger points.
func readCatalog(base string, body []byte) ([]string, error) {
	var doc struct {
		Linkset []struct {
			Item []struct {
				Href string `json:"href"`
			} `json:"item"`
		} `json:"linkset"`
	}
	if err := jsonv2.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	var slugs []string
	for _, l := range doc.Linkset {
		for _, i := range l.Item {
			rest, ok := strings.CutPrefix(i.Href, base+"/a2a/")
			slug, ok2 := strings.CutSuffix(rest, "/.well-known/agent-card.json")
			if ok && ok2 && scope.QueueName(slug) {
				slugs = append(slugs, slug)
			}
		}
	}
	slices.Sort(slugs)
	slugs = slices.Compact(slugs)
	return slugs[:min(len(slugs), maxCards)], nil
}

var errNoPersonaCard = errors.New("not a persona's card")

// readEntry reads what the directory shows of an A2A 1.0 card.
func readEntry(base, slug string, body []byte, keys []jose.JSONWebKey) (Entry, error) {
	var card struct {
		Name         string `json:"name"`
		Description  string `json:"description"`
		Capabilities struct {
			Extensions []struct {
				URI    string `json:"uri"`
				Params struct {
					Aud     string `json:"aud"`
					Persona string `json:"persona"`
				} `json:"params"`
			} `json:"extensions"`
		} `json:"capabilities"`
		Skills     []EntrySkill `json:"skills"`
		Signatures []signature  `json:"signatures"`
	}
	if err := jsonv2.Unmarshal(body, &card); err != nil {
		return Entry{}, fmt.Errorf("card: %w", err)
	}
	ours := false
	for _, e := range card.Capabilities.Extensions {
		ours = ours || e.URI == friendExtension && e.Params.Aud == base && e.Params.Persona == slug
	}
	if !ours || card.Name == "" {
		return Entry{}, errNoPersonaCard
	}
	e := Entry{
		Slug: slug, Name: bounded(card.Name, maxName), Description: bounded(card.Description, maxRemoteText), Card: cardURL(base, slug),
		Source: base, Skills: []EntrySkill{}, Verified: signedBy(body, card.Signatures, keys),
	}
	for _, s := range card.Skills[:min(len(card.Skills), maxSkills)] {
		e.Skills = append(e.Skills, EntrySkill{ID: bounded(s.ID, maxName), Name: bounded(s.Name, maxName), Description: bounded(s.Description, maxRemoteText)})
	}
	return e, nil
}

func bounded(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

type signature struct {
	Protected string `json:"protected"`
	Signature string `json:"signature"`
}

// signedBy reports whether one of the signatures is by one of the keys, over the
// canonical card without its signatures (A2A 1.0 §8.4).
func signedBy(card []byte, signatures []signature, keys []jose.JSONWebKey) bool {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(card, &members); err != nil {
		return false
	}
	delete(members, "signatures")
	plain, err := json.Marshal(members)
	if err != nil {
		return false
	}
	canonical, err := jcs.Transform(plain)
	if err != nil {
		return false
	}
	payload := base64.RawURLEncoding.EncodeToString(canonical)
	for _, s := range signatures[:min(len(signatures), 4)] {
		jws, err := jose.ParseSignedCompact(s.Protected+"."+payload+"."+s.Signature, []jose.SignatureAlgorithm{jose.EdDSA, jose.ES256})
		if err != nil {
			continue
		}
		for _, k := range keys[:min(len(keys), 16)] {
			if k.KeyID == jws.Signatures[0].Header.KeyID && k.IsPublic() {
				if _, err := jws.Verify(k); err == nil {
					return true
				}
			}
		}
	}
	return false
}
