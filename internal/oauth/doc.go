// Package oauth is the authorization server as others see it: metadata, the
// token endpoint, revocation, and the authorization code flow with its consent
// page.
//
// It decodes, calls package endpoint, and encodes; who may have what is decided
// there. What it decides itself is about clients alone: whether a client id
// metadata document can be believed and whether a redirect is the client's. Its
// invariants:
//
//   - Nothing is fetched before a human has signed in, and then only through the
//     guarded client.
//   - Nobody is sent to a redirect that the client's own document does not list;
//     until that is sure, errors are a page here.
//   - No parameter counts twice, no body is read past its bound, and no answer of
//     the token endpoint is kept by anybody.
//
// The wire is that of specs/protocol.md section 4.
package oauth
