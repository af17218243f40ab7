package friend

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/activity"
	"switchboard/internal/persona"
	"switchboard/internal/postgres"
	"switchboard/internal/quote"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// place makes a proven ask a pending request: row 12, then the row, its
// evidence, the key, the consent todo, activity and notice. The caller holds the
// locks of identity and persona.
func (s *Store) place(ctx context.Context, tx pgx.Tx, now time.Time, a ask) (Request, error) {
	if _, err := s.expireRequests(ctx, tx, `state = 'pending' AND owner = $1 AND persona_id = $2 AND identity = $3`,
		a.persona.Owner, a.persona.ID, a.who.Hash); err != nil {
		return Request{}, err
	}
	if err := s.admit(ctx, tx, now, a); err != nil {
		return Request{}, err
	}
	if err := s.hold(ctx, tx, &a); err != nil {
		return Request{}, err
	}
	todoID, err := s.o.Todos.OpenConsent(ctx, tx, a.persona.Owner, a.id, consentTitle(a))
	if err != nil {
		return Request{}, fmt.Errorf("open the consent todo: %w", err)
	}
	if err := s.insertRequest(ctx, tx, a, Pending, now, pendingFor, &todoID); err != nil {
		return Request{}, err
	}
	if err := insertEvidence(ctx, tx, now, a); err != nil {
		return Request{}, err
	}
	if err := s.o.Endpoints.RegisterKey(ctx, tx, a.jkt, a.part.Key.JWK(), a.persona.Slug, a.who.Hash); err != nil {
		return Request{}, fmt.Errorf("register the agent's key: %w", err)
	}
	if err := s.record(ctx, tx, activity.Event{
		Owner: a.persona.Owner, Kind: "friend_request.received", Actor: actorIdentity(a.who.Hash), Object: "friend_request", ObjectID: a.id,
		Detail:   map[string]any{"persona": a.persona.Slug, "scope": a.requested, "key": a.jkt, "digest": a.digest, "method": a.method, "supersedes": nilIfZero(a.supersedes)},
		Personal: personal(a.who, From(a.part.From), "reason", a.part.Reason),
	}); err != nil {
		return Request{}, err
	}
	if err := s.notify(ctx, tx, Notice{
		Kind: "friend_request.received", Owner: a.persona.Owner, Identity: a.who.Hash, Persona: a.persona.Slug, RequestID: a.id,
		State: string(Pending), ExpiresAt: now.Add(pendingFor),
	}); err != nil {
		return Request{}, err
	}
	return s.request(ctx, tx, `WHERE r.owner = $1 AND r.id = $2`, a.persona.Owner, a.id)
}

// hold keeps the persona as it is until the request is committed; what changed
// since row 1 looked counts.
func (s *Store) hold(ctx context.Context, tx pgx.Tx, a *ask) error {
	p, err := s.o.Personas.Hold(ctx, tx, a.persona.Owner, a.persona.ID)
	switch {
	case err != nil:
		return err
	case p.Visibility == persona.Off:
		return refusal.New(refusal.NotFound, "there is no such persona")
	case p.OfferVersion != a.persona.OfferVersion:
		if a.requested, err = scope.Resolve(a.part.Scope, p.Offers); err != nil {
			return err
		}
	}
	a.persona = p
	return nil
}

// insertRequest writes the row; todoID is nil while the human has not signed in.
func (s *Store) insertRequest(ctx context.Context, tx pgx.Tx, a ask, state RequestState, now time.Time, keep time.Duration, todoID *uuid.UUID) error {
	entry := ""
	if a.entry != nil {
		entry = a.entry.Issuer
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO friend_request (
			owner, id, persona_id, persona, method, state,
			identity, issuer, issuer_entry, subject, email, name,
			key_thumbprint, from_name, from_card, reason, requested, supersedes, part, digest, offered, offer_version,
			todo_id, created_at, expires_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $24)`,
		a.persona.Owner, a.id, a.persona.ID, a.persona.Slug, a.method, state,
		a.who.Hash, a.who.Issuer, entry, a.who.Subject, a.who.Email, a.who.Name,
		a.jkt, a.part.From.Name, a.part.From.Card, a.part.Reason, a.requested, nilIfZero(a.supersedes), string(a.part.Canonical()), a.digest,
		notNil(a.persona.Offers), a.persona.OfferVersion,
		todoID, now, now.Add(keep))
	if postgres.Violates(err, "friend_request_one_pending") {
		return pendingHere().Because(err)
	}
	if err != nil {
		return fmt.Errorf("store the friend request: %w", err)
	}
	return nil
}

func insertEvidence(ctx context.Context, tx pgx.Tx, now time.Time, a ask) error {
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO friend_evidence (owner, request_id, claims, id_token, created_at) VALUES ($1, $2, $3, $4, $5)`,
		a.persona.Owner, a.id, string(a.claims), a.idToken, now)
	b.Queue(`INSERT INTO friend_identity (identity, first_seen) VALUES ($1, $2) ON CONFLICT (identity) DO NOTHING`, a.who.Hash, now)
	b.Queue(`INSERT INTO friend_issuer (entry, first_seen) VALUES ($1, $2) ON CONFLICT (entry) DO NOTHING`, a.entry.Issuer, now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("store the evidence: %w", err)
	}
	return nil
}

// maxTitle is what package todo takes.
const maxTitle = 200

// consentTitle names the verified identity only; what the agent calls itself is
// for the page, which can say who claims it.
func consentTitle(a ask) string {
	return quote.Visible("Friend request to "+a.persona.Slug+" from "+a.who.Text(), maxTitle)
}

// personal gathers what activity keeps outside its chain.
func personal(who Identity, from From, more ...string) map[string]string {
	m := map[string]string{"issuer": who.Issuer, "subject": who.Subject}
	for name, v := range map[string]string{"email": who.Email, "name": who.Name, "calls_itself": from.Name, "card": from.Card} {
		if v != "" {
			m[name] = v
		}
	}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] != "" {
			m[more[i]] = more[i+1]
		}
	}
	return m
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// checkNote bounds what a human writes beside a decision.
func checkNote(note string) error {
	if utf8.RuneCountInString(note) > 2000 || !utf8.ValidString(note) {
		return refusal.Invalid("note", "note must be text of at most 2000 characters")
	}
	for _, r := range note {
		if r == 0 {
			return refusal.Invalid("note", "note must not hold U+0000")
		}
	}
	return nil
}
