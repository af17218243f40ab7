package friend_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
	"switchboard/internal/provenance"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
)

const verifier = "a-verifier-that-is-long-enough-for-rfc-7636-to-like"

func query() friend.SignInQuery {
	sum := sha256.Sum256([]byte(verifier))
	return friend.SignInQuery{
		RedirectURI: "http://127.0.0.1:7777/callback", CodeChallenge: base64.RawURLEncoding.EncodeToString(sum[:]), CodeChallengeMethod: "S256",
	}
}

// link submits a request of method sign-in.
func (b *bundle) link(f from) (friend.Request, error) {
	b.t.Helper()
	f = b.fill(f)
	part, err := provenance.BuildSignIn(f.key, b.wish(f), provenance.To{Aud: publicURL, Persona: f.persona}, time.Now())
	require.NoError(b.t, err)
	r, _, err := b.store.Submit(b.t.Context(), friend.Submission{Persona: f.persona, MessageID: f.messageID, Part: part, Address: netip.MustParseAddr("192.0.2.1")})
	return r, err
}

// signedIn plays the human: page, issuer, back to the sender's loopback.
func (b *bundle) signedIn(id uuid.UUID, sub string) (string, error) {
	b.t.Helper()
	page, err := b.store.SignInPage(b.t.Context(), id, query())
	require.NoError(b.t, err)
	token := b.idp.IDToken(b.t, "plain", page.Nonce, provenancetest.JWS{Claims: map[string]any{"sub": sub, "aud": provenancetest.LoginClient, "azp": nil}})
	return b.store.SignInComplete(b.t.Context(), id, friend.SignInAnswer{SignInQuery: query(), IDToken: token, ClientID: provenancetest.LoginClient})
}

func TestSignIn_BecomesPendingWhenItsOwnKeyRedeems(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	r, err := b.link(from{key: key, messageID: "m"})
	require.NoError(t, err)
	require.Equal(t, friend.AwaitingSignIn, r.State)
	require.Equal(t, publicURL+"/friend-sign-in/"+r.ID.String(), r.SignIn.URL)
	require.WithinDuration(t, r.CreatedAt.Add(10*time.Minute), r.SignIn.ExpiresAt, time.Second)
	again, err := b.link(from{key: key, messageID: "m"})
	require.NoError(t, err)
	require.Equal(t, r.ID, again.ID)

	// The target never sees it; the sender does.
	rs, _, err := b.store.Incoming(t.Context(), b.bob, "", "", 0)
	require.NoError(t, err)
	require.Empty(t, rs)
	_, err = b.store.GetIncoming(t.Context(), b.bob, r.ID)
	refused(t, refusal.NotFound, err)
	_, err = b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
	refused(t, refusal.NotFound, err)
	own, err := b.store.GetOwn(t.Context(), friend.Asker{Persona: slug, Key: key.Thumbprint()}, r.ID)
	require.NoError(t, err)
	require.NotNil(t, own.SignIn)

	code, err := b.signedIn(r.ID, "alice")
	require.NoError(t, err)
	good := friend.Redemption{Code: code, Verifier: verifier, RedirectURI: query().RedirectURI, Persona: slug, Key: key.Thumbprint()}
	b.newPersona(b.bob, "second")
	for name, change := range map[string]func(*friend.Redemption){
		"another key":      func(r *friend.Redemption) { r.Key = newKey(t).Thumbprint() },
		"another verifier": func(r *friend.Redemption) { r.Verifier += "x" },
		"another redirect": func(r *friend.Redemption) { r.RedirectURI = "http://127.0.0.1:7778/callback" },
		"another persona":  func(r *friend.Redemption) { r.Persona = "second" },
		"another code":     func(r *friend.Redemption) { r.Code += "x" },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			b.refusedStoringNothing(refusal.InvalidArgument, func() error { _, err := b.store.RedeemSignIn(t.Context(), bad); return err })
		})
	}

	errs := make([]error, 4)
	together(len(errs), func(i int) { _, errs[i] = b.store.RedeemSignIn(t.Context(), good) })
	ok := 0
	for _, err := range errs {
		if err == nil {
			ok++
		} else {
			refused(t, refusal.InvalidArgument, err)
		}
	}
	require.Equal(t, 1, ok)
	pending, err := b.store.GetIncoming(t.Context(), b.bob, r.ID)
	require.NoError(t, err)
	require.Equal(t, friend.Pending, pending.State)
	require.Equal(t, "alice", pending.Identity.Subject)
	require.Nil(t, pending.SignIn)
	again, err = b.link(from{key: key, messageID: "m"})
	require.NoError(t, err)
	require.Equal(t, r.ID, again.ID)
	_, err = b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
	require.NoError(t, err)
}

