// Package requester is the other side of a friend request: what a human's
// command line does to ask a persona for friendship, follow the answer and use
// the endpoint that was vended (specs/protocol.md sections 3 to 5).
//
// Everything it needs of a stranger it learns from the card. Each request gets
// a key of its own, kept with the request in one private file or beside it in the
// system keyring, and written before anything is sent, so that nothing which was
// granted can be lost by a crash here. The key, ID tokens and access tokens never stand in an error, a
// log line or an output.
//
// Invariants: what is asked is sent only to the origin that published the card
// and that the card names as its audience; tokens are taken only from the
// authorization server pinned in the file and sent only to the endpoint pinned
// there; answers are bounded, redirects are not followed, and plain http is for
// loopback. Text by strangers is data: Bridge serves this program's own tool
// definitions and forwards nothing but text and structured results.
//
// The few A2A and MCP calls are written out instead of using the clients of
// a2a-go and mcp-go. Of A2A this needs the HTTP status and the ErrorInfo of a
// refusal, which that client folds into its own error. Of MCP it needs the
// stateless form of 2026-07-28 and nothing else: mcp-go's client falls back to
// an older handshake when its first call meets a short outage and stays there,
// holds a connection for ended after a 404, and answers a server's requests for
// input. mcp-go serves the other side of Bridge, stdio.
package requester
