// Package persona keeps agents, their personas, and what these offer to
// friends.
//
// An agent is a runtime that a human owns; a persona is one scoped face of it
// with a slug, the queues that it works and the offers that it makes. Its
// invariants:
//
//   - Registering either grants nothing to anybody.
//   - A slug is unique on the instance and immutable. It stays with the human who
//     had it first, also after the persona is gone: nobody inherits the trust that
//     others put into an address.
//   - Offers name only queues that the persona works, and never inbox. A card's
//     skills are computed from the offers and from nothing else ([Persona.Skills]).
//   - OfferVersion changes exactly when the offers do; Version with every change.
//   - From outside, a persona that is off is the same as no persona ([Store.BySlug]).
//   - Neither an agent nor a persona is deleted while something lives on it.
package persona
