package provenance

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// checker validates entries and collects what is wrong, each with its line.
type checker struct {
	dev  bool
	node *yaml.Node     // the entry at hand
	seen map[string]int // spelling of an issuer → line
	errs []error
}

// wrongf notes an error at the line of the member that path leads to, or of the
// nearest one above it that is there.
func (c *checker) wrongf(path, format string, args ...any) {
	n := c.node
	line := n.Line
	for _, step := range strings.Split(path, ".") {
		next := child(n, step)
		if next == nil {
			break
		}
		n, line = next, next.Line
	}
	c.errs = append(c.errs, fmt.Errorf("issuers: line %d: %s: %s", line, path, fmt.Sprintf(format, args...)))
}

// at returns the node that path leads to, nil when it is not there.
func (c *checker) at(path string) *yaml.Node {
	n := c.node
	for _, step := range strings.Split(path, ".") {
		if n = child(n, step); n == nil {
			return nil
		}
	}
	return n
}

func child(n *yaml.Node, step string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		var i int
		if _, err := fmt.Sscanf(step, "%d", &i); err == nil && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}

var domainName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (c *checker) entry(e entry) {
	c.spellings(e)
	for n, alg := range e.Algs {
		if !asymmetric(alg) {
			// none is no signature; with HMAC everyone who can verify can forge.
			c.wrongf(fmt.Sprintf("algs.%d", n), "%q is not one of the asymmetric algorithms RS*, PS*, ES*, EdDSA, Ed25519", alg)
		}
	}
	if e.Provenance == nil && e.Login == nil {
		c.wrongf("issuer", "the entry has neither provenance nor login, so nobody could use it")
	}
	if e.Login != nil && e.Login.ClientID == "" {
		c.wrongf("login.client_id", "is missing")
	}
	if e.Login != nil && e.Login.Scope != "" && !slices.Contains(strings.Fields(e.Login.Scope), "openid") {
		c.wrongf("login.scope", "must contain openid, else there is no ID token")
	}
	if e.Provenance != nil {
		c.provenance(e)
	}
	c.identity(e)
	c.conditions(e)
}

// spellings checks issuer, aliases and discovery. A spelling that two entries
// share would leave it open whose keys and conditions count.
func (c *checker) spellings(e entry) {
	if e.Issuer == "" {
		c.wrongf("issuer", "is missing")
	} else {
		c.url("issuer", e.Issuer)
	}
	if e.Discovery != "" {
		c.url("discovery", e.Discovery)
	}
	for n, s := range append([]string{e.Issuer}, e.Aliases...) {
		path := "issuer"
		if n > 0 {
			path = fmt.Sprintf("aliases.%d", n-1)
		}
		if n > 0 && (s == "" || strings.TrimSpace(s) != s) {
			c.wrongf(path, "must be the exact text of iss")
		}
		if strings.Contains(s, "{") && (strings.Count(s, "{") != 1 || !strings.Contains(s, "/"+tenantTemplate+"/")) {
			c.wrongf(path, "the only template is %s as a whole path segment", tenantTemplate)
		}
		if other, taken := c.seen[s]; taken && s != "" {
			c.wrongf(path, "is already the issuer or an alias at line %d", other)
			continue
		}
		c.seen[s] = c.node.Line
	}
}

// url wants https: over http anyone on the way could hand out keys. In dev,
// loopback is its own.
func (c *checker) url(path, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		c.wrongf(path, "must be an https URL")
	case u.Scheme == "http" && (!c.dev || !loopback(u.Hostname())):
		c.wrongf(path, "must be https; http is for loopback in dev only")
	case u.User != nil || u.Fragment != "" || (path == "issuer" && u.RawQuery != ""):
		// OpenID Connect Discovery 1.0 §3: no query, no fragment
		c.wrongf(path, "must have no user, query or fragment")
	}
}

