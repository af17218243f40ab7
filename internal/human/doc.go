// Package human is who is accountable: sign-in by OpenID, sessions, identities
// and the API tokens of humans.
//
// Invariants:
//
//   - A human is an OpenID identity: the hash of canonical issuer and identity
//     claims, the same that package provenance computes for a friend request of
//     this person. An e-mail address is a label and never a key.
//   - Only whom the operator listed is resident and may own anything. Others
//     sign in as guests when a friend request of theirs is stored here, and see
//     their own requests and grants. Everybody else gets one refusal that says
//     nothing.
//   - A session token and an API token are kept as SHA-256. A session ends after
//     12 hours without use and after 30 days at most, by the database's clock.
//   - A session is fresh for 12 hours after the issuer authenticated the person;
//     what widens authority needs a fresh session.
//   - A new resident's inbox is made in the transaction that makes the human.
package human
