// Package provenance builds and verifies what makes a friend request somebody's:
// the requester's OpenID token bound to this very request by its nonce, and the
// short statement by the agent's key that goes with it. It also knows the
// trusted issuers and their quirks.
//
// The package is pure: no database, no transport. The rows of the table in
// specs/protocol.md section 3 are spread like this:
//
//	row 1      DecodePart (size, strict I-JSON, schema); the offers are package scope's
//	rows 2-7   Verifier.Verify (method oidc-nonce), Verifier.VerifySignIn (row 7 of method sign-in)
//	row 8      package friend, with Verified.Identity, Verified.KeyThumbprint, Verified.Digest
//	row 9      Verified.CheckTimes
//	row 10     package friend, with Verified.Nonce, Verified.NonceUntil, Verified.StatementID, Verified.StatementUntil
//	row 11     Verified.CheckConditions
//	row 12     package friend
//
// Invariants:
//
//   - What the human sees is what was digested: a Part is decoded from the
//     canonical form (RFC 8785) of the received bytes, and from nothing else.
//   - Every failure is a *refusal.Error whose code is the reason of its row.
//   - Nothing is fetched on a stranger's word: discovery and keys come from the
//     configured URL only, through GuardedClient, throttled.
//   - No secret and no token stands in an error or a log line.
package provenance
