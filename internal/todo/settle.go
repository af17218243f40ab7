package todo

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// How a todo stops being what it is. Those of an attempt are also its outcome.
const (
	actFailed   = "failed"   // by the worker
	actReleased = "released" // by the worker or the human
	actAsked    = "asked"
	actLapsed   = "lapsed"
	actCanceled = "canceled" // by the creator or the human
	actExpired  = "expired"  // its deadline, or its question's, has passed
)

// freeLapses is how often a lease that was never heartbeaten may lapse without
// being charged: the worker may not even have started.
const freeLapses = "3"

// heldColumns are what settle needs of a row l of todo_live.
const heldColumns = `l.ctid AS at, l.owner, l.id, l.queue, l.line, l.state, l.version, l.attempt, l.spent, l.free_lapses,
	l.artifacts, l.questions, l.deadline, l.cancel_requested, l.cancel_reason, l.token, l.worker, l.started_at, l.lease_seconds,
	l.beaten, l.progress, l.public_message`

// settle is the rest of a statement that has made the CTE held: rows of todo_live,
// locked and unchanged since, with what is to happen to each in ord, act, digest,
// error, message, reason, no_retry, retry_after, asking_id, asking. It is the one
// place that says what becomes of an attempt that ends otherwise than by
// completion, and of a todo that is given up:
//
//   - a leased todo that is cancelled, or whose deadline passes, is asked to stop;
//   - a failure is charged to the budget, and so is a lapsed lease, except one that
//     was never heartbeaten, at most three times; a release and a question are not;
//   - with the budget spent, or told not to try again, the todo is failed;
//   - one that was asked to stop, and is not failed, is canceled;
//   - everything else is ready again, after a failure not before a delay.
const settle = `
, judged AS MATERIALIZED (
	SELECT h.*, clock_timestamp() AS now, q.max_attempts,
		(h.act = 'failed' OR h.act = 'lapsed' AND (h.beaten OR h.free_lapses >= ` + freeLapses + `))::int AS cost
	FROM held h, LATERAL (SELECT q.max_attempts FROM queue q WHERE q.owner = h.owner AND q.name = h.queue LIMIT 1) q
), decided AS MATERIALIZED (
	SELECT j.*,
		CASE
			WHEN j.act IN ('canceled', 'expired') AND j.state = 'leased' THEN 'leased'
			WHEN j.act = 'canceled' THEN 'canceled'
			WHEN j.act = 'expired' THEN 'failed'
			WHEN j.act = 'failed' AND (j.no_retry OR j.spent + 1 >= j.max_attempts) THEN 'failed'
			WHEN j.cancel_requested OR j.deadline <= j.now THEN 'canceled'
			WHEN j.cost = 1 AND j.spent + 1 >= j.max_attempts THEN 'failed'
			WHEN j.act = 'asked' THEN 'input_required'
			ELSE 'ready'
		END AS next,
		CASE WHEN j.act = 'failed' THEN coalesce(j.retry_after,
			least(900, 30 * power(2, least(j.spent, 10)) * (0.8 + 0.4 * random()))) ELSE 0 END AS delay
	FROM judged j
), tried AS (
	INSERT INTO todo_attempt (owner, todo, attempt, worker, token, digest, started_at, ended_at, lease_seconds, outcome, error, progress, state, version)
	SELECT owner, id, attempt, worker, token, digest, started_at, now, lease_seconds,
		CASE WHEN next = 'canceled' THEN next ELSE act END, coalesce(error, reason), progress, next, version + 1
	FROM decided WHERE state = 'leased' AND next <> 'leased'
), gone AS (
	DELETE FROM todo_live l USING decided d WHERE l.ctid = d.at AND d.next IN ('failed', 'canceled')
), ended AS (
	INSERT INTO todo_outcome (owner, id, state, version, attempt, artifacts, questions, worker, started_at, lease_seconds, progress,
		public_message, error, cancel_reason, finished_at)
	SELECT owner, id, next, version + 1, attempt, artifacts, questions, worker, started_at, lease_seconds, progress,
		coalesce(message, public_message), error, coalesce(cancel_reason, reason), now
	FROM decided WHERE next IN ('failed', 'canceled')
), asked AS (
	INSERT INTO todo_exchange (owner, todo, id, question, asked_at)
	SELECT owner, id, asking_id, asking, now FROM decided WHERE next = 'input_required'
), timed AS (
	INSERT INTO todo_timer AS m (owner, todo, what, queue, at)
	SELECT owner, id, CASE WHEN next = 'ready' THEN 'due' ELSE 'question' END, queue,
		CASE WHEN next = 'ready' THEN now + make_interval(secs => delay) ELSE now + ` + answerTime + ` END
	FROM decided WHERE next = 'ready' AND delay > 0 OR next = 'input_required'
	ON CONFLICT (owner, todo, what) DO UPDATE SET at = excluded.at
), warned AS (
	UPDATE todo_live l
	SET cancel_requested = true, cancel_reason = coalesce(l.cancel_reason, d.reason), version = l.version + (NOT l.cancel_requested)::int
	FROM decided d WHERE l.ctid = d.at AND d.next = 'leased'
), kept AS (
	UPDATE todo_live l
	SET state = d.next, version = l.version + 1, spent = l.spent + d.cost,
		free_lapses = l.free_lapses + (d.act = 'lapsed' AND d.cost = 0)::int,
		token = NULL, worker = NULL, started_at = NULL, lease_expires_at = NULL, lease_seconds = NULL, beaten = false,
		public_message = coalesce(d.message, l.public_message),
		not_before = CASE WHEN d.delay > 0 THEN d.now + make_interval(secs => d.delay) END,
		claimable = d.next = 'ready' AND d.delay = 0,
		question_id = CASE WHEN d.next = 'input_required' THEN d.asking_id END,
		question = CASE WHEN d.next = 'input_required' THEN d.asking END,
		asked_at = CASE WHEN d.next = 'input_required' THEN d.now END,
		questions = l.questions + (d.next = 'input_required')::int
	FROM decided d WHERE l.ctid = d.at AND d.next IN ('ready', 'input_required')
)
SELECT ord, owner, id, line, queue, next, version + CASE WHEN next = 'leased' AND cancel_requested THEN 0 ELSE 1 END, delay = 0
FROM decided`

// lapsedItem are the columns of held, beside the row's, for a lease that lapsed.
const lapsedItem = `0 AS ord, 'lapsed' AS act, NULL::bytea AS digest, 'the lease lapsed' AS error, NULL::text AS message,
	NULL::text AS reason, false AS no_retry, NULL::int AS retry_after, NULL::uuid AS asking_id, NULL::text AS asking`

// scanMoves reads what settle returns.
func scanMoves(rows pgx.Rows, each func(ord int, m move) error) error {
	var ord int
	var owner, id, line uuid.UUID
	var queue string
	var state State
	var version int64
	var claimable bool
	_, err := pgx.ForEachRow(rows, []any{&ord, into(&owner), into(&id), into(&line), &queue, &state, &version, &claimable}, func() error {
		return each(ord, move{owner: owner, id: id, line: line, queue: queue, state: state, version: version, claimable: claimable})
	})
	return err
}
