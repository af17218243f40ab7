package todo

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMicroStep repeats the step in TODO_STEP, alone, for a profiler.
func TestMicroStep(t *testing.T) {
	step := os.Getenv("TODO_STEP")
	if step == "" {
		t.Skip("set TODO_STEP")
	}
	ctx := context.Background()
	k := newKit(t)
	meter := newCPU(t, k.pool)
	_, err := k.pool.Exec(ctx, "ALTER DATABASE \""+k.pool.Config().ConnConfig.Database+"\" SET synchronous_commit = off")
	require.NoError(t, err)
	s := k.replica(Options{})
	work := k.home("reviews")
	fill := func(n int) {
		for i := 0; i < n; i += 100 {
			items := make([]New, 100)
			for j := range items {
				items[j] = New{Queue: "reviews", Title: "look at this", IdempotencyKey: newID().String(), Body: benchBody, Payload: []byte(`{"pr":7}`)}
			}
			_, err := s.Create(ctx, work, items)
			require.NoError(t, err)
		}
	}
	var got []Claimed
	if step != "create" {
		fill(20000)
	}
	if step == "beat" || step == "complete" {
		for len(got) < 20000 {
			more, err := s.ClaimNext(ctx, work, ClaimNext{Max: 100})
			require.NoError(t, err)
			got = append(got, more...)
		}
	}
	k.exec("VACUUM ANALYZE")
	fmt.Println("ready")
	for range 4 {
		s0, c0 := meter.used()
		begin, n := time.Now(), 0
		for n < 4000 {
			n++
			switch step {
			case "create":
				out, err := s.Create(ctx, work, []New{{Queue: "reviews", Title: "look at this", IdempotencyKey: newID().String(), Body: benchBody, Payload: []byte(`{"pr":7}`)}})
				require.NoError(t, err)
				require.NoError(t, out[0].Err)
			case "claim":
				c, err := s.ClaimNext(ctx, work, ClaimNext{})
				require.NoError(t, err)
				require.Len(t, c, 1)
			case "beat":
				out, err := s.Heartbeat(ctx, work, []Beat{{TodoID: got[n].TodoID, LeaseToken: got[n].LeaseToken}})
				require.NoError(t, err)
				require.NoError(t, out[0].Err)
			case "complete":
				out, err := s.Complete(ctx, work, []Completion{{TodoID: got[0].TodoID, LeaseToken: got[0].LeaseToken, Result: []byte(`{"ok":true}`)}})
				got = got[1:]
				require.NoError(t, err)
				require.NoError(t, out[0].Err)
			}
		}
		took := time.Since(begin)
		s1, c1 := meter.used()
		fmt.Printf("%s: wall %.1f server %.1f client %.1f µs\n", step, float64(took.Microseconds())/float64(n), float64((s1-s0).Microseconds())/float64(n), float64((c1-c0).Microseconds())/float64(n))
	}
}
