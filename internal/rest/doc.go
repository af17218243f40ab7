// Package rest is the REST transport of specs/protocol.md section 6: it decodes
// with huma, calls one domain package, and encodes.
//
// Invariants: every error is an RFC 9457 problem with a stable code and a
// request id, and never repeats a value that was sent; a foreign Origin or
// Sec-Fetch-Site never writes; an API token reads, narrows, pauses, revokes and
// declines and nothing else; approving, vending, resuming, unblocking and
// making tokens need a session that was signed in lately.
package rest
