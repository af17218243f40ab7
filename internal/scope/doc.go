// Package scope is the lattice that everything a friend may do rests on:
// queues × verbs × limits under "narrower than".
//
// A Scope is complete: it names at least one queue and one verb and spells out
// every limit. An Asked is what people and strangers write: the same, with
// limits left out. Offers are what a persona lets friends ask for. The package
// is pure; it knows no clock and no database. Invariants, held by property
// tests: Narrower is a partial order (equal counts as narrower), Meet is its
// greatest lower bound where one exists, and Resolve, Narrow and Approve return
// nothing that is not narrower than what they were given.
//
// The rules are those of specs/protocol.md section 2.
package scope
