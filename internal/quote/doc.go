// Package quote makes strangers' text fit to be shown: bounded, plain, and
// unable to hide anything or to pose as our own words.
//
// What it returns is still data: a transport escapes it for its own format, and
// says beside it whose words they are. The bytes that were signed and digested
// are never changed; only what is shown is.
package quote