func TestSignIn_QueryMustLeadBackToTheSender(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, err := b.link(from{})
	require.NoError(t, err)
	for _, uri := range []string{
		"", "https://evil.example/cb", "http://evil.example/cb", "http://127.0.0.1.evil.example/cb", "http://127.0.0.1@evil.example/cb",
		"http://user@127.0.0.1/cb", "https://127.0.0.1/cb", "javascript:alert(1)", "http://127.0.0.1/cb#x", "//127.0.0.1/cb", "http://0.0.0.0/cb",
	} {
		q := query()
		q.RedirectURI = uri
		_, err := b.store.SignInPage(t.Context(), r.ID, q)
		refused(t, refusal.InvalidArgument, err)
	}
	for _, change := range []func(*friend.SignInQuery){
		func(q *friend.SignInQuery) { q.CodeChallengeMethod = "plain" },
		func(q *friend.SignInQuery) { q.CodeChallenge = "" },
	} {
		q := query()
		change(&q)
		_, err := b.store.SignInPage(t.Context(), r.ID, q)
		refused(t, refusal.InvalidArgument, err)
	}
	q := query()
	q.RedirectURI = "http://[::1]:9/cb"
	_, err = b.store.SignInPage(t.Context(), r.ID, q)
	require.NoError(t, err)
}

func TestSignIn_OnlyATokenForThisRequestCompletesIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, err := b.link(from{})
	require.NoError(t, err)
	page, err := b.store.SignInPage(t.Context(), r.ID, query())
	require.NoError(t, err)
	complete := func(issuer, nonce, client string, claims map[string]any) error {
		claims["aud"], claims["azp"] = client, nil
		token := b.idp.IDToken(t, issuer, nonce, provenancetest.JWS{Claims: claims})
		_, err := b.store.SignInComplete(t.Context(), r.ID, friend.SignInAnswer{SignInQuery: query(), IDToken: token, ClientID: provenancetest.LoginClient})
		return err
	}
	refused(t, refusal.NonceMismatch, complete("plain", "another", provenancetest.LoginClient, map[string]any{}))
	refused(t, refusal.IDTokenAudience, complete("plain", page.Nonce, provenancetest.Client, map[string]any{}))
	refused(t, refusal.IssuerUntrusted, complete("unknown", page.Nonce, provenancetest.LoginClient, map[string]any{}))
	refused(t, refusal.IDTokenExpired, complete("plain", page.Nonce, provenancetest.LoginClient, map[string]any{"exp": 1000}))
	require.NoError(t, complete("plain", page.Nonce, provenancetest.LoginClient, map[string]any{}))
}

func TestSignIn_RowTwelveWaitsForTheIdentity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pending(from{})
	key := newKey(t)
	r, err := b.link(from{key: key})
	require.NoError(t, err)
	code, err := b.signedIn(r.ID, "alice")
	require.NoError(t, err)
	redeem := friend.Redemption{Code: code, Verifier: verifier, RedirectURI: query().RedirectURI, Persona: slug, Key: key.Thumbprint()}
	b.refusedStoringNothing(refusal.Conflict, func() error { _, err := b.store.RedeemSignIn(t.Context(), redeem); return err })
	// carol signs in with the same link instead: her code replaces alice's.
	second, err := b.signedIn(r.ID, "carol")
	require.NoError(t, err)
	b.refusedStoringNothing(refusal.InvalidArgument, func() error { _, err := b.store.RedeemSignIn(t.Context(), redeem); return err })
	redeem.Code = second
	pending, err := b.store.RedeemSignIn(t.Context(), redeem)
	require.NoError(t, err)
	require.Equal(t, "carol", pending.Identity.Subject)
}

func TestSignIn_IsCappedAndGoneAfterTenMinutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.rows()
	for range 10 {
		_, err := b.link(from{})
		require.NoError(t, err)
	}
	b.refusedStoringNothing(refusal.RateLimited, func() error { _, err := b.link(from{}); return err })
	key := newKey(t)
	b.exec(`UPDATE friend_sign_in SET expires_at = clock_timestamp()`)
	r, err := b.link(from{key: key})
	require.NoError(t, err)
	withdrawn, err := b.store.Withdraw(t.Context(), friend.Asker{Persona: slug, Key: key.Thumbprint()}, r.ID)
	require.NoError(t, err)
	require.Equal(t, friend.Withdrawn, withdrawn.State)
	_, err = b.store.SignInPage(t.Context(), r.ID, query())
	refused(t, refusal.NotFound, err)

	b.exec(`UPDATE friend_request SET expires_at = clock_timestamp()`)
	_, err = b.store.GetOwn(t.Context(), friend.Asker{Persona: slug, Key: key.Thumbprint()}, r.ID)
	refused(t, refusal.NotFound, err)
	b.exec(`UPDATE friend_replay SET keep_until = clock_timestamp() - interval '1 second'`)
	require.NoError(t, b.store.Sweep(t.Context()))
	after := b.rows()
	before["test_key"] = after["test_key"] // package endpoint's to forget
	require.Equal(t, before, after)
}
