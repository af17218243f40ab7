// Package devidp is a throwaway OpenID provider for development and tests: it
// signs in alice, bob and carol without a password (specs/protocol.md section 8).
//
// It listens on loopback only and keeps everything in memory. Its clients are
// public and have to use PKCE S256; codes are good once and for a minute. Two
// knobs among the authorization parameters bend the ID token, so that a
// verifier can be tried with expired and stale ones:
//
//	dev_id_token_lifetime=<seconds>  exp = iat + seconds; may be negative
//	dev_auth_time_offset=<seconds>   auth_time = now + seconds
//
// It is written by hand over go-jose and not over zitadel/oidc/v3/pkg/op,
// which was the first choice: that package decodes authorization requests into
// a fixed struct and so drops the two knobs, writes aud as an array, and allows
// one ID token lifetime per client. Bending all three costs more code than the
// one flow that is needed here.
package devidp
