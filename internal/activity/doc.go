// Package activity is the tamper-evident record of what happened.
//
// Events are inserted in the transaction of the act itself ([Record]), so there
// is no act without its event and no event without its act. A [Sealer] later
// chains each owner's events in batches: an event's hash covers all its members,
// a seal's hash covers the seal before it and the hashes of its events, a
// checkpoint's hash covers the checkpoint before it and all seals of one pass.
// Seals and checkpoints are signed by a key that is not in the database.
//
// [Verify] finds every change, removal and insertion of what has been sealed.
// What it cannot find alone is that the newest checkpoints were cut off with all
// that hangs on them; for that, note a [Report.Head] elsewhere and give it to a
// later verification. An event that was removed before it was sealed, within a
// second or so, leaves no trace.
//
// Personal data (names, e-mails, people's words) lies outside the chain; the
// event holds only its salted hash. So [Erase] can remove it, with its salt, and
// the chain stays whole.
package activity
