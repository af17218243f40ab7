// Package web is the humans' side: server-rendered pages that work on a phone
// and without JavaScript, and are live with it.
//
// Invariants:
//
//   - It decides nothing: a page asks one domain package, shows what it says,
//     and puts its refusals beside the field that they are about.
//   - Whatever widens authority (approve, vend, resume, unblock, make a token)
//     needs a session that is fresh; one that is not leads through sign-in and
//     back, with everything typed kept.
//   - Strangers' words go through package quote, and stand in the one typeface
//     that nothing of ours is set in.
//   - Pages load from one origin, under a content security policy without
//     unsafe-inline; nothing is shown twice that is shown once.
//   - A form that is sent twice does nothing twice.
package web
