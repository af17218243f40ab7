package activity

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// VerifyOptions adjusts [Verify].
type VerifyOptions struct {
	// Heads that were noted earlier ([Report.Head]) and must still be in the chain.
	Heads []string
	// Grace is how long an event may be without a seal; default 5 minutes.
	Grace time.Duration
	// MaxFaults bounds the list of faults; default 1000.
	MaxFaults int
}

// Report is what [Verify] found.
type Report struct {
	Events, Sealed, Owners, Seals, Checkpoints int
	// Erased counts values of personal data that were removed, as Erase does.
	Erased int
	// Head names the newest checkpoint: note it outside the database.
	Head   string
	Faults []Fault
}

// OK reports whether the record is whole.
func (r Report) OK() bool { return len(r.Faults) == 0 }

// Fault is one thing that is not as it was recorded.
type Fault struct {
	Owner      uuid.UUID // zero when it concerns none
	Event      uuid.UUID // zero when it concerns none
	Seal       int64     // zero when it concerns none
	Checkpoint int64     // zero when it concerns none
	What       string
}

// String says what is wrong where.
func (f Fault) String() string {
	s := f.What
	if f.Checkpoint != 0 {
		s += fmt.Sprintf(", checkpoint %d", f.Checkpoint)
	}
	if f.Seal != 0 {
		s += fmt.Sprintf(", seal %d", f.Seal)
	}
	if f.Event != uuid.Nil {
		s += ", event " + f.Event.String()
	}
	if f.Owner != uuid.Nil {
		s += ", owner " + f.Owner.String()
	}
	return s
}

