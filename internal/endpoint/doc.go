// Package endpoint keeps vended MCP endpoints and everything that opens them:
// static credentials, tokens of agents' keys, tokens of the authorization code
// flow, proofs of possession.
//
// An endpoint's row is the one place that says what may be done through it. Its
// invariants:
//
//   - Every change of an endpoint, and every revocation of something that opens
//     it, makes its version one more, in the transaction of the change. A [Caller]
//     is a snapshot with that version; whoever acts on one compares the version on
//     the locked row of the view endpoint_authority and the caller's end with the
//     database's clock, within the acting transaction. So a cache here can make an
//     answer slower, never wrong, on any replica.
//   - An endpoint only ever becomes narrower and ends earlier; pausing is a state
//     and leaves the scope as it is.
//   - Bearers are kept as SHA-256 and shown once.
//   - Unknown, foreign, pending, paused, revoked and expired give one answer:
//     one [refusal.Unauthenticated] for a bearer, one invalid_target for a grant.
//   - A key opens what was vended to it and nothing else; its private half is
//     never here.
//
// The wire is that of specs/protocol.md section 4.
package endpoint
