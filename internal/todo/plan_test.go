package todo

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
)

// hotStatements are those of batches.
var hotStatements = map[string]string{
	"lock one": lockOne, "lock many": lockMany, "lock counted": lockManyCounted,
	"insert one": insertOne, "insert one limited": insertOneLimited, "insert many": insertMany, "insert many limited": insertManyLimited,
	"take next": takeNextFew, "take across": takeAcrossFew, "take each": takeEachFew, "take each bare": takeEachBare, "take next bare": takeNextBare, "take alone bare": takeAloneBare, "take many": takeNextMany, "take many across": takeAcrossMany, "take by id": takeByID,
	"promote": promoteDue, "reclaim next": reclaimNext, "reclaim by id": reclaimByID,
	"expire deadlines": expireDeadlines, "expire questions": expireQuestions, "promote anywhere": promoteAnywhere, "set timers": setTimers,
	"insert alone": insertAlone, "take alone": takeAlone, "prolong alone": prolongAlone, "finish alone": finishAlone,
	"prolong one": prolongOne, "prolong many": prolongMany,
	"finish one": finishOne, "finish many": finishTodos, "end": endAttempts, "artifacts": addArtifacts,
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// explain returns the plan that a statement gets on a writer's connection without
// knowledge of its parameters.
func explain(t *testing.T, conn *pgxpool.Conn, name, sql string) string {
	t.Helper()
	ctx := context.Background()
	id := "s_" + strings.ReplaceAll(name, " ", "_")
	if _, err := conn.Conn().PgConn().Exec(ctx, "PREPARE "+id+" AS "+sql).ReadAll(); err != nil {
		require.Contains(t, err.Error(), "already exists", "%s: %s", name, sql)
	}
	count := 0
	for _, m := range parameter.FindAllStringSubmatch(sql, -1) {
		var n int
		_, err := fmt.Sscan(m[1], &n)
		require.NoError(t, err)
		count = max(count, n)
	}
	rows, err := conn.Query(ctx, "EXPLAIN (COSTS OFF) EXECUTE "+id+"("+strings.TrimSuffix(strings.Repeat("NULL,", count), ",")+")")
	require.NoError(t, err, name)
	var plan strings.Builder
	for rows.Next() {
		var l string
		require.NoError(t, rows.Scan(&l))
		plan.WriteString(l + "\n")
	}
	require.NoError(t, rows.Err())
	return plan.String()
}

// TestPlan_LooksRowsUpWhateverTheStatisticsSay: with an owner first in the primary
// key and statistics of another day, the planner may find a todo by its owner alone
// and throw all the others away; or keep the scan of the whole table that was right
// while the table was empty. Either is a collapse.
func TestPlan_LooksRowsUpWhateverTheStatisticsSay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fill := func(k *kit, owners, each int) {
		k.exec(`
			INSERT INTO todo_live (owner, id, queue, line, rank, vstart, claimable, state)
			SELECT ('00000000-0000-7000-8000-' || lpad(o::text, 12, '0'))::uuid, gen_random_uuid(), 'reviews', gen_random_uuid(), 5, i, true, 'ready'
			FROM generate_series(1, $1::int) o, generate_series(1, $2::int) i`, owners, each)
		k.exec(`
			INSERT INTO todo_key (owner, line, name, id, digest, ordinal, created_at)
			SELECT owner, line, id, id, id, 1, clock_timestamp() FROM todo_live ON CONFLICT DO NOTHING`)
	}
	for name, prepare := range map[string]func(k *kit, conn *pgxpool.Conn){
		"planned while empty": func(k *kit, conn *pgxpool.Conn) {
			for name, sql := range hotStatements {
				explain(t, conn, name, sql)
			}
			fill(k, 1, 5000)
		},
		"analysed while there was one row": func(k *kit, _ *pgxpool.Conn) {
			fill(k, 1, 1)
			k.exec(`ANALYZE`)
			fill(k, 1, 5000)
		},
		"analysed while every owner had one": func(k *kit, _ *pgxpool.Conn) {
			fill(k, 5000, 1)
			k.exec(`ANALYZE`)
		},
		"analysed with one owner": func(k *kit, _ *pgxpool.Conn) {
			fill(k, 1, 5000)
			k.exec(`ANALYZE`)
		},
	} {
		k := newKit(t)
		conn, err := k.store.writers.Acquire(ctx)
		require.NoError(t, err)
		t.Cleanup(sync.OnceFunc(conn.Release))
		prepare(k, conn)
		for statement, sql := range hotStatements {
			plan := explain(t, conn, statement, sql)
			for l := range strings.Lines(plan) {
				for _, bad := range []string{"Seq Scan", "Bitmap", "Hash Join", "Merge Join"} {
					require.NotContains(t, l, bad, "%s, %s:\n%s", name, statement, plan)
				}
			}
			requireLookups(t, name+", "+statement, plan)
		}
	}
}

