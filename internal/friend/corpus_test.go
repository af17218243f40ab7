package friend_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
	"switchboard/internal/persona"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// corpus is a bundle whose persona lets ask whom the corpus expects.
func corpus(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	// Everything is on offer, so that row 1 does not hide a later one.
	queues, wide := []string{"reviews", "payroll"}, []scope.Offer{}
	for _, q := range queues {
		wide = append(wide, scope.Offer{Queue: q, Verbs: scope.Verbs(), Limits: scope.Partial{MaxOpen: num(1e9), PerHour: num(1e9), MaxPriority: num(9), ExpiresInDays: num(365)}})
	}
	_, err := b.personas.Update(t.Context(), b.bob, b.persona.ID, persona.Patch{
		Queues: &queues, Offers: &wide, WhoMayAsk: &persona.WhoMayAsk{Issuers: b.idp.MayAsk()},
	})
	require.NoError(t, err)
	return b
}

func (b *bundle) try(i int, c provenancetest.Case) (friend.Request, error) {
	b.idp.Now = time.Now() // boundaries are a second wide
	r, _, err := b.store.Submit(b.t.Context(), friend.Submission{
		Persona: slug, MessageID: fmt.Sprint(i), Part: b.idp.Build(b.t, c), Address: netip.MustParseAddr("127.0.0.1"),
	})
	return r, err
}

func TestCorpus_ForgedRequestsAreRefusedAndStoreNothing(t *testing.T) {
	t.Parallel()
	b := corpus(t)
	before := b.rows()
	cases := provenancetest.Corpus(t, "../provenance/testdata/corpus.json")
	for i, c := range cases {
		_, err := b.try(i, c)
		if got := refusal.CodeOf(err); got != refusal.Code(c.Reason) {
			t.Errorf("%s: %q, want %q (%v)", c.Name, got, c.Reason, err)
		}
	}
	require.Equal(t, before, b.rows())
	t.Logf("%d kinds, 0 rows stored", len(cases))
}

// slow reports a refusal that a busy machine may have caused: between building a
// request and judging it the second passed on which its boundary lies.
func slow(err error) bool {
	code := refusal.CodeOf(err)
	return code == refusal.IDTokenExpired || code == refusal.StatementInvalid
}

func TestCorpus_UnusualRequestsThatAreGoodAreStored(t *testing.T) {
	t.Parallel()
	b := corpus(t)
	for i, c := range provenancetest.Corpus(t, "../provenance/testdata/accepted.json") {
		r, err := b.try(i, c)
		for n := 0; n < 20 && slow(err); n++ {
			r, err = b.try(i, c)
		}
		if c.Request["supersedes"] != nil {
			refused(t, refusal.InvalidArgument, err) // good provenance, no such grant
			continue
		}
		require.NoError(t, err, c.Name)
		if r.State == friend.Pending {
			yes := true
			_, err = b.store.Decline(t.Context(), b.bob, r.ID, friend.Refusal{MayAskAgain: &yes})
			require.NoError(t, err, c.Name)
		}
		b.exec(`UPDATE friend_request SET created_at = created_at - interval '2 days'`)
	}
}
