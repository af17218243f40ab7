package todo

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// fillDay writes n finished todos of an owner straight into the tables, spread over
// the hours before now: what was created when is what counts here, and only the
// clock can make that otherwise.
func (k *kit) fillDay(t *testing.T, owner uuid.UUID, queue string, n int, over string) {
	t.Helper()
	_, err := k.pool.Exec(t.Context(), `
		WITH made AS (
			SELECT i, clock_timestamp() - i * $4::interval / $3 AS at FROM generate_series(0, $3 - 1) i
		), ided AS (
			SELECT (left(todo_first_id(at)::text, 19) || '8' || substr(gen_random_uuid()::text, 21))::uuid AS id, at FROM made
		), todos AS (
			INSERT INTO todo (owner, id, queue, line, title, priority, created_at)
			SELECT $1, id, $2, $1, 'x', 5, at FROM ided RETURNING id, created_at
		)
		INSERT INTO todo_outcome (owner, id, state, version, attempt, finished_at)
		SELECT $1, id, 'done', 2, 1, created_at FROM todos`, owner, queue, n, over)
	require.NoError(t, err)
}

func TestDay_CountsHoursOfOneQueueOfOneHuman(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	d, err := k.store.Day(t.Context(), k.owner, "reviews")
	require.NoError(t, err)
	require.Equal(t, [24]DayHour{}, d.Hours)
	require.False(t, d.Partial)
	require.Equal(t, d.From.Truncate(time.Hour), d.From)
	require.WithinDuration(t, time.Now().Add(-23*time.Hour), d.From, time.Hour+time.Minute)

	k.fillDay(t, k.owner, "reviews", 480, "48 hours") // ten an hour
	k.fillDay(t, k.owner, "builds", 48, "48 hours")
	k.fillDay(t, uuid.Must(uuid.NewV7()), "reviews", 48, "48 hours")
	// One that was created long ago and has ended just now.
	_, err = k.pool.Exec(t.Context(), `
		UPDATE todo_outcome SET finished_at = clock_timestamp()
		WHERE owner = $1 AND id = (SELECT t.id FROM todo t WHERE t.owner = $1 AND t.queue = 'reviews' ORDER BY t.id LIMIT 1)`, k.owner)
	require.NoError(t, err)
	d, err = k.store.Day(t.Context(), k.owner, "reviews")
	require.NoError(t, err)
	require.False(t, d.Partial)
	created, finished := int64(0), int64(0)
	for i, h := range d.Hours {
		if i > 0 && i < 23 {
			require.InDelta(t, 10, h.Created, 1, "hour %d", i)
		}
		created, finished = created+h.Created, finished+h.Finished
	}
	require.InDelta(t, 235, created, 7, "what is older than a day is not counted")
	require.Equal(t, created+1, finished)
	require.Equal(t, d.Hours[23].Created+1, d.Hours[23].Finished)
}

// TestDay_CostsTheSameWhateverThereIs: beyond what is looked at the day says so, and
// the plan reads the newest in the order of the primary keys, sorting and scanning nothing.
func TestDay_CostsTheSameWhateverThereIs(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.fillDay(t, k.owner, "reviews", 3*DayMost, "20 hours")
	_, err := k.pool.Exec(t.Context(), `ANALYZE todo, todo_outcome`)
	require.NoError(t, err)
	d, err := k.store.Day(t.Context(), k.owner, "reviews")
	require.NoError(t, err)
	require.True(t, d.Partial)
	created := int64(0)
	for _, h := range d.Hours {
		created += h.Created
	}
	require.EqualValues(t, DayMost, created)

	rows, err := k.pool.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+dayOf, k.owner, "reviews", DayMost)
	require.NoError(t, err)
	var plan strings.Builder
	for rows.Next() {
		var l string
		require.NoError(t, rows.Scan(&l))
		fmt.Fprintln(&plan, l)
	}
	require.NoError(t, rows.Err())
	require.NotRegexp(t, `Seq Scan on todo\S* \S+ \(actual rows=[1-9]`, plan.String(), plan.String())
	require.NotContains(t, plan.String(), fmt.Sprintf("rows=%d", 3*DayMost), plan.String())
	require.Regexp(t, `Index Scan Backward using todo_\d+_pkey`, plan.String())
}
