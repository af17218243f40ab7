package provenance

import (
	"crypto/sha256"
	"regexp"
	"slices"
	"strings"
	"time"

	"switchboard/internal/refusal"
)

// Issuer is one entry of the operator's list of trusted OpenID issuers.
type Issuer struct {
	Issuer                string             // as in the tokens; may hold Entra's {tenantid}
	Name                  string             // for people
	Aliases               []string           // other exact spellings of iss (Google has two)
	Discovery             string             // URL of the configuration document, derived from Issuer when left out
	Algs                  []string           // asymmetric, pinned
	Provenance            *ProvenanceClients // nil: not trusted for provenance
	Login                 *LoginClient       // nil: nobody signs in here
	Identity              []string           // names of the claims that make an identity
	Conditions            Conditions
	EmailAuthoritativeFor []string // domains, lower case
	Ramp                  bool     // quota grows over 14 days from the first accepted request
}

// ProvenanceClients are what an entry accepts for provenance.
type ProvenanceClients struct {
	ClientIDs       []string         // accepted; the published one is always among them
	PublishedClient *PublishedClient // nil: requesters bring their own, or sign in here
	MaxAuthAge      time.Duration    // 0: no limit on auth_time
	ACR             []string         // acr must be one of these, when there are any
	AMR             []string         // amr must hold each of these
}

// PublishedClient is the public native client that cards show to strangers.
type PublishedClient struct {
	ClientID     string
	ClientSecret string // where the provider wants one from installed apps; no secret
	RedirectURIs []string
	Scope        string
}

// LoginClient is this instance's own client, used for login and nothing else.
type LoginClient struct {
	ClientID     string
	ClientSecret string
	Scope        string
}

// Conditions narrow whom of an issuer's people an entry accepts; empty lists
// accept all.
type Conditions struct {
	EmailDomain  []string // verified e-mail's domain
	HostedDomain []string // claim hd (Google Workspace)
	Tenant       []string // claim tid (Entra)
}

const tenantTemplate = "{tenantid}"

// tenantID is the form of Entra's tid; anything else could bend the iss that a
// template turns into.
var tenantID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// templated reports whether the entry stands for many tenants.
func (i *Issuer) templated() bool { return strings.Contains(i.Issuer, tenantTemplate) }

// names reports whether iss is this entry's, exactly: its issuer or an alias,
// with Entra's template filled in from the token's own tid. No trailing slash
// is added or forgiven.
func (i *Issuer) names(iss, tid string) bool {
	for _, want := range append([]string{i.Issuer}, i.Aliases...) {
		if strings.Contains(want, tenantTemplate) {
			if !tenantID.MatchString(tid) {
				continue
			}
			want = strings.ReplaceAll(want, tenantTemplate, tid)
		}
		if iss == want {
			return true
		}
	}
	return false
}

// Names reports whether iss is this entry's, exactly; tid is the token's tenant
// where the entry stands for many.
func (i *Issuer) Names(iss, tid string) bool { return i.names(iss, tid) }

// accepts reports whether tokens for the client id count for provenance. The
// login client never does: a token got for signing in says nothing of a
// request.
func (i *Issuer) accepts(clientID string) bool {
	if i.Provenance == nil || clientID == "" || (i.Login != nil && clientID == i.Login.ClientID) {
		return false
	}
	return slices.Contains(i.Provenance.ClientIDs, clientID) ||
		(i.Provenance.PublishedClient != nil && clientID == i.Provenance.PublishedClient.ClientID)
}

// Allowed says which issuers a persona lets ask; nil lets none.
type Allowed func(*Issuer) bool

// Anyone allows every trusted issuer.
func Anyone() Allowed { return func(*Issuer) bool { return true } }

// Nobody allows none.
func Nobody() Allowed { return func(*Issuer) bool { return false } }

// Only allows the entries whose issuer or alias is listed.
func Only(issuers ...string) Allowed {
	return func(i *Issuer) bool {
		return slices.Contains(issuers, i.Issuer) ||
			slices.ContainsFunc(i.Aliases, func(a string) bool { return slices.Contains(issuers, a) })
	}
}

// Person is what an ID token says about a human, as far as its entry lets it be
// believed. Sign-in and friend requests share it, so that one human has one
// identity.
type Person struct {
	Issuer   string // canonical, never an alias
	Subject  string
	Identity []byte // SHA-256 over the entry's identity claims
	Name     string // "" when the issuer says nothing
	Email    string // "" unless verified and the entry is authoritative for its domain
}

// Person reads a verified token's payload. A token without one of the entry's
// identity claims is refusal.IssuerCondition.
func (i *Issuer) Person(payload []byte) (Person, error) {
	c, err := decodeClaims(payload)
	if err != nil {
		return Person{}, err
	}
	p := Person{Issuer: i.Issuer, Subject: c.text("sub"), Name: c.text("name")}
	if i.templated() {
		p.Issuer = strings.ReplaceAll(i.Issuer, tenantTemplate, c.text("tid"))
	}
	values := map[string]string{}
	for _, name := range i.Identity {
		v := c.text(name)
		if name == "iss" {
			v = p.Issuer // an alias must not make a second person
		}
		if v == "" {
			return Person{}, refusal.New(refusal.IssuerCondition, "the ID token lacks the claim %s", name)
		}
		values[name] = v
	}
	sum := sha256.Sum256(canonicalOf(values))
	p.Identity = sum[:]
	if email := c.text("email"); c.verifiedEmail() && slices.Contains(i.EmailAuthoritativeFor, domainOf(email)) {
		p.Email = email
	}
	return p, nil
}

// CheckConditions is row 11 of the table: verified e-mail domain, hosted
// domain, tenant, and the step-up that the entry asks for. Any miss is
// refusal.IssuerCondition.
func (i *Issuer) CheckConditions(payload []byte) error {
	c, err := decodeClaims(payload)
	if err != nil {
		return err
	}
	unmet := func(format string, args ...any) error {
		return refusal.New(refusal.IssuerCondition, format, args...)
	}
	cond := i.Conditions
	if len(cond.EmailDomain) > 0 && (!c.verifiedEmail() || !slices.Contains(cond.EmailDomain, domainOf(c.text("email")))) {
		return unmet("this instance accepts only verified e-mail addresses of certain domains from this issuer")
	}
	if len(cond.HostedDomain) > 0 && !slices.Contains(cond.HostedDomain, strings.ToLower(c.text("hd"))) {
		return unmet("this instance accepts only certain hosted domains from this issuer")
	}
	if len(cond.Tenant) > 0 && !slices.Contains(cond.Tenant, c.text("tid")) {
		return unmet("this instance accepts only certain tenants from this issuer")
	}
	return nil
}

// checkStepUp compares acr and amr with what the entry asks of provenance.
func (i *Issuer) checkStepUp(c claims) error {
	if i.Provenance == nil {
		return nil
	}
	if want := i.Provenance.ACR; len(want) > 0 && !slices.Contains(want, c.text("acr")) {
		return refusal.New(refusal.IssuerCondition, "this instance asks for a stronger sign-in: acr must be one of %s", strings.Join(want, ", "))
	}
	have := c.texts("amr")
	for _, method := range i.Provenance.AMR {
		if !slices.Contains(have, method) {
			return refusal.New(refusal.IssuerCondition, "this instance asks for a stronger sign-in: amr must hold %s", method)
		}
	}
	return nil
}

// domainOf returns the lower-case domain of an e-mail address, "" for what is
// none.
func domainOf(email string) string {
	at := strings.LastIndexByte(email, '@')
	if at < 1 {
		return ""
	}
	return strings.ToLower(email[at+1:])
}
