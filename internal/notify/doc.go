// Package notify tells people outside their browser: by e-mail and by signed
// webhook.
//
// What is to be told is written down in the transaction of the act that causes
// it ([Store.Notify]), together with a River job; so nothing is told of what was
// rolled back, and nothing that was committed is forgotten. Any replica's
// [Store.Run] carries it out. Invariants:
//
//   - A notification's id follows from its kind, its object and its recipient.
//     The same one is written once, each channel ends once, and a repeat after a
//     crash carries the same Message-ID or webhook-id.
//   - Outbox and job hold ids only. What a message says, and whether it is still
//     worth saying, is read when it is sent. No secret, address or stranger's
//     word stands in a job or in a job's errors.
//   - E-mail goes to an address that an issuer has verified, never elsewhere.
//   - A message says what happened and links to the page. It never decides: there
//     is no link that approves.
//   - Strangers' words are made visible (package quote), stand in a block that
//     says whose they are, cannot be clicked and never reach a header.
package notify