func (c *checker) provenance(e entry) {
	p := e.Provenance
	if len(p.ClientIDs) == 0 && p.PublishedClient == nil && e.Login == nil {
		c.wrongf("provenance", "needs client_ids or published_client, or a login client for the method sign-in")
	}
	for n, id := range p.ClientIDs {
		path := fmt.Sprintf("provenance.client_ids.%d", n)
		if id == "" {
			c.wrongf(path, "must not be empty")
		}
		c.notLogin(path, id, e)
	}
	if p.MaxAuthAge < 0 || p.MaxAuthAge > 365*24*3600 {
		c.wrongf("provenance.max_auth_age", "must be 0 (no limit) to a year, in seconds")
	}
	pub := p.PublishedClient
	if pub == nil {
		return
	}
	if pub.ClientID == "" {
		c.wrongf("provenance.published_client.client_id", "is missing")
	}
	c.notLogin("provenance.published_client.client_id", pub.ClientID, e)
	if pub.Scope != "" && !slices.Contains(strings.Fields(pub.Scope), "openid") {
		c.wrongf("provenance.published_client.scope", "must contain openid, else there is no ID token")
	}
	for n, text := range pub.RedirectURIs {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || (u.Hostname() != "127.0.0.1" && u.Hostname() != "::1") {
			// RFC 8252 §7.3 and §8.3: an address literal, since localhost may be resolved to elsewhere
			c.wrongf(fmt.Sprintf("provenance.published_client.redirect_uris.%d", n), "must be http on 127.0.0.1 or [::1]")
		}
	}
}

// notLogin: a token for the login client is made whenever somebody signs in, so
// whoever can make a person sign in could get one; it must prove nothing else.
func (c *checker) notLogin(path, id string, e entry) {
	if e.Login != nil && id != "" && id == e.Login.ClientID {
		c.wrongf(path, "the login client is never accepted for provenance")
	}
}

// identity: an identity must be what the issuer never gives to another person.
func (c *checker) identity(e entry) {
	if len(e.Identity) == 0 {
		return
	}
	if !slices.Contains(e.Identity, "iss") || len(e.Identity) < 2 {
		c.wrongf("identity", "must hold iss and at least one claim that names the person")
	}
	for n, name := range e.Identity {
		switch name {
		case "email", "name", "preferred_username", "upn", "unique_name", "nickname", "phone_number":
			c.wrongf(fmt.Sprintf("identity.%d", n), "%s can pass from one person to another", name)
		case "":
			c.wrongf(fmt.Sprintf("identity.%d", n), "must not be empty")
		}
	}
	if strings.Contains(e.Issuer, tenantTemplate) && !slices.Contains(e.Identity, "tid") {
		c.wrongf("identity", "must hold tid, since the issuer stands for many tenants")
	}
}

func (c *checker) conditions(e entry) {
	domains := map[string][]string{
		"conditions.email_domain":  e.Conditions.EmailDomain,
		"conditions.hosted_domain": e.Conditions.HostedDomain,
		"email_authoritative_for":  e.EmailAuthoritativeFor,
	}
	for _, path := range []string{"conditions.email_domain", "conditions.hosted_domain", "email_authoritative_for"} {
		for n, d := range domains[path] {
			if !domainName.MatchString(strings.ToLower(d)) {
				c.wrongf(fmt.Sprintf("%s.%d", path, n), "%q is no domain name", d)
			}
		}
	}
	for _, path := range []string{"conditions.email_domain", "conditions.hosted_domain", "conditions.tenant"} {
		if list := c.at(path); list != nil && len(list.Content) == 0 {
			// An empty list would read as "none" and work as "all".
			c.wrongf(path, "must not be empty; leave it out to accept all")
		}
	}
	for n, t := range e.Conditions.Tenant {
		if !tenantID.MatchString(t) {
			c.wrongf(fmt.Sprintf("conditions.tenant.%d", n), "%q is no tenant id (a lower-case UUID)", t)
		}
	}
}
