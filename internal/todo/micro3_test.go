package todo

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMicroClaim(t *testing.T) {
	if os.Getenv("TODO_MICRO") == "" {
		t.Skip()
	}
	ctx := context.Background()
	k := newKit(t)
	_, err := k.pool.Exec(ctx, "ALTER DATABASE \""+k.pool.Config().ConnConfig.Database+"\" SET synchronous_commit = off")
	require.NoError(t, err)
	s := k.replica(Options{})
	for i := range 400 {
		items := make([]New, 100)
		for j := range items {
			items[j] = New{Queue: "reviews", Title: "look at this", IdempotencyKey: fmt.Sprint(i, ".", j), Body: benchBody, Payload: []byte(`{"pr":7}`)}
		}
		_, err := s.Create(ctx, k.work, items)
		require.NoError(t, err)
	}
	k.exec("VACUUM ANALYZE")
	fmt.Println("ready")
	begin, n := time.Now(), 0
	for time.Since(begin) < 10*time.Second {
		got, err := s.ClaimNext(ctx, k.work, ClaimNext{Queues: []string{"reviews"}})
		require.NoError(t, err)
		if len(got) == 0 {
			break
		}
		n++
	}
	fmt.Println("claims", n, time.Since(begin)/time.Duration(n))
}
