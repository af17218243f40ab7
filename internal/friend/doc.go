// Package friend is how one person lets another's agent in: friend requests,
// grants, blocks, quotas, and the approval that vends an endpoint.
//
// Nothing that a stranger sends grants anything. Submit runs the table of
// specs/protocol.md section 3 in its order and leaves a pending request and a
// consent todo, or nothing at all. Only a human's Approve makes a grant.
//
// Invariants:
//
//   - granted = requested ∩ offered ∩ what the human allowed; every later change
//     of a grant narrows it. Wider or longer is a new request.
//   - A decision, its grant, the endpoint, the consent todo's end and the activity
//     are one transaction. So is every change of a grant with its endpoint.
//   - Terminal requests never change; their artifact stays as approved.
//   - Asker sees the requests of its own key or identity; everything else is
//     refusal.NotFound with one message.
//   - The sealed ID token is evidence and is never returned.
//
// Locks. Submissions of one identity, and those to one persona, run one after
// the other under transaction-level advisory locks, taken identity first, so
// that quotas and idempotency hold however many arrive at once; a block takes
// the identity's too. Rows are locked as request → persona → grant → endpoint →
// todo, grants in primary-key order, endpoints in the order of their ids.
package friend
