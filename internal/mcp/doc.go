// Package mcp is the transport that serves POST /mcp/{endpoint}: it decodes a
// Model Context Protocol request, calls one domain package and encodes what
// came back. It decides nothing that a domain package could decide.
//
// Invariants (specs/protocol.md, sections 4 and 5):
//
//   - Stateless. No session id is minted, echoed or looked at, and every
//     request stands alone in all four eras, so a restart or another replica
//     in the middle of a client's life goes unnoticed.
//   - Whoever holds no good token gets one answer, whatever the cause: the 401
//     of refuseToken, whose bytes depend on the URL alone.
//   - A caller sees and calls exactly the tools of its scope. A tool outside it
//     answers as one that does not exist.
//   - Authority found here is a hint. Domain calls compare it on the locked row
//     and answer endpoint.ErrStale; the call is then made once more as the
//     caller that the database knows now. What no domain package checks (ping,
//     lists, refusals of what was malformed) is confirmed before it is answered.
//   - Strangers' text stands in results, bounded, with characters that hide or
//     reorder text made visible, and never in a description.
//
// tools/call is decoded by hand (adr/0011-mcp-fast-path.md); everything else of
// the protocol is left to mcp-go.
package mcp
