// Package servertest starts whole instances for tests that speak to them over
// the wire: real HTTP, real PostgreSQL, a development issuer, nothing replaced.
// Its clients are a stranger's: they know the contract and nothing of the rooms.
package servertest
