package human

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// sealContextFor differs from sealContext, so that the state of a login never
// counts as that of a sign-in for something else, nor the other way round.
const sealContextFor = "human sign-in for a purpose"

// BeginFor starts a sign-in at an issuer whose ID token is for the caller: it
// carries the caller's nonce and makes no session. keep comes back from
// FinishFor as it is; it must be short, because it travels in the cookie.
// redirect and state are as of Begin, and so is forward.
//
// Where the entry wants a recent or a strong sign-in for provenance, the issuer
// is asked for it (OpenID Connect Core section 3.1.2.1: max_age, acr_values).
func (s *Store) BeginFor(ctx context.Context, issuer string, forward url.Values, nonce, keep string) (redirect, state string, err error) {
	entry, err := s.issuer(issuer)
	if err != nil {
		return "", "", err
	}
	var options []oauth2.AuthCodeOption
	if p := entry.Provenance; p != nil {
		if p.MaxAuthAge > 0 {
			options = append(options, oauth2.SetAuthURLParam("max_age", strconv.FormatInt(int64(p.MaxAuthAge/time.Second), 10)))
		}
		if len(p.ACR) > 0 {
			options = append(options, oauth2.SetAuthURLParam("acr_values", strings.Join(p.ACR, " ")))
		}
	}
	return s.begin(ctx, entry, sealContextFor, attempt{Nonce: nonce, Keep: keep}, forward, options...)
}

// FinishFor redeems the answer to BeginFor. The ID token is as the issuer's
// token endpoint gave it: checking it is the caller's. clientID is whom it must
// be for. keep is set whenever the state is good, with an error too.
func (s *Store) FinishFor(ctx context.Context, state string, answer url.Values) (idToken, clientID, keep string, err error) {
	now, err := s.now(ctx)
	if err != nil {
		return "", "", "", err
	}
	a, err := s.open(state, sealContextFor, answer, now)
	if err != nil {
		return "", "", "", err
	}
	entry, err := s.answered(a, answer)
	if err != nil {
		return "", "", a.Keep, err
	}
	idToken, err = s.exchange(ctx, entry, a, answer.Get("code"))
	return idToken, entry.Login.ClientID, a.Keep, err
}
