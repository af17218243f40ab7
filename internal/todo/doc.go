// Package todo is the durable queue: states, leases, fences, deduplication and
// wake-ups.
//
// A todo is created once per line and idempotency key, claimed under a lease,
// and ends done, failed or canceled. The states and what moves a todo between
// them are those of specs/protocol.md section 5 and of the reference model in
// model_test.go. Invariants:
//
//   - Every change of state is a conditional statement: what it changes is compared
//     on the row as it is once locked. One that changes nothing is a refusal, or is
//     tried again with the row locked first when its lease is current after all;
//     never a silent success.
//   - A claim makes a new random lease token. Heartbeat, complete, fail, release
//     and ask compare it, so a worker that lost its lease changes nothing. A lapsed
//     lease stays current until it is reclaimed or reaped, and is reclaimed though
//     no reaper ran.
//   - Who calls is checked where the write happens: the caller's endpoint row is
//     locked first and compared with what was resolved, in the same transaction.
//     Locks are taken in the order endpoint (peers, then homes), todo, attempt,
//     each in the order of their keys.
//   - Acknowledged means committed. Concurrent calls share a transaction (group
//     commit); each learns its own outcome, after the commit. A call's arguments
//     must not be changed until it returns, nor afterwards if its context ended.
//   - A call that waits for work is woken by a hint, or claims as the guest of a
//     creation in this process, in its transaction (adr/0050). Either way it ends with
//     what it claimed, or passes on what it was woken for, so work is not left lying
//     while somebody waits for it.
//   - All times are the database's, taken after the locks. Where a range of an index
//     ends at the present, the time is taken in a sub-select: clock_timestamp() as it
//     stands is volatile, and the planner would read the index from its beginning.
//   - A consent todo (kind friend_request, in inbox) is shown to its human and to
//     nobody else, and ended by [Store.FinishConsent] and by nothing else.
//
// Tables: todo (the content, written once), todo_live (a small row while the todo
// is open), todo_outcome (its end), and beside them attempts, exchanges,
// artifacts, keys and claims; see migrations/00040_todo.sql.
package todo
