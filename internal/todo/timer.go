package todo

import (
	"time"
)

// What time does to a todo; the rows of todo_timer.
const (
	timerDue      = "due"      // it can be claimed
	timerDeadline = "deadline" // it has to have ended
	timerQuestion = "question" // its question has to have been answered
)

// answerTime is how long a question may wait for its answer.
const answerTime = `interval '7 days'`

// setTimers sets what the new todos among these wait for. Those that were not created
// have no row, and get no timer.
var setTimers = `
INSERT INTO todo_timer (owner, todo, what, queue, at)
SELECT i.owner, i.id, i.what, l.queue, i.at
FROM (` + each(1, "owner uuid", "id uuid", "what text", "at timestamptz") + `) i,
	LATERAL (SELECT l.queue, l.claimable FROM todo_live l WHERE l.owner = i.owner AND l.id = i.id LIMIT 1) l
WHERE i.what <> 'due' OR NOT l.claimable`

// queueTimers adds the statement for the timers of new todos, if there are any.
func queueTimers(b *script, items []*creation) {
	var owners, ids [][16]byte
	var what []string
	var at []time.Time
	add := func(c *creation, kind string, t *time.Time) {
		if t != nil {
			owners, ids, what, at = append(owners, c.auth.owner), append(ids, c.id), append(what, kind), append(at, *t)
		}
	}
	for _, c := range items {
		add(c, timerDue, c.notBefore)
		add(c, timerDeadline, c.deadline)
	}
	if len(ids) > 0 {
		b.add(setTimers, owners, ids, what, at)
	}
}

// promote, in SQL, makes claimable the todos of the timers in the CTE due, which it
// takes away. A todo that waits for a later time by now has another timer.
const promote = `, gone AS (
	DELETE FROM todo_timer m USING due d WHERE m.ctid = d.at
)
UPDATE todo_live l SET claimable = true
FROM due d, LATERAL (
	SELECT l.ctid AS place FROM todo_live l
	WHERE l.owner = d.owner AND l.id = d.todo AND NOT l.claimable AND l.state = 'ready' AND l.not_before <= clock_timestamp()
	LIMIT 1 FOR UPDATE
) x
WHERE l.ctid = x.place
RETURNING l.owner, l.queue`

// promoteDue makes claimable what has become due in some queues.
var promoteDue = `
WITH due AS MATERIALIZED (
	SELECT x.* FROM (` + each(1, "owner uuid", "queue text") + `) i, LATERAL (
		SELECT m.ctid AS at, m.owner, m.todo FROM todo_timer m
		WHERE m.owner = i.owner AND m.what = 'due' AND m.queue = i.queue AND m.at <= (SELECT clock_timestamp())
		ORDER BY m.at LIMIT 1000 FOR UPDATE SKIP LOCKED
	) x
)` + promote

// promoteAnywhere makes claimable what has become due anywhere, at most $1 todos.
const promoteAnywhere = `
WITH due AS MATERIALIZED (
	SELECT m.ctid AS at, m.owner, m.todo FROM todo_timer m
	WHERE m.what = 'due' AND m.at <= (SELECT clock_timestamp())
	ORDER BY m.at LIMIT $1 FOR UPDATE SKIP LOCKED
)` + promote

// expire is a statement that settles the todos of at most $2 timers of kind $3 whose
// time has come, if condition holds for row l, with $1 as the reason.
func expire(condition string) string {
	return `
WITH up AS MATERIALIZED (
	SELECT m.ctid AS at, m.owner, m.todo FROM todo_timer m
	WHERE m.what = $3 AND m.at <= (SELECT clock_timestamp())
	ORDER BY m.at LIMIT $2 FOR UPDATE SKIP LOCKED
), dropped AS (
	DELETE FROM todo_timer m USING up u WHERE m.ctid = u.at
), locked AS MATERIALIZED (
	SELECT x.place FROM up u, LATERAL (
		SELECT l.ctid AS place FROM todo_live l WHERE l.owner = u.owner AND l.id = u.todo AND ` + condition + ` LIMIT 1 FOR UPDATE
	) x
), held AS MATERIALIZED (
	SELECT 0 AS ord, 'expired' AS act, NULL::bytea AS digest, $1::text AS error, $1::text AS message,
		$1::text AS reason, false AS no_retry, NULL::int AS retry_after, NULL::uuid AS asking_id, NULL::text AS asking, ` + heldColumns + `
	FROM locked k, todo_live l WHERE l.ctid = k.place
)` + settle
}

var (
	expireDeadlines = expire(`l.deadline <= clock_timestamp()`)
	expireQuestions = expire(`l.asked_at <= clock_timestamp() - ` + answerTime)
)
