package friend_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// together runs f n times at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func TestSubmit_RowsAreCheckedInTheirOrderAndStoreNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	outside := &scope.Asked{Queues: []string{"reviews"}, Verbs: []scope.Verb{scope.Answer}}
	untrusted := from{issuer: "unknown", scope: outside, token: provenancetest.JWS{SignedBy: "b"}}
	mutate := func(f from, change func(part map[string]any)) friend.Submission {
		sub := b.sign(f)
		var part map[string]any
		require.NoError(t, json.Unmarshal(sub.Part, &part))
		change(part)
		raw, err := json.Marshal(part)
		require.NoError(t, err)
		sub.Part = raw
		return sub
	}
	badStatement := func(part map[string]any) {
		part["provenance"].(map[string]any)["statement"] = "e30.e30.AAAA"
	}
	for _, c := range []struct {
		name string
		want refusal.Code
		sub  friend.Submission
	}{
		{"1 scope outside the offers before anything else", refusal.InvalidArgument, b.sign(untrusted)},
		{"1 schema", refusal.InvalidArgument, mutate(from{}, func(p map[string]any) { p["Reason"] = "x" })},
		{"1 size", refusal.PayloadTooLarge, mutate(from{}, func(p map[string]any) { p["x"] = strings.Repeat("x", 300<<10) })},
		{"1 messageId", refusal.InvalidArgument, func() friend.Submission { s := b.sign(from{}); s.MessageID = ""; return s }()},
		{"2 before 3", refusal.ProvenanceMissing, mutate(from{issuer: "unknown"}, func(p map[string]any) { delete(p, "provenance") })},
		{"3 before 4", refusal.IssuerUntrusted, b.sign(from{issuer: "unknown", token: provenancetest.JWS{SignedBy: "b"}})},
		{"4 before 5", refusal.IDTokenSignature, b.sign(from{token: provenancetest.JWS{SignedBy: "b", Claims: map[string]any{"aud": "x"}}})},
		{"5 before 6", refusal.IDTokenAudience, b.sign(from{token: provenancetest.JWS{Claims: map[string]any{"aud": "x", "azp": nil, "nonce": "x"}}})},
		{"6 before 7", refusal.NonceMismatch, mutate(from{token: provenancetest.JWS{Claims: map[string]any{"nonce": "x"}}}, badStatement)},
		{"7 before 9", refusal.StatementInvalid, mutate(from{token: provenancetest.JWS{Claims: map[string]any{"exp": 1000}}}, badStatement)},
		{"9 before 11", refusal.IDTokenExpired, b.sign(from{issuer: "strict", token: provenancetest.JWS{Claims: map[string]any{"exp": 1000, "hd": "x"}}})},
		{"11", refusal.IssuerCondition, b.sign(from{issuer: "strict", token: provenancetest.JWS{Claims: map[string]any{"hd": "x"}}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.refusedStoringNothing(c.want, func() error { _, _, err := b.store.Submit(t.Context(), c.sub); return err })
		})
	}

	t.Run("8 before 9 to 12", func(t *testing.T) {
		sub := b.sign(from{})
		r, repeated, err := b.store.Submit(t.Context(), sub)
		require.NoError(t, err)
		require.False(t, repeated)
		// Its nonce is used up and it has one pending: row 8 answers first.
		again, repeated, err := b.store.Submit(t.Context(), sub)
		require.NoError(t, err)
		require.True(t, repeated)
		require.Equal(t, r.ID, again.ID)
		// With another messageId it gets to row 10, before row 12's conflict.
		sub.MessageID = "another"
		b.refusedStoringNothing(refusal.StatementReplayed, func() error { _, _, err := b.store.Submit(t.Context(), sub); return err })
	})
}

