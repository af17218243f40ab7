package friend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"switchboard/internal/persona"
	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// Submission is a friend request as it arrived, over whichever transport.
type Submission struct {
	Persona   string          // slug
	MessageID string          // A2A messageId, or the twin's Idempotency-Key
	Part      json.RawMessage // the data part's object as received
	Address   netip.Addr
}

const maxMessageID = 256

// ask is a submission as far as it has been understood: who asks whom for what.
type ask struct {
	id         uuid.UUID // of the request to be
	persona    persona.Persona
	part       provenance.Part
	requested  scope.Scope
	supersedes uuid.UUID
	method     string
	digest     string
	jkt        string
	who        Identity
	entry      *provenance.Issuer
	claims     json.RawMessage
	idToken    []byte // sealed
}

// Submit runs the table of specs/protocol.md section 3 in its order. It returns
// the new request, pending or waiting for a sign-in, or with repeated the one
// that an equal message made before (row 8). An unknown or off persona is
// refusal.NotFound; every other refusal has the code of its row. Nothing is
// stored on any error.
func (s *Store) Submit(ctx context.Context, sub Submission) (r Request, repeated bool, err error) {
	if err := s.count(sub.Address); err != nil {
		return Request{}, false, err
	}
	p, err := s.o.Personas.BySlug(ctx, sub.Persona)
	if err != nil {
		return Request{}, false, err
	}
	a, err := understand(sub, p)
	if err != nil {
		return Request{}, false, err
	}
	now, err := clock(ctx, s.pool)
	if err != nil {
		return Request{}, false, err
	}
	target := s.target(p, now)
	if a.method == provenance.MethodSignIn {
		return s.submitSignIn(ctx, sub, a, target)
	}
	v, err := s.o.Verifier.Verify(ctx, target, a.part) // rows 2 to 7
	if err != nil {
		return Request{}, false, err
	}
	if err := s.prove(&a, v); err != nil {
		return Request{}, false, err
	}
	r, repeated, err = s.submitVerified(ctx, sub.MessageID, a, v)
	if err != nil {
		return Request{}, false, err
	}
	if !repeated {
		s.changed(r.Owner, r.ID)
	}
	return r, repeated, nil
}

// understand is row 1, the address limit apart.
func understand(sub Submission, p persona.Persona) (ask, error) {
	if n := len(sub.MessageID); n == 0 || n > maxMessageID || !utf8.ValidString(sub.MessageID) {
		return ask{}, refusal.Invalid("messageId", "messageId must be 1 to %d bytes", maxMessageID)
	}
	part, err := provenance.DecodePart(sub.Part)
	if err != nil {
		return ask{}, err
	}
	requested, err := scope.Resolve(part.Scope, p.Offers)
	if err != nil {
		return ask{}, err
	}
	id, err := newID()
	if err != nil {
		return ask{}, err
	}
	a := ask{id: id, persona: p, part: part, requested: requested, digest: part.Digest(), jkt: part.Key.Thumbprint()}
	if part.Provenance != nil {
		a.method = part.Provenance.Method
	}
	if part.Supersedes != "" {
		if a.supersedes, err = uuid.Parse(part.Supersedes); err != nil {
			return ask{}, refusal.Invalid("supersedes", "supersedes must be the id of a grant").Because(err)
		}
	}
	return a, nil
}

// target is what provenance is checked against at this persona.
func (s *Store) target(p persona.Persona, now time.Time) provenance.Target {
	return provenance.Target{Aud: s.o.PublicURL, Persona: p.Slug, Allowed: allowed(p), Now: now}
}

// allowed is the persona's "who may ask".
func allowed(p persona.Persona) provenance.Allowed {
	switch {
	case p.WhoMayAsk.Nobody:
		return provenance.Nobody()
	case p.WhoMayAsk.Issuers != nil:
		return provenance.Only(p.WhoMayAsk.Issuers...)
	}
	return provenance.Anyone()
}

// prove takes over what verification found out, and seals the evidence.
func (s *Store) prove(a *ask, v *provenance.Verified) error {
	a.who = Identity{Hash: v.Identity, Issuer: v.IssuerName, Subject: v.Subject, Email: v.Email, Name: v.Name}
	a.entry, a.claims = v.Issuer, v.Claims
	sealed, err := s.o.Sealer.Seal([]byte(v.IDToken), evidenceOf(a.id))
	if err != nil {
		return fmt.Errorf("seal the ID token: %w", err)
	}
	a.idToken = sealed
	return nil
}

