// Package a2a is the A2A transport of specs/protocol.md section 3: signed
// cards of both versions, the catalog, and JSON-RPC for friend requests. It
// decodes, calls package friend, and encodes with the types of a2a-go.
//
// It dispatches JSON-RPC itself and does not use a2a-go's server, because a
// friend request is digested as it was received: the bytes of the data part
// must reach package provenance untouched, the body must be strict I-JSON, and
// refusals of provenance are HTTP 401 (adr/0004).
//
// Invariants: A2A carries cards and friend requests, never work; an unknown
// persona and one that is off answer with the same bytes; so do another's task
// and an unknown one; capability errors come before 401; nothing is stored on
// any error.
package a2a