// requireLookups checks each index scan of a plan: by the whole primary key, or in
// the order of an index that starts with what is asked for.
func requireLookups(t *testing.T, name, plan string) {
	t.Helper()
	lines := strings.Split(plan, "\n")
	for i, l := range lines {
		if !strings.Contains(l, "Index") || !strings.Contains(l, " using ") {
			continue
		}
		index := strings.Fields(l[strings.Index(l, " using ")+7:])[0]
		require.Less(t, i+1, len(lines))
		cond := lines[i+1]
		require.Contains(t, cond, "Index Cond", "%s:\n%s", name, plan)
		for _, column := range map[string][]string{
			"todo_live_pkey": {"owner =", "id ="}, "todo_live_order": {"owner =", "queue ="}, "todo_live_line": {"line ="},
			"todo_timer_queue": {"owner =", "what =", "queue =", "at <="}, "todo_timer_at": {"what =", "at <="}, "todo_timer_pkey": {"owner =", "todo =", "what ="},
			"todo_key_once": {"owner =", "name ="}, "todo_key_by_time": {"line ="}, "queue_pkey": {"owner =", "name ="}, "endpoint_pkey": {"owner =", "id ="},
			"stand_in_pkey": {"owner =", "id ="},
		}[index] {
			require.Contains(t, cond, column, "%s:\n%s", name, plan)
		}
		// A filter on what the index is sorted by reads it from its beginning.
		if !strings.HasSuffix(index, "_pkey") && i+2 < len(lines) && strings.Contains(lines[i+2], "Filter:") {
			for _, column := range []string{"created_at", "not_before <=", "asked_at", "deadline <="} {
				require.NotContains(t, lines[i+2], column, "%s:\n%s", name, plan)
			}
		}
	}
}

// TestPlan_AClaimReadsTheNextInOrder: no sort of the backlog, and it begins where the
// last one ended.
func TestPlan_AClaimReadsTheNextInOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	conn, err := k.store.writers.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	plan := explain(t, conn, "take next", takeNextFew)
	require.NotContains(t, plan, "Sort")
	require.Contains(t, plan, "todo_live_order")
	require.Contains(t, plan, "ROW(rank, vstart, id) >=")
	require.Contains(t, plan, "Tid Scan")
}

// TestPlan_AuthorityIsJudgedBeforeARowIsTaken: a statement that holds its caller's lock
// itself takes it while it looks for the row, and whoever it did nothing for is judged
// all the same.
func TestPlan_AuthorityIsJudgedBeforeARowIsTaken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	conn, err := k.store.writers.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for name, sql := range map[string]string{"insert alone": insertAlone, "take alone": takeAlone, "prolong alone": prolongAlone, "finish alone": finishAlone} {
		plan := explain(t, conn, name, sql)
		require.Regexp(t, `Scan using \w+ on \w+ \w\n\s+Index Cond: .*\n\s+Filter: .*todo_stale\(\)`, plan, name)
		require.Contains(t, plan, "LockRows", name)
	}
	stale := k.work
	stale.Endpoint.Version = 9
	for range 2 { // the second time the store knows that the queue is empty
		_, err := k.store.ClaimNext(ctx, stale, ClaimNext{Queues: []string{"reviews"}})
		require.ErrorIs(t, err, endpoint.ErrStale)
		_, err = k.store.ClaimNext(ctx, k.work, ClaimNext{Queues: []string{"reviews"}})
		require.NoError(t, err)
	}
	twice := New{Queue: "reviews", Title: "once", IdempotencyKey: "once"}
	created, err := k.store.Create(ctx, k.work, []New{twice})
	require.NoError(t, err)
	require.NoError(t, created[0].Err)
	for name, op := range map[string]func() error{
		"claim": func() error {
			_, err := k.store.ClaimNext(ctx, stale, ClaimNext{Queues: []string{"reviews"}})
			return err
		},
		"beat": func() error {
			_, err := k.store.Heartbeat(ctx, stale, []Beat{{TodoID: newID(), LeaseToken: newID().String()}})
			return err
		},
		"complete": func() error {
			_, err := k.store.Complete(ctx, stale, []Completion{{TodoID: newID(), LeaseToken: newID().String()}})
			return err
		},
		"create": func() error {
			_, err := k.store.Create(ctx, stale, []New{{Queue: "reviews", Title: "t", IdempotencyKey: "k"}})
			return err
		},
		"create again": func() error {
			_, err := k.store.Create(ctx, stale, []New{twice})
			return err
		},
	} {
		require.ErrorIs(t, op(), endpoint.ErrStale, name)
	}
}

// TestPlan_ClaimsAndHeartbeatsLeaveTheIndexesAlone: both must be heap-only updates.
func TestPlan_ClaimsAndHeartbeatsLeaveTheIndexesAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	for i := range 5 {
		k.create(fmt.Sprint(i))
	}
	got := k.claim(5)
	var beats []Beat
	for _, c := range got {
		beats = append(beats, Beat{TodoID: c.TodoID, LeaseToken: c.LeaseToken, Progress: &Progress{Note: "on"}})
	}
	_, err := k.store.Heartbeat(ctx, k.work, beats)
	require.NoError(t, err)
	_, err = k.store.Heartbeat(ctx, k.work, beats[:1])
	require.NoError(t, err)
	for _, c := range k.store.writers.AcquireAllIdle(ctx) {
		_, err := c.Exec(ctx, `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, err)
		c.Release()
	}
	require.Eventually(t, func() bool {
		var updated, hot int64
		require.NoError(t, k.pool.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'todo_live'`).Scan(&updated, &hot))
		require.Equal(t, updated, hot, "updates that were not heap-only")
		return updated >= 11
	}, 10*time.Second, 50*time.Millisecond)
}
