package provenance

import (
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"switchboard/internal/refusal"
)

// claims are a token's members, undecoded: each reader says which type it takes
// and gets the zero value for any other.
type claims map[string]jsontext.Value

func decodeClaims(payload []byte) (claims, error) {
	var c claims
	if err := jsonv2.Unmarshal(payload, &c); err != nil || c == nil {
		return nil, refusal.New(refusal.IDTokenSignature, "the ID token does not parse").Because(err)
	}
	return c, nil
}

// text returns a string claim, "" for an absent one and for another type.
func (c claims) text(name string) string {
	var s string
	if v := c[name]; v.Kind() != '"' || jsonv2.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// texts returns the strings of an array claim, none for another type.
func (c claims) texts(name string) []string {
	var list []string
	if v := c[name]; v.Kind() != '[' || jsonv2.Unmarshal(v, &list) != nil {
		return nil
	}
	return list
}

// audience returns aud when it is exactly one: a string, or an array of one
// (which some issuers always send).
func (c claims) audience() string {
	if c["aud"].Kind() == '[' {
		if list := c.texts("aud"); len(list) == 1 {
			return list[0]
		}
		return ""
	}
	return c.text("aud")
}

// verifiedEmail reads email_verified as a boolean or as the string that some
// issuers send.
func (c claims) verifiedEmail() bool {
	v := c["email_verified"]
	return v.Kind() == 't' || (v.Kind() == '"' && c.text("email_verified") == "true")
}

// at returns a NumericDate (RFC 7519 §2, fractions allowed) in whole seconds,
// false for an absent one and for anything that is no plausible date.
func (c claims) at(name string) (time.Time, bool) {
	v := c[name]
	if v.Kind() != '0' {
		return time.Time{}, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f < 0 || f > 253402300799 { // up to the year 9999
		return time.Time{}, false
	}
	return time.Unix(int64(f), 0), true
}
