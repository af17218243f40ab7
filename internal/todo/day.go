package todo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Day is what happened in a queue in the last 24 hours, by the hour in UTC. The last
// hour is the one that has begun.
type Day struct {
	From    time.Time // when the first hour began
	Hours   [24]DayHour
	Partial bool // there was more than is looked at: the counts are of the newest
}

// DayHour counts the todos that were created and that ended within one hour.
type DayHour struct{ Created, Finished int64 }

// DayMost is how many todos of a human, whatever their queue, a day is counted from:
// the newest that were created, and the newest that have ended. Both are read in the
// order of the primary keys, so a day costs the same however many there are, and no
// index has to be kept for it.
const DayMost = 10_000

const dayOf = `
	WITH day AS MATERIALIZED (
		SELECT date_trunc('hour', clock_timestamp(), 'UTC') - interval '23 hours' AS begin
	), newest AS MATERIALIZED (
		-- Ids are made by the processes' clocks and moments by the database's.
		SELECT t.queue, t.created_at AS at FROM todo t
		WHERE t.owner = $1 AND t.id >= (SELECT todo_first_id(begin - interval '1 hour') FROM day)
		ORDER BY t.id DESC LIMIT $3
	), ended AS MATERIALIZED (
		SELECT o.id, o.finished_at AS at FROM todo_outcome o WHERE o.owner = $1 ORDER BY o.id DESC LIMIT $3
	)
	SELECT day.begin, n.hour, n.created, n.finished, (SELECT count(*) FROM newest) = $3 OR (SELECT count(*) FROM ended) = $3
	FROM day LEFT JOIN LATERAL (
		SELECT (extract(epoch FROM e.at - day.begin) / 3600)::numeric::int AS hour, sum(e.created)::bigint AS created, sum(e.finished)::bigint AS finished
		FROM (
			SELECT date_trunc('hour', at, 'UTC') AS at, 1 AS created, 0 AS finished FROM newest WHERE queue = $2 AND at >= day.begin
			UNION ALL
			SELECT date_trunc('hour', ended.at, 'UTC'), 0, 1
			-- The limit makes it a look-up each, and no join that reads a table.
			FROM ended, LATERAL (SELECT t.queue FROM todo t WHERE t.owner = $1 AND t.id = ended.id LIMIT 1) t
			WHERE ended.at >= day.begin AND t.queue = $2
		) e GROUP BY 1
	) n ON true`

// Day counts what happened in a queue in the last 24 hours. A queue that the human
// does not have had a quiet day.
func (s *Store) Day(ctx context.Context, owner uuid.UUID, queue string) (Day, error) {
	var d Day
	rows, err := s.pool.Query(ctx, dayOf, owner, queue, DayMost)
	if err != nil {
		return Day{}, unavailable(fmt.Errorf("count a queue's day: %w", err))
	}
	var hour *int
	var created, finished *int64
	_, err = pgx.ForEachRow(rows, []any{&d.From, &hour, &created, &finished, &d.Partial}, func() error {
		if hour != nil && *hour >= 0 && *hour < len(d.Hours) {
			d.Hours[*hour] = DayHour{*created, *finished}
		}
		return nil
	})
	if err != nil {
		return Day{}, unavailable(fmt.Errorf("count a queue's day: %w", err))
	}
	d.From = d.From.UTC()
	return d, nil
}
