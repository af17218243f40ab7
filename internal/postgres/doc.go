// Package postgres is everything between the domain packages and PostgreSQL:
// the pool, migrations, cursors, wake-ups, group commit, and a private server
// for development and tests.
//
// It knows no domain. Its invariants:
//
//   - [Migrate] runs under an advisory lock on a connection of its own;
//     [CheckSchema] refuses a database that this program does not know.
//   - A wake-up ([Wake]) is only a hint: it may be late, doubled or, when LISTEN
//     does not work, missing. Whoever waits also polls.
//   - A call through a [Batcher] is told of success only after its batch has
//     committed, and an item is executed again only when the server has said
//     that the first execution was rolled back.
//   - A [DevServer] runs with fsync and synchronous commit on, as an
//     unprivileged user, and does not outlive the process that started it.
package postgres
