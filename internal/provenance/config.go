package provenance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// entry is an issuer as the operator writes it, in YAML or in JSON, which is
// YAML too.
type entry struct {
	Issuer                string           `yaml:"issuer"`
	Name                  string           `yaml:"name"`
	Aliases               []string         `yaml:"aliases"`
	Discovery             string           `yaml:"discovery"`
	Algs                  []string         `yaml:"algs"`
	Provenance            *entryProvenance `yaml:"provenance"`
	Login                 *entryLogin      `yaml:"login"`
	Identity              []string         `yaml:"identity"`
	Conditions            entryConditions  `yaml:"conditions"`
	EmailAuthoritativeFor []string         `yaml:"email_authoritative_for"`
	Ramp                  bool             `yaml:"ramp"`
}

type entryProvenance struct {
	Enabled         *bool           `yaml:"enabled"`
	ClientIDs       []string        `yaml:"client_ids"`
	PublishedClient *entryPublished `yaml:"published_client"`
	MaxAuthAge      int64           `yaml:"max_auth_age"` // seconds
	ACR             []string        `yaml:"acr"`
	AMR             []string        `yaml:"amr"`
}

type entryPublished struct {
	ClientID     string   `yaml:"client_id"`
	ClientSecret string   `yaml:"client_secret"`
	RedirectURIs []string `yaml:"redirect_uris"`
	Scope        string   `yaml:"scope"`
}

type entryLogin struct {
	ClientID     string `yaml:"client_id"`
	ClientSecret string `yaml:"client_secret"`
	Scope        string `yaml:"scope"`
}

type entryConditions struct {
	EmailDomain  []string `yaml:"email_domain"`
	HostedDomain []string `yaml:"hosted_domain"`
	Tenant       []string `yaml:"tenant"`
}

// ParseIssuers reads the operator's list of issuers: a sequence of entries, or
// a mapping whose only member "issuers" is one. It fills in the defaults and
// refuses what would be unsafe or useless, naming each line that is wrong. dev
// allows http on loopback.
func ParseIssuers(b []byte, dev bool) ([]Issuer, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("issuers: line 1: the list is empty")
		}
		return nil, readable(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("issuers: only one YAML document may be there")
	}
	list := doc.Content[0]
	if list.Kind == yaml.MappingNode && len(list.Content) == 2 && list.Content[0].Value == "issuers" {
		list = list.Content[1]
	}
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, fmt.Errorf("issuers: line %d: a list of issuers must stand here", list.Line)
	}
	var out []Issuer
	check := checker{dev: dev, seen: map[string]int{}}
	for _, node := range list.Content {
		e, err := decodeEntry(node)
		if err != nil {
			check.errs = append(check.errs, err)
			continue
		}
		check.node = node
		check.entry(e)
		out = append(out, e.issuer())
	}
	if err := errors.Join(check.errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// decodeEntry decodes strictly: a misspelt field would silently switch off a
// condition. yaml's own errors name the line.
func decodeEntry(node *yaml.Node) (entry, error) {
	var e entry
	if node.Kind != yaml.MappingNode {
		return e, fmt.Errorf("issuers: line %d: an issuer entry must be a mapping", node.Line)
	}
	if err := knownFields(node, entryFields); err != nil {
		return e, err
	}
	if err := node.Decode(&e); err != nil {
		return e, readable(err)
	}
	return e, nil
}

// entryFields are the members of an entry and of its mappings. (A yaml.Node
// cannot be decoded with KnownFields, and from the bytes the line would be lost.)
var entryFields = map[string][]string{
	"":                            {"issuer", "name", "aliases", "discovery", "algs", "provenance", "login", "identity", "conditions", "email_authoritative_for", "ramp"},
	"provenance":                  {"enabled", "client_ids", "published_client", "max_auth_age", "acr", "amr"},
	"provenance.published_client": {"client_id", "client_secret", "redirect_uris", "scope"},
	"login":                       {"client_id", "client_secret", "scope"},
	"conditions":                  {"email_domain", "hosted_domain", "tenant"},
}

func knownFields(node *yaml.Node, fields map[string][]string) error {
	var walk func(n *yaml.Node, path string) error
	walk = func(n *yaml.Node, path string) error {
		known, mapping := fields[path]
		if !mapping || n.Kind != yaml.MappingNode {
			return nil
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if !slices.Contains(known, key.Value) {
				return fmt.Errorf("issuers: line %d: unknown field %q", key.Line, key.Value)
			}
			if err := walk(value, strings.TrimPrefix(path+"."+key.Value, ".")); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(node, "")
}

// readable strips the decoder's own words and Go's types from an error.
var goType = regexp.MustCompile(` into \S+$`)

func readable(err error) error {
	var te *yaml.TypeError
	if errors.As(err, &te) {
		var errs []error
		for _, line := range te.Errors {
			errs = append(errs, fmt.Errorf("issuers: %s", goType.ReplaceAllString(line, "")))
		}
		return errors.Join(errs...)
	}
	return fmt.Errorf("issuers: %s", strings.TrimPrefix(err.Error(), "yaml: "))
}

func (e entry) issuer() Issuer {
	i := Issuer{
		Issuer: e.Issuer, Name: e.Name, Aliases: e.Aliases, Discovery: e.Discovery, Algs: e.Algs, Identity: e.Identity,
		Conditions:            Conditions{EmailDomain: lower(e.Conditions.EmailDomain), HostedDomain: lower(e.Conditions.HostedDomain), Tenant: e.Conditions.Tenant},
		EmailAuthoritativeFor: lower(e.EmailAuthoritativeFor), Ramp: e.Ramp,
	}
	if i.Name == "" {
		i.Name = i.Issuer
		if u, err := url.Parse(i.Issuer); err == nil && u.Host != "" {
			i.Name = u.Host
		}
	}
	if len(i.Algs) == 0 {
		i.Algs = []string{"RS256"} // what OpenID Connect Core 1.0 §15.1 makes every provider do
	}
	if len(i.Identity) == 0 {
		i.Identity = []string{"iss", "sub"}
		if i.templated() {
			// Entra's sub differs from client to client; oid within tid does not.
			i.Identity = []string{"iss", "tid", "oid"}
		}
	}
	if l := e.Login; l != nil {
		i.Login = &LoginClient{ClientID: l.ClientID, ClientSecret: l.ClientSecret, Scope: orDefault(l.Scope, "openid email profile")}
	}
	if p := e.Provenance; p != nil && (p.Enabled == nil || *p.Enabled) {
		i.Provenance = p.clients()
	}
	return i
}

func (p *entryProvenance) clients() *ProvenanceClients {
	out := &ProvenanceClients{ClientIDs: slices.Clone(p.ClientIDs), MaxAuthAge: time.Duration(p.MaxAuthAge) * time.Second, ACR: p.ACR, AMR: p.AMR}
	if c := p.PublishedClient; c != nil {
		out.PublishedClient = &PublishedClient{ClientID: c.ClientID, ClientSecret: c.ClientSecret, RedirectURIs: c.RedirectURIs, Scope: orDefault(c.Scope, "openid email")}
		if len(c.RedirectURIs) == 0 {
			out.PublishedClient.RedirectURIs = []string{"http://127.0.0.1/callback"}
		}
		if !slices.Contains(out.ClientIDs, c.ClientID) {
			out.ClientIDs = append(out.ClientIDs, c.ClientID)
		}
	}
	return out
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func lower(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.ToLower(s))
	}
	return out
}