// Verify recomputes the whole chain in one snapshot and checks its signatures
// against keys, which are all that ever sealed. An error means that it could
// not look; what it found is in the report.
func Verify(ctx context.Context, pool *pgxpool.Pool, keys []ed25519.PublicKey, o VerifyOptions) (Report, error) {
	if o.Grace <= 0 {
		o.Grace = 5 * time.Minute
	}
	if o.MaxFaults <= 0 {
		o.MaxFaults = 1000
	}
	v := verification{o: o, keys: map[string]ed25519.PublicKey{}}
	for _, k := range keys {
		v.keys[KeyID(k)] = k
	}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, check := range []func(context.Context, pgx.Tx) error{v.checkpoints, v.owners, v.strays, v.unsealed} {
			if err := check(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("verify activity: %w", err)
	}
	return v.report, nil
}

type verification struct {
	o      VerifyOptions
	keys   map[string]ed25519.PublicKey
	report Report
}

func (v *verification) fault(f Fault) {
	if len(v.report.Faults) < v.o.MaxFaults {
		v.report.Faults = append(v.report.Faults, f)
	}
}

// signature checks one and names what is wrong with it.
func (v *verification) signature(keyID, label string, sum, signature []byte) string {
	key, ok := v.keys[keyID]
	if !ok {
		return "signed by an unknown key " + keyID
	}
	if !signed(key, label, sum, signature) {
		return "signature does not fit"
	}
	return ""
}

// checkpoints walks the chain over all seals.
func (v *verification) checkpoints(ctx context.Context, tx pgx.Tx) error {
	// A seal without its checkpoint cannot be: the foreign key is the check for
	// that, and strays for a database whose keys were switched off.
	rows, err := tx.Query(ctx, `
		SELECT c.seq, c.prev, c.hash, c.at, c.key_id, c.signature,
		       ARRAY(SELECT owner FROM activity_seal WHERE checkpoint = c.seq ORDER BY owner, seq),
		       ARRAY(SELECT seq   FROM activity_seal WHERE checkpoint = c.seq ORDER BY owner, seq),
		       ARRAY(SELECT hash  FROM activity_seal WHERE checkpoint = c.seq ORDER BY owner, seq)
		FROM activity_checkpoint c
		ORDER BY c.seq`)
	if err != nil {
		return fmt.Errorf("read the checkpoints: %w", err)
	}
	noted := map[string]bool{}
	for _, h := range v.o.Heads {
		noted[h] = false
	}
	var seq, last int64
	var prev, sum, signature, lastHash []byte
	var at time.Time
	var keyID string
	var owners []uuid.UUID
	var seqs []int64
	var hashes [][]byte
	_, err = pgx.ForEachRow(rows, []any{&seq, &prev, &sum, &at, &keyID, &signature, &owners, &seqs, &hashes}, func() error {
		v.report.Checkpoints++
		f := Fault{Checkpoint: seq}
		if seq != last+1 || !bytes.Equal(prev, lastHash) {
			f.What = "a checkpoint is missing or does not follow the one before it"
			v.fault(f)
		}
		heads := make([]head, len(owners))
		for i := range owners {
			heads[i] = head{owners[i], seqs[i], hashes[i]}
		}
		if !bytes.Equal(sum, checkpointHash(seq, prev, at, heads)) {
			f.What = "a checkpoint or the list of its seals was changed"
			v.fault(f)
		}
		if f.What = v.signature(keyID, labelCheckpoint, sum, signature); f.What != "" {
			v.fault(f)
		}
		last, lastHash = seq, bytes.Clone(sum)
		v.report.Head = fmt.Sprintf("%d:%s", seq, hex.EncodeToString(sum))
		if _, ok := noted[v.report.Head]; ok {
			noted[v.report.Head] = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the checkpoints: %w", err)
	}
	for _, h := range v.o.Heads {
		if !noted[h] {
			v.fault(Fault{What: "head " + h + ", noted earlier, is not in the chain"})
		}
	}
	return nil
}

// owners walks every owner's chain, an owner at a time.
func (v *verification) owners(ctx context.Context, tx pgx.Tx) error {
	after := uuid.Nil
	for first := true; ; first = false {
		var owner uuid.UUID
		err := tx.QueryRow(ctx, `
			SELECT owner FROM activity_seal WHERE owner > $1 OR ($2 AND owner = $1) ORDER BY owner LIMIT 1`, after, first).Scan(&owner)
		if err == pgx.ErrNoRows { //nolint:errorlint // QueryRow returns it bare
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the owners: %w", err)
		}
		v.report.Owners++
		if err := v.owner(ctx, tx, owner); err != nil {
			return err
		}
		after = owner
	}
}

// seal is one row of an owner's chain with the events that are linked to it.
type seal struct {
	seq        int64
	prev, hash []byte
	keyID      string
	signature  []byte
	events     [][]byte
}

func (v *verification) owner(ctx context.Context, tx pgx.Tx, owner uuid.UUID) error {
	rows, err := tx.Query(ctx, `SELECT seq, prev, hash, key_id, signature FROM activity_seal WHERE owner = $1 ORDER BY seq`, owner)
	if err != nil {
		return fmt.Errorf("read the seals of %s: %w", owner, err)
	}
	seals, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (*seal, error) {
		s := &seal{}
		return s, r.Scan(&s.seq, &s.prev, &s.hash, &s.keyID, &s.signature)
	})
	if err != nil {
		return fmt.Errorf("read the seals of %s: %w", owner, err)
	}
	bySeq := make(map[int64]*seal, len(seals))
	for _, s := range seals {
		bySeq[s.seq] = s
	}
	if err := v.events(ctx, tx, owner, bySeq); err != nil {
		return err
	}
	var last int64
	lastHash := []byte{}
	for _, s := range seals {
		v.report.Seals++
		f := Fault{Owner: owner, Seal: s.seq}
		if s.seq != last+1 || !bytes.Equal(s.prev, lastHash) {
			f.What = "a seal is missing or does not follow the one before it"
			v.fault(f)
		}
		if !bytes.Equal(s.hash, sealHash(owner, s.seq, s.prev, s.events)) {
			f.What = "a seal or the list of its events was changed"
			v.fault(f)
		}
		if f.What = v.signature(s.keyID, labelSeal, s.hash, s.signature); f.What != "" {
			v.fault(f)
		}
		last, lastHash = s.seq, s.hash
	}
	return nil
}

// events compares every linked event with the hash in its link, and collects
// these hashes in their seals.
func (v *verification) events(ctx context.Context, tx pgx.Tx, owner uuid.UUID, seals map[int64]*seal) error {
	rows, err := tx.Query(ctx, `
		SELECT l.event_id, l.seq, l.position, l.hash, e.id IS NOT NULL,
		       coalesce(e.at, 'epoch'), coalesce(e.kind, ''), coalesce(e.actor, ''), coalesce(e.object, ''), e.object_id, e.grant_id,
		       coalesce(e.detail::text, ''), coalesce(e.personal::text, '{}'),
		       (SELECT json_object_agg(p.name, json_build_array(encode(p.salt, 'hex'), p.value))
		        FROM activity_personal p WHERE p.owner = l.owner AND p.event_id = l.event_id)
		FROM activity_link l
		LEFT JOIN activity e ON e.owner = l.owner AND e.id = l.event_id
		WHERE l.owner = $1
		ORDER BY l.seq, l.position`, owner)
	if err != nil {
		return fmt.Errorf("read the events of %s: %w", owner, err)
	}
	e := row{owner: owner}
	var seq int64
	var position int
	var sum, personal []byte
	var there bool
	_, err = pgx.ForEachRow(rows, []any{&e.id, &seq, &position, &sum, &there,
		&e.at, &e.kind, &e.actor, &e.object, &e.objectID, &e.grantID, &e.detail, &e.personal, &personal}, func() error {
		v.report.Sealed++
		f := Fault{Owner: owner, Event: e.id, Seal: seq}
		s := seals[seq]
		switch {
		case s == nil:
			f.What = "an event belongs to a seal that is not there"
			v.fault(f)
			return nil
		case position != len(s.events):
			f.What = "an event's place in its seal was changed"
			v.fault(f)
		}
		s.events = append(s.events, bytes.Clone(sum))
		switch {
		case !there:
			f.What = "an event was removed"
			v.fault(f)
		case !bytes.Equal(sum, e.hash()):
			f.What = "an event was changed"
			v.fault(f)
		default:
			return v.personal(f, e.personal, personal)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the events of %s: %w", owner, err)
	}
	return nil
}

// personal compares the values outside the chain with the hashes in the event.
func (v *verification) personal(f Fault, hashes string, values []byte) error {
	want, got := map[string]string{}, map[string][2]string{}
	if err := json.Unmarshal([]byte(hashes), &want); err != nil {
		return fmt.Errorf("decode the hashes of event %s: %w", f.Event, err)
	}
	if values != nil {
		if err := json.Unmarshal(values, &got); err != nil {
			return fmt.Errorf("decode the personal data of event %s: %w", f.Event, err)
		}
	}
	for name, saltAndValue := range got {
		salt, err := hex.DecodeString(saltAndValue[0])
		if err != nil || want[name] != hex.EncodeToString(personalHash(salt, saltAndValue[1])) {
			f.What = "personal data was changed or added: " + name
			v.fault(f)
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			v.report.Erased++
		}
	}
	return nil
}

// strays finds what hangs on nothing, which only a hand in the database makes.
func (v *verification) strays(ctx context.Context, tx pgx.Tx) error {
	for what, sql := range map[string]string{
		"an owner's seals are gone while events say that they belong to one": `
			SELECT DISTINCT l.owner, NULL::uuid FROM activity_link l
			WHERE NOT EXISTS (SELECT FROM activity_seal s WHERE s.owner = l.owner) LIMIT 100`,
		"a seal belongs to a checkpoint that is not there": `
			SELECT s.owner, NULL::uuid FROM activity_seal s
			WHERE NOT EXISTS (SELECT FROM activity_checkpoint c WHERE c.seq = s.checkpoint) LIMIT 100`,
		"personal data belongs to no event": `
			SELECT p.owner, p.event_id FROM activity_personal p
			WHERE NOT EXISTS (SELECT FROM activity e WHERE e.owner = p.owner AND e.id = p.event_id) LIMIT 100`,
	} {
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return fmt.Errorf("look for strays: %w", err)
		}
		var owner uuid.UUID
		var event *uuid.UUID
		_, err = pgx.ForEachRow(rows, []any{&owner, &event}, func() error {
			f := Fault{Owner: owner, What: what}
			if event != nil {
				f.Event = *event
			}
			v.fault(f)
			return nil
		})
		if err != nil {
			return fmt.Errorf("look for strays: %w", err)
		}
	}
	return nil
}

// unsealed finds events that the sealer should have chained by now: inserted
// under an old time, or left over because no sealer runs.
func (v *verification) unsealed(ctx context.Context, tx pgx.Tx) error {
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM activity`).Scan(&v.report.Events); err != nil {
		return fmt.Errorf("count the events: %w", err)
	}
	rows, err := tx.Query(ctx, `
		SELECT e.owner, e.id FROM activity e
		WHERE e.at < clock_timestamp() - $1::interval
		  AND NOT EXISTS (SELECT FROM activity_link l WHERE l.owner = e.owner AND l.event_id = e.id)
		LIMIT $2`, v.o.Grace, v.o.MaxFaults)
	if err != nil {
		return fmt.Errorf("look for events without a seal: %w", err)
	}
	var f Fault
	_, err = pgx.ForEachRow(rows, []any{&f.Owner, &f.Event}, func() error {
		f.What = "an event has no seal although it is old: inserted later, or no sealer runs"
		v.fault(f)
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for events without a seal: %w", err)
	}
	return nil
}