func TestSubmit_UnknownAndOffPersonasAreAlike(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	r := b.pending(from{key: key})
	sub := b.sign(from{sub: "carol"})
	off := persona.Off
	_, err := b.personas.Update(t.Context(), b.bob, b.persona.ID, persona.Patch{Visibility: &off})
	require.NoError(t, err)
	_, _, isOff := b.store.Submit(t.Context(), sub)
	sub.Persona = "nobody-has-this"
	_, _, unknown := b.store.Submit(t.Context(), sub)
	refused(t, refusal.NotFound, isOff)
	require.Equal(t, refusal.From(unknown).Message, refusal.From(isOff).Message)
	_, err = b.store.GetOwn(t.Context(), friend.Asker{Persona: slug, Key: key.Thumbprint()}, r.ID)
	refused(t, refusal.NotFound, err)
	_, err = b.store.Approve(t.Context(), b.bob, r.ID, friend.Approval{})
	require.NoError(t, err, "what was asked before can still be decided")
}

func TestSubmit_OneMessageIsOneRequestHoweverOftenAndWherever(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	replica := friend.New(pgtestOpen(b), b.options)
	// Twenty clients at two replicas: half of them repeat the same bytes, half
	// have signed the same request anew.
	same := b.sign(from{key: key, messageID: "m"})
	subs := make([]friend.Submission, 20)
	for i := range subs {
		if subs[i] = same; i%2 == 1 {
			subs[i] = b.sign(from{key: key, messageID: "m"})
		}
	}
	ids := make([]uuid.UUID, len(subs))
	first := make([]bool, len(subs))
	together(len(subs), func(i int) {
		store := b.store
		if i%3 == 0 {
			store = replica
		}
		r, repeated, err := store.Submit(t.Context(), subs[i])
		if err == nil {
			ids[i], first[i] = r.ID, !repeated
		}
	})
	made := 0
	for i := range ids {
		require.Equal(t, ids[0], ids[i])
		require.NotEqual(t, uuid.Nil, ids[i])
		if first[i] {
			made++
		}
	}
	require.Equal(t, 1, made)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM friend_request`))
	require.Equal(t, 1, b.count(`SELECT count(*) FROM test_todo`))

	// After a restart, and after the decision, it is still that request.
	_, err := b.store.Decline(t.Context(), b.bob, ids[0], friend.Refusal{})
	require.NoError(t, err)
	r, repeated, err := friend.New(b.pool, b.options).Submit(t.Context(), same)
	require.NoError(t, err)
	require.True(t, repeated)
	require.Equal(t, friend.Declined, r.State)

	other := b.sign(from{key: key, messageID: "m", reason: "Something else."})
	b.refusedStoringNothing(refusal.Conflict, func() error { _, _, err := b.store.Submit(t.Context(), other); return err })
	// The key of row 8 is of one identity, key and persona: carol's "m" is another.
	b.pending(from{sub: "carol", messageID: "m"})
}

func TestSubmit_OnePendingPerIdentityAndPersona(t *testing.T) {
	t.Parallel()
	b := setup(t)
	errs := make([]error, 8)
	subs := make([]friend.Submission, len(errs))
	for i := range subs {
		subs[i] = b.sign(from{}) // alice, each time another key and message
	}
	together(len(subs), func(i int) { _, _, errs[i] = b.store.Submit(t.Context(), subs[i]) })
	ok := 0
	for _, err := range errs {
		if err == nil {
			ok++
			continue
		}
		refused(t, refusal.Conflict, err)
	}
	require.Equal(t, 1, ok)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM friend_message`))
	require.Equal(t, 2, b.count(`SELECT count(*) FROM friend_replay`), "the refused ones left no trace")

	// Expired ones are out of the way even though nobody has swept.
	b.exec(`UPDATE friend_request SET expires_at = created_at`)
	b.pending(from{})
	require.Equal(t, "failed", b.text(`SELECT state FROM test_todo ORDER BY id LIMIT 1`))
}

func TestSubmit_QuotaHoldsUnderARace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 12
	for i := range n {
		b.newPersona(b.bob, fmt.Sprintf("p-%d", i))
	}
	subs := make([]friend.Submission, n)
	for i := range subs {
		subs[i] = b.sign(from{persona: fmt.Sprintf("p-%d", i)})
	}
	errs := make([]error, n)
	together(n, func(i int) { _, _, errs[i] = b.store.Submit(t.Context(), subs[i]) })
	for _, err := range errs {
		if err != nil {
			refused(t, refusal.RateLimited, err)
			require.NotZero(t, refusal.From(err).RetryAfter)
		}
	}
	require.Equal(t, 5, b.count(`SELECT count(*) FROM friend_request WHERE state = 'pending'`))
	b.pending(from{sub: "carol", persona: "p-0"})
}

