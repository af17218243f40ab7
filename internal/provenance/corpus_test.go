package provenance_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
)

// Every forged or broken request of the corpus is refused, with the reason that
// the table's first failing row names.
func TestForgedRequestsAreRefusedEachWithItsReason(t *testing.T) {
	t.Parallel()
	cases := provenancetest.Corpus(t, "testdata/corpus.json")
	require.GreaterOrEqual(t, len(cases), 100)
	w := newWorld(t)
	v := newVerifier(w)
	refused := 0
	for _, c := range cases {
		_, err := check(t.Context(), w, v, w.Build(t, c))
		if got := refusal.CodeOf(err); got != refusal.Code(c.Reason) {
			t.Errorf("%s: %q, want %q (%v)", c.Name, got, c.Reason, err)
			continue
		}
		if errors.Is(err, provenance.ErrNotJSON) != c.NotJSON {
			t.Errorf("%s: not JSON = %v, want %v (%v)", c.Name, !c.NotJSON, c.NotJSON, err)
		}
		refused++
	}
	t.Logf("%d kinds, %d refused with the expected reason", len(cases), refused)
	require.LessOrEqual(t, w.KeyFetches.Load(), int64(2*len(w.Entries())), "forgeries must not make us ask the issuers")
	require.Zero(t, w.Fetches.Load(), "nothing is fetched on a stranger's word")
}

// What looks odd and is right must pass, or the corpus could be refused by a
// verifier that refuses everything.
func TestUnusualRequestsThatAreGoodPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := newVerifier(w)
	for _, c := range provenancetest.Corpus(t, "testdata/accepted.json") {
		_, err := check(t.Context(), w, v, w.Build(t, c))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	require.Zero(t, w.Fetches.Load())
}
