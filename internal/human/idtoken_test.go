package human

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
)

func TestCheckClaims(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_900_000_000, 0)
	entry := &provenance.Issuer{Issuer: "https://issuer.example", Aliases: []string{"issuer.example"}, Login: &provenance.LoginClient{ClientID: "login"}}
	const good = `{"iss":"https://issuer.example","sub":"1","aud":"login","azp":"login","nonce":"n","exp":1900000300,"iat":1899999990,"auth_time":1899990000}`
	at, err := checkClaims([]byte(good), entry, "n", now)
	require.NoError(t, err)
	require.EqualValues(t, 1899990000, at.Unix())
	at, err = checkClaims([]byte(`{"iss":"issuer.example","sub":"1","aud":["login"],"nonce":"n","exp":1.8999999415e9,"iat":1900000060}`), entry, "n", now)
	require.NoError(t, err, "an alias, one audience in a list, no azp, a minute's leeway")
	require.EqualValues(t, 1900000060, at.Unix(), "iat stands in for auth_time")

	for name, claims := range map[string]string{
		"another issuer":  `{"iss":"https://issuer.example/","sub":"1","aud":"login","nonce":"n","exp":1900000300,"iat":1900000000}`,
		"two audiences":   `{"iss":"issuer.example","sub":"1","aud":["login","x"],"nonce":"n","exp":1900000300,"iat":1900000000}`,
		"other audience":  `{"iss":"issuer.example","sub":"1","aud":"x","nonce":"n","exp":1900000300,"iat":1900000000}`,
		"foreign azp":     `{"iss":"issuer.example","sub":"1","aud":"login","azp":"x","nonce":"n","exp":1900000300,"iat":1900000000}`,
		"empty azp":       `{"iss":"issuer.example","sub":"1","aud":"login","azp":"","nonce":"n","exp":1900000300,"iat":1900000000}`,
		"empty sub":       `{"iss":"issuer.example","sub":"","aud":"login","nonce":"n","exp":1900000300,"iat":1900000000}`,
		"no nonce":        `{"iss":"issuer.example","sub":"1","aud":"login","exp":1900000300,"iat":1900000000}`,
		"nonce in Nonce":  `{"iss":"issuer.example","sub":"1","aud":"login","Nonce":"n","exp":1900000300,"iat":1900000000}`,
		"expired":         `{"iss":"issuer.example","sub":"1","aud":"login","nonce":"n","exp":1899999940,"iat":1899990000}`,
		"no exp":          `{"iss":"issuer.example","sub":"1","aud":"login","nonce":"n","iat":1900000000}`,
		"iat ahead":       `{"iss":"issuer.example","sub":"1","aud":"login","nonce":"n","exp":1900000300,"iat":1900000061}`,
		"no iat":          `{"iss":"issuer.example","sub":"1","aud":"login","nonce":"n","exp":1900000300}`,
		"nbf ahead":       `{"iss":"issuer.example","sub":"1","aud":"login","nonce":"n","exp":1900000300,"iat":1900000000,"nbf":1900000061}`,
		"auth_time ahead": `{"iss":"issuer.example","sub":"1","aud":"login","nonce":"n","exp":1900000300,"iat":1900000000,"auth_time":1900000061}`,
		"iss twice":       `{"iss":"x","iss":"issuer.example","sub":"1","aud":"login","nonce":"n","exp":1900000300,"iat":1900000000}`,
		"text for a time": `{"iss":"issuer.example","sub":"1","aud":"login","nonce":"n","exp":"1900000300","iat":1900000000}`,
	} {
		_, err := checkClaims([]byte(claims), entry, "n", now)
		require.Error(t, err, "%s: %s", name, claims)
	}
}