func TestSubmit_TwentyADay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 {
		r := b.pending(from{})
		_, err := b.store.Withdraw(t.Context(), friend.Asker{Identity: r.Identity.Hash}, r.ID)
		require.NoError(t, err)
	}
	b.refusedStoringNothing(refusal.RateLimited, func() error { _, err := b.submit(from{}); return err })
	b.exec(`UPDATE friend_request SET created_at = created_at - interval '24 hours' WHERE id = (SELECT min(id::text)::uuid FROM friend_request)`)
	b.pending(from{})
}

func TestSubmit_APersonaHoldsFiftyAndNoIssuerMoreThanHalf(t *testing.T) {
	t.Parallel()
	fill := func(b *bundle, issuer string, n int) {
		b.t.Helper()
		for i := range n {
			b.pending(from{sub: fmt.Sprintf("%s-%d", issuer, i), issuer: issuer})
		}
	}
	t.Run("several issuers", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		fill(b, "plain", 25)
		b.refusedStoringNothing(refusal.RateLimited, func() error { _, err := b.submit(from{sub: "late"}); return err })
		fill(b, "shunned", 25)
		b.refusedStoringNothing(refusal.RateLimited, func() error {
			_, err := b.submit(from{issuer: "tenants", token: provenancetest.JWS{Claims: map[string]any{"oid": "o", "tid": provenancetest.TenantID}}})
			return err
		})
	})
	t.Run("only one issuer", func(t *testing.T) {
		t.Parallel()
		b := setup(t, onlyPlain)
		fill(b, "plain", 50)
		b.refusedStoringNothing(refusal.RateLimited, func() error { _, err := b.submit(from{sub: "late"}); return err })
	})
}

func TestSubmit_ANewIssuersQuotaGrows(t *testing.T) {
	t.Parallel()
	b := setup(t, ramped)
	b.newPersona(b.bob, "second")
	b.newPersona(b.bob, "third")
	b.pending(from{})
	// A tenth of 5, rounded up, is 1.
	b.refusedStoringNothing(refusal.RateLimited, func() error { _, err := b.submit(from{persona: "second"}); return err })
	b.pending(from{sub: "alice", issuer: "shunned", persona: "second"}) // not a new one
	b.exec(`UPDATE friend_issuer SET first_seen = first_seen - interval '4 days'`)
	b.pending(from{persona: "second"}) // 0.1 + 0.9 · 4/14 of 5, rounded up, is 2
	b.refusedStoringNothing(refusal.RateLimited, func() error { _, err := b.submit(from{persona: "third"}); return err })
	b.exec(`UPDATE friend_issuer SET first_seen = first_seen - interval '10 days'`)
	b.pending(from{persona: "third"})
}

func TestSubmit_BlockThenCoolDownThenPending(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.newPersona(b.bob, "second")
	elsewhere := b.pending(from{persona: "second"})
	r := b.pending(from{})
	_, err := b.store.Decline(t.Context(), b.bob, r.ID, friend.Refusal{Note: "no", Block: true})
	require.NoError(t, err)
	other, err := b.store.GetIncoming(t.Context(), b.bob, elsewhere.ID)
	require.NoError(t, err)
	require.Equal(t, friend.Declined, other.State, "what else the blocked one had pending")

	b.refusedStoringNothing(refusal.Forbidden, func() error { _, err := b.submit(from{}); return err })
	b.refusedStoringNothing(refusal.Forbidden, func() error { _, err := b.submit(from{persona: "second"}); return err })
	blocks, next, err := b.store.Blocks(t.Context(), b.bob, "", 0)
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, blocks, 1)
	require.Equal(t, "alice", blocks[0].Identity.Subject)

	refused(t, refusal.NotFound, b.store.Unblock(t.Context(), uuid.Must(uuid.NewV7()), blocks[0].ID))
	require.NoError(t, b.store.Unblock(t.Context(), b.bob, blocks[0].ID))
	refused(t, refusal.NotFound, b.store.Unblock(t.Context(), b.bob, blocks[0].ID))
	b.refusedStoringNothing(refusal.RateLimited, func() error { _, err := b.submit(from{}); return err })
	b.exec(`UPDATE friend_request SET decided_at = decided_at - interval '7 days'`)
	r = b.pending(from{})
	yes := true
	_, err = b.store.Decline(t.Context(), b.bob, r.ID, friend.Refusal{MayAskAgain: &yes})
	require.NoError(t, err)
	b.pending(from{})
}

