package todo

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"switchboard/internal/postgres/pgtest"
)

// TestMicro prints the processor time of each step at some sizes of batch.
func TestMicro(t *testing.T) {
	if os.Getenv("TODO_MICRO") == "" {
		t.Skip()
	}
	ctx := context.Background()
	k := newKit(t)
	meter := newCPU(t, k.pool)
	k.store.writers.Config()
	if os.Getenv("TODO_SYNC") == "" {
		_, err := k.pool.Exec(ctx, "ALTER DATABASE \""+k.pool.Config().ConnConfig.Database+"\""+" SET synchronous_commit = off")
		require.NoError(t, err)
	}
	pool := pgtest.Open(t, k.url)
	_, err := pool.Exec(ctx, rawTable)
	require.NoError(t, err)
	s := k.replica(Options{})
	auth := authorityOf(k.work)
	auth.queues = "reviews"
	ops := 1000
	show := func(name string, n int, f func(i int)) {
		s0, c0 := meter.used()
		begin := time.Now()
		for i := 0; i < ops; i += n {
			f(i)
		}
		took := time.Since(begin)
		s1, c1 := meter.used()
		fmt.Printf("%-12s n=%2d server %6.1f client %6.1f wall %6.1f µs/op\n", name, n,
			float64((s1-s0).Microseconds())/float64(ops), float64((c1-c0).Microseconds())/float64(ops), float64(took.Microseconds())/float64(ops))
	}
	for range 3 {
		for _, n := range []int{1, 20} {
			run := func(works []*work) {
				_, err := s.execute(ctx, works)
				require.NoError(t, err)
			}
			show("create", n, func(i int) {
				var works []*work
				for range n {
					w := &work{auth: auth}
					c, err := newCreation(New{Queue: "reviews", Title: "look at this", IdempotencyKey: newID().String(), Body: benchBody, Payload: []byte(`{"pr":7}`)}, nil)
					require.NoError(t, err)
					c.auth, c.line = &w.auth, k.work.Endpoint.Line
					w.add(c)
					works = append(works, w)
				}
				run(works)
			})
			var got []Claimed
			show("claim", n, func(i int) {
				var works []*work
				for range n {
					w := &work{auth: auth}
					w.demand = &demand{auth: &w.auth, queues: []string{"reviews"}, max: 1, lease: time.Minute}
					works = append(works, w)
				}
				run(works)
				for _, w := range works {
					require.Len(t, w.demand.taken, 1)
					got = append(got, w.demand.taken...)
				}
			})
			show("beat", n, func(i int) {
				var works []*work
				for j := range n {
					w := &work{auth: auth}
					b, _, err := newBeat(Beat{TodoID: got[i+j].TodoID, LeaseToken: got[i+j].LeaseToken})
					require.NoError(t, err)
					b.auth = &w.auth
					w.beats = append(w.beats, b)
					works = append(works, w)
				}
				run(works)
			})
			show("complete", n, func(i int) {
				var works []*work
				for j := range n {
					w := &work{auth: auth}
					b, _, err := newCompletion(Completion{TodoID: got[i+j].TodoID, LeaseToken: got[i+j].LeaseToken, Result: []byte(`{"ok":true}`)})
					require.NoError(t, err)
					b.auth = &w.auth
					w.completions = append(w.completions, b)
					works = append(works, w)
				}
				run(works)
				for _, w := range works {
					require.NoError(t, w.completions[0].err)
				}
			})
		}
		raw := &rawSide{pool: pool, owners: []uuid.UUID{newID()}}
		show("raw (4 steps)", 1, func(i int) { require.NoError(t, raw.lifecycle(ctx, 0, i)) })
	}
}
