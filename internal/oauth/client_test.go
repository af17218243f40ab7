package oauth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whoever has a session can point to documents that never end; that must keep
// nobody else from signing a program in.
func TestSlowDocumentsOfOneKeepNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	var all sync.WaitGroup
	defer all.Wait()
	defer close(release)
	refused := make(chan answer, 16)
	for n := range 16 {
		q, _ := b.request(b.mcp())
		q.Set("client_id", fmt.Sprintf("%s/%d.json", slow.URL, n))
		all.Go(func() { refused <- b.authorize(t, "carol", q) })
	}
	for range 14 { // the two others wait for their documents
		select {
		case r := <-refused:
			require.Equal(t, http.StatusBadRequest, r.status)
			require.Contains(t, r.body, "several programs of yours are being looked up")
		case <-time.After(3 * time.Second):
			require.Fail(t, "one person's documents hold all places")
		}
	}
	q, _ := b.request(b.mcp())
	require.Equal(t, http.StatusOK, b.authorize(t, "alice", q).status)
}