func TestSubmit_AKeyWithALiveGrantMustSayWhatItReplaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	g := b.granted(from{key: key})
	b.refusedStoringNothing(refusal.Conflict, func() error { _, err := b.submit(from{key: key}); return err })
	b.refusedStoringNothing(refusal.Conflict, func() error { _, err := b.submit(from{sub: "carol", key: key}); return err })
	other := b.granted(from{}) // another agent of alice's, a line of its own
	require.NotEqual(t, g.Line, other.Line)

	carols := b.granted(from{sub: "carol"})
	b.newPersona(b.bob, "second")
	elsewhere := b.granted(from{persona: "second"})
	over := b.granted(from{})
	_, err := b.store.Revoke(t.Context(), b.bob, over.ID, true)
	require.NoError(t, err)
	var messages []string
	for _, id := range []uuid.UUID{uuid.Must(uuid.NewV7()), carols.ID, elsewhere.ID, over.ID, g.RequestID} {
		_, err := b.submit(from{key: key, supersedes: id})
		refused(t, refusal.InvalidArgument, err)
		messages = append(messages, refusal.From(err).Message)
	}
	for _, m := range messages {
		require.Equal(t, messages[0], m)
	}
	b.refusedStoringNothing(refusal.InvalidArgument, func() error { _, err := b.submit(from{key: key, supersedes: carols.ID}); return err })
	// It must be that key's own, when it has one.
	b.refusedStoringNothing(refusal.Conflict, func() error { _, err := b.submit(from{key: key, supersedes: other.ID}); return err })
	b.pending(from{key: key, supersedes: g.ID})
}

func TestSubmit_AddressesAreLimitedBeforeAnySignature(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := friend.Submission{Persona: slug, MessageID: "m", Part: json.RawMessage(`{}`)}
	try := func(address string) error {
		sub.Address = netip.MustParseAddr(address)
		_, _, err := b.store.Submit(t.Context(), sub)
		return err
	}
	for range 120 {
		refused(t, refusal.InvalidArgument, try("2001:db8::1"))
	}
	err := try("2001:db8::2") // of the same /64
	refused(t, refusal.RateLimited, err)
	require.NotZero(t, refusal.From(err).RetryAfter)
	refused(t, refusal.InvalidArgument, try("2001:db8:0:1::1"))
	for range 130 {
		refused(t, refusal.InvalidArgument, try("::ffff:127.0.0.1")) // loopback, in dev
	}
	options := b.options
	options.Dev = false
	b.store = friend.New(b.pool, options)
	for range 120 {
		refused(t, refusal.InvalidArgument, try("127.0.0.1"))
	}
	refused(t, refusal.RateLimited, try("127.0.0.1"))
}

func TestSubmit_EvidenceIsSealedAndNeverShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.sign(from{})
	r, _, err := b.store.Submit(t.Context(), sub)
	require.NoError(t, err)
	var part struct {
		Provenance struct {
			IDToken string `json:"id_token"`
		} `json:"provenance"`
	}
	require.NoError(t, json.Unmarshal(sub.Part, &part))
	var sealed []byte
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT id_token FROM friend_evidence WHERE request_id = $1`, r.ID).Scan(&sealed))
	opened, err := b.options.Sealer.Open(sealed, "friend_request "+r.ID.String()+" id_token")
	require.NoError(t, err)
	require.Equal(t, part.Provenance.IDToken, string(opened))
	_, err = b.options.Sealer.Open(sealed, "friend_request "+uuid.NewString()+" id_token")
	require.Error(t, err, "evidence of one request is none of another")
	for table := range b.rows() {
		require.Zero(t, b.count(`SELECT count(*) FROM "`+table+`" t WHERE t::text LIKE '%' || $1 || '%'`, part.Provenance.IDToken), "%s holds the token in clear", table)
	}
}