// evidenceOf is the sealing context: an ID token opens as evidence of its own
// request only.
func evidenceOf(request uuid.UUID) string { return "friend_request " + request.String() + " id_token" }

// submitVerified is rows 8 to 12 and the storing, one transaction under the
// locks of identity and persona.
func (s *Store) submitVerified(ctx context.Context, messageID string, a ask, v *provenance.Verified) (r Request, repeated bool, err error) {
	message := messageHash(a.who.Hash, a.jkt, a.persona.ID, messageID)
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if err := lock(ctx, tx, "identity", a.who.Hash); err != nil {
			return err
		}
		if err := lock(ctx, tx, "persona", a.persona.ID[:]); err != nil {
			return err
		}
		r, repeated, err = s.repeated(ctx, tx, message, a.digest) // row 8
		if err != nil || repeated {
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		if err := v.CheckTimes(now); err != nil { // row 9
			return err
		}
		if err := acceptOnce(ctx, tx, replay{"nonce", []string{v.Nonce}, v.NonceUntil}, replay{"jti", []string{a.jkt, v.StatementID}, v.StatementUntil}); err != nil { // row 10
			return err
		}
		if err := v.CheckConditions(); err != nil { // row 11
			return err
		}
		if r, err = s.place(ctx, tx, now, a); err != nil { // row 12
			return err
		}
		return remember(ctx, tx, message, a.digest, r.Owner, r.ID)
	})
	return r, repeated, err
}

// messageHash is the key of row 8. identity is nil for a request whose human has
// not signed in yet.
func messageHash(identity []byte, jkt string, personaID uuid.UUID, messageID string) []byte {
	return hashOf("message", string(identity), jkt, personaID.String(), messageID)
}

// repeated finds the request that this message made; with another digest it is
// refusal.Conflict.
func (s *Store) repeated(ctx context.Context, tx pgx.Tx, message []byte, digest string) (Request, bool, error) {
	var known string
	var owner, id uuid.UUID
	err := tx.QueryRow(ctx, `SELECT digest, owner, request_id FROM friend_message WHERE hash = $1`, message).Scan(&known, &owner, &id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Request{}, false, nil
	case err != nil:
		return Request{}, false, fmt.Errorf("look for the message: %w", err)
	case known != digest:
		return Request{}, false, refusal.New(refusal.Conflict, "this message id was used for another friend request")
	}
	r, err := s.request(ctx, tx, `WHERE r.owner = $1 AND r.id = $2`, owner, id)
	return r, err == nil, err
}

// remember writes the key of row 8. The locks make a second writer impossible;
// should one appear all the same, the unique key fails this transaction.
func remember(ctx context.Context, tx pgx.Tx, message []byte, digest string, owner, id uuid.UUID) error {
	_, err := tx.Exec(ctx, `INSERT INTO friend_message (hash, digest, owner, request_id) VALUES ($1, $2, $3, $4)`, message, digest, owner, id)
	if err != nil {
		return fmt.Errorf("remember the message: %w", err)
	}
	return nil
}

// replay is one thing that is accepted once: kept until it could not be
// accepted for its age either.
type replay struct {
	kind  string
	parts []string
	until time.Time
}

// acceptOnce is row 10, within the request's transaction.
func acceptOnce(ctx context.Context, tx pgx.Tx, once ...replay) error {
	hashes, until := make([][]byte, 0, len(once)), make([]time.Time, 0, len(once))
	for _, o := range once {
		hashes = append(hashes, hashOf(append([]string{o.kind}, o.parts...)...))
		until = append(until, o.until)
	}
	tag, err := tx.Exec(ctx, `
		INSERT INTO friend_replay (hash, keep_until)
		SELECT * FROM unnest($1::bytea[], $2::timestamptz[])
		ON CONFLICT (hash) DO NOTHING`, hashes, until)
	if err != nil {
		return fmt.Errorf("write nonce and jti: %w", err)
	}
	if tag.RowsAffected() != int64(len(once)) {
		return refusal.New(refusal.StatementReplayed, "this provenance was used before; sign a new one")
	}
	return nil
}
