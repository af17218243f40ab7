package human

import (
	"fmt"
	"net/url"
	"strings"

	"switchboard/internal/provenance"
)

// Residents is the operator's list of who may live on this instance.
type Residents struct {
	everyone bool
	emails   map[string]bool
	domains  map[string]bool
	issuers  map[string]bool    // all of an issuer
	subjects map[[2]string]bool // issuer, subject
}

// NewResidents reads the operator's list. An entry is one of
//
//	alice@example.com            this address, verified by an issuer authoritative for it
//	@example.com                 any such address of this domain
//	https://issuer.example sub   this subject at this issuer
//	https://issuer.example *     everyone at this issuer
//	*                            everyone, in development only
//
// The error says which entry is wrong and why.
func NewResidents(entries []string, dev bool) (Residents, error) {
	r := Residents{emails: map[string]bool{}, domains: map[string]bool{}, issuers: map[string]bool{}, subjects: map[[2]string]bool{}}
	for n, entry := range entries {
		entry = strings.TrimSpace(entry)
		wrong := func(why string) (Residents, error) {
			return Residents{}, fmt.Errorf("residents: entry %d (%q): %s", n+1, entry, why)
		}
		issuer, subject, two := strings.Cut(entry, " ")
		switch {
		case entry == "*":
			if !dev {
				return wrong("everyone may live here in development only; name an issuer as \"https://issuer.example *\"")
			}
			r.everyone = true
		case two:
			u, err := url.Parse(issuer)
			subject = strings.TrimSpace(subject)
			if err != nil || u.Scheme == "" || u.Host == "" || subject == "" {
				return wrong("an issuer's URL, a space, and a subject or * are expected")
			}
			if subject == "*" {
				r.issuers[issuer] = true
			} else {
				r.subjects[[2]string{issuer, subject}] = true
			}
		case strings.HasPrefix(entry, "@") && len(entry) > 1 && strings.Count(entry, "@") == 1:
			r.domains[strings.ToLower(entry[1:])] = true
		case strings.Count(entry, "@") == 1 && !strings.HasSuffix(entry, "@"):
			r.emails[strings.ToLower(entry)] = true
		default:
			return wrong("expected an e-mail address, @domain, or an issuer's URL with a subject")
		}
	}
	return r, nil
}

func (r Residents) empty() bool {
	return !r.everyone && len(r.emails)+len(r.domains)+len(r.issuers)+len(r.subjects) == 0
}

// has reports whether the person may live here. p.Email is set only when it is
// verified by an issuer that is authoritative for it.
func (r Residents) has(p provenance.Person) bool {
	if r.everyone || r.issuers[p.Issuer] || r.subjects[[2]string{p.Issuer, p.Subject}] {
		return true
	}
	if p.Email == "" {
		return false
	}
	email := strings.ToLower(p.Email)
	return r.emails[email] || r.domains[email[strings.LastIndexByte(email, '@')+1:]]
}
