// Package provenancetest is a world of OpenID issuers with real keys, and a
// builder of friend requests that are good or broken in one described way. The
// corpus of forged requests (../testdata/corpus.json) is made with it, for this
// package's own tests and for those of the rooms that carry requests.
package provenancetest
