// Package address bounds what one network address may do to this replica.
//
// A Limit stands before anything that costs a signature or a query, so it lives
// in memory; quotas that must hold across replicas are in the database. What
// strangers can make it remember is bounded.
package address
