package human

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"switchboard/internal/provenance"
)

// leeway is what clocks of issuers may differ from the database's (specs/protocol.md section 7).
const leeway = 60 * time.Second

type idClaims struct {
	Issuer   string       `json:"iss"`
	Tenant   string       `json:"tid"` // Entra
	Subject  string       `json:"sub"`
	Audience audience     `json:"aud"`
	Party    *string      `json:"azp"`
	Nonce    string       `json:"nonce"`
	Expires  *numericDate `json:"exp"`
	Issued   *numericDate `json:"iat"`
	Before   *numericDate `json:"nbf"`
	AuthTime *numericDate `json:"auth_time"`
}

// audience is one string or several.
type audience []string

func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}

// numericDate is seconds since 1970, as JSON may write them: 1.7e9 or 1700000000.5 too.
type numericDate struct{ time.Time }

func (d *numericDate) UnmarshalJSON(b []byte) error {
	var seconds float64
	if err := json.Unmarshal(b, &seconds); err != nil {
		return err
	}
	if math.Abs(seconds) > 1e11 {
		return errors.New("a time is out of range")
	}
	d.Time = time.Unix(int64(seconds), 0)
	return nil
}

// checkClaims checks an ID token whose signature stands, as OpenID Connect Core
// section 3.1.3.7 demands and exactly: libraries leave out azp, an empty sub,
// and an iat that lies ahead. It returns when the person was authenticated.
func checkClaims(payload []byte, entry *provenance.Issuer, nonce string, now time.Time) (time.Time, error) {
	var c idClaims
	if err := json.Unmarshal(payload, &c); err != nil {
		return time.Time{}, fmt.Errorf("read claims: %w", err)
	}
	switch {
	case !entry.Names(c.Issuer, c.Tenant):
		return time.Time{}, fmt.Errorf("iss is %q", c.Issuer)
	case len(c.Audience) != 1 || c.Audience[0] != entry.Login.ClientID:
		return time.Time{}, fmt.Errorf("aud is %q", []string(c.Audience))
	case c.Party != nil && *c.Party != entry.Login.ClientID:
		return time.Time{}, fmt.Errorf("azp is %q", *c.Party)
	case c.Subject == "":
		return time.Time{}, errors.New("sub is empty")
	case c.Nonce != nonce || nonce == "":
		return time.Time{}, errors.New("nonce differs")
	case c.Expires == nil || !now.Before(c.Expires.Add(leeway)):
		return time.Time{}, errors.New("it has expired")
	case c.Issued == nil || c.Issued.After(now.Add(leeway)):
		return time.Time{}, errors.New("iat lies ahead")
	case c.Before != nil && c.Before.After(now.Add(leeway)):
		return time.Time{}, errors.New("nbf lies ahead")
	case c.AuthTime != nil && c.AuthTime.After(now.Add(leeway)):
		return time.Time{}, errors.New("auth_time lies ahead")
	}
	if c.AuthTime != nil {
		return c.AuthTime.Time, nil
	}
	return c.Issued.Time, nil
}

// clean makes a provider's or browser's words fit for a label: one line of valid text, bounded.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, s))
	for utf8.RuneCountInString(s) > 200 {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
