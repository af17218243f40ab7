// Package e2e drives the pages of a whole instance in a real Chromium, as
// people and agents meet on it: `make e2e`. It needs the build tag e2e.
// Screenshots are kept in .shots/ at the top of the checkout.
package e2e
