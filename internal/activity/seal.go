package activity

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// sealLock is the advisory lock of the one replica that seals.
	sealLock int64 = 0x5357_5345_414c // "SWSEAL"
	// sealBatch bounds a pass.
	sealBatch = 5000
	// sealWindow is how far back a quick pass looks for events without a seal. A
	// transaction that commits later than this after its event is found by a
	// full pass.
	sealWindow = time.Hour
)

// Sealer chains events that are not in the chain yet. Every replica may run
// one; they take turns.
type Sealer struct {
	pool  *pgxpool.Pool
	key   ed25519.PrivateKey
	keyID string
	log   *slog.Logger
}

// NewSealer returns a sealer that signs with key, which the operator keeps
// outside the database. A nil logger is silent.
func NewSealer(pool *pgxpool.Pool, key ed25519.PrivateKey, log *slog.Logger) (*Sealer, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("the sealing key is not an Ed25519 private key")
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the sealing key has no Ed25519 public key")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Sealer{pool: pool, key: key, keyID: KeyID(public), log: log}, nil
}

// Run seals every period until ctx ends, and looks at the whole record at the
// start and once an hour.
func (s *Sealer) Run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var full time.Time
	for {
		whole := time.Since(full) > sealWindow/2
		err := s.drain(ctx, whole)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.WarnContext(ctx, "seal activity", "error", err)
		case whole:
			full = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Seal chains all events that are not in the chain yet.
func (s *Sealer) Seal(ctx context.Context) error { return s.drain(ctx, true) }

func (s *Sealer) drain(ctx context.Context, whole bool) error {
	for {
		n, err := s.pass(ctx, whole)
		if err != nil || n < sealBatch {
			return err
		}
	}
}

// pass seals one batch and returns how many events it held.
func (s *Sealer) pass(ctx context.Context, whole bool) (int, error) {
	n := 0
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var ours bool
		var now time.Time
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1), clock_timestamp()`, sealLock).Scan(&ours, &now); err != nil {
			return fmt.Errorf("take the seal lock: %w", err)
		}
		if !ours {
			return nil
		}
		var since *time.Time
		if !whole {
			t := now.Add(-sealWindow)
			since = &t
		}
		events, err := unsealed(ctx, tx, since)
		if err != nil || len(events) == 0 {
			return err
		}
		n = len(events)
		return s.write(ctx, tx, now, events)
	})
	if err != nil {
		return 0, fmt.Errorf("seal activity: %w", err)
	}
	return n, nil
}

// unsealed reads events without a seal, sorted as the chain will hold them.
func unsealed(ctx context.Context, tx pgx.Tx, since *time.Time) ([]row, error) {
	rows, err := tx.Query(ctx, `
		SELECT e.owner, e.id, e.at, e.kind, e.actor, e.object, e.object_id, e.grant_id, e.detail::text, e.personal::text
		FROM activity e
		WHERE ($1::timestamptz IS NULL OR e.at > $1)
		  AND NOT EXISTS (SELECT FROM activity_link l WHERE l.owner = e.owner AND l.event_id = e.id)
		ORDER BY e.owner, e.at, e.id
		LIMIT $2`, since, sealBatch)
	if err != nil {
		return nil, fmt.Errorf("find events to seal: %w", err)
	}
	events, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (row, error) {
		var e row
		err := r.Scan(&e.owner, &e.id, &e.at, &e.kind, &e.actor, &e.object, &e.objectID, &e.grantID, &e.detail, &e.personal)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("find events to seal: %w", err)
	}
	return events, nil
}

// write inserts checkpoint, seals and links for events sorted by owner.
func (s *Sealer) write(ctx context.Context, tx pgx.Tx, now time.Time, events []row) error {
	var owners []uuid.UUID
	for _, e := range events {
		if len(owners) == 0 || owners[len(owners)-1] != e.owner {
			owners = append(owners, e.owner)
		}
	}
	before, err := heads(ctx, tx, owners)
	if err != nil {
		return err
	}
	var links linkColumns
	var seals sealColumns
	for len(events) > 0 {
		owner := events[0].owner
		seq, prev := int64(1), []byte{}
		if h, ok := before[owner]; ok {
			seq, prev = h.seq+1, h.hash
		}
		var hashes [][]byte
		for len(events) > 0 && events[0].owner == owner {
			sum := events[0].hash()
			links.add(owner, events[0].id, seq, len(hashes), sum)
			hashes = append(hashes, sum)
			events = events[1:]
		}
		sum := sealHash(owner, seq, prev, hashes)
		seals.add(head{owner, seq, sum}, prev, sign(s.key, labelSeal, sum))
	}
	number, err := s.checkpoint(ctx, tx, now, seals.heads)
	if err != nil {
		return err
	}
	if err := seals.insert(ctx, tx, number, s.keyID); err != nil {
		return err
	}
	return links.insert(ctx, tx)
}

// checkpoint inserts the checkpoint over the new heads and returns its number.
func (s *Sealer) checkpoint(ctx context.Context, tx pgx.Tx, now time.Time, heads []head) (int64, error) {
	var seq int64
	var prev []byte
	err := tx.QueryRow(ctx, `SELECT seq, hash FROM activity_checkpoint ORDER BY seq DESC LIMIT 1`).Scan(&seq, &prev)
	if errors.Is(err, pgx.ErrNoRows) {
		seq, prev, err = 0, []byte{}, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the last checkpoint: %w", err)
	}
	seq++
	now = now.Truncate(time.Microsecond)
	sum := checkpointHash(seq, prev, now, heads)
	_, err = tx.Exec(ctx, `
		INSERT INTO activity_checkpoint (seq, prev, hash, at, key_id, signature)
		VALUES ($1, $2, $3, $4, $5, $6)`,
		seq, prev, sum, now, s.keyID, sign(s.key, labelCheckpoint, sum))
	if err != nil {
		return 0, fmt.Errorf("write checkpoint %d: %w", seq, err)
	}
	return seq, nil
}

// heads reads the newest seal of each owner that has one.
func heads(ctx context.Context, tx pgx.Tx, owners []uuid.UUID) (map[uuid.UUID]head, error) {
	rows, err := tx.Query(ctx, `
		SELECT o.owner, s.seq, s.hash
		FROM unnest($1::uuid[]) AS o (owner)
		CROSS JOIN LATERAL (SELECT seq, hash FROM activity_seal WHERE owner = o.owner ORDER BY seq DESC LIMIT 1) s`, owners)
	if err != nil {
		return nil, fmt.Errorf("read the last seals: %w", err)
	}
	found := map[uuid.UUID]head{}
	var h head
	_, err = pgx.ForEachRow(rows, []any{&h.owner, &h.seq, &h.hash}, func() error {
		found[h.owner] = head{h.owner, h.seq, bytes.Clone(h.hash)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the last seals: %w", err)
	}
	return found, nil
}

type linkColumns struct {
	owner, event  []uuid.UUID
	seq, position []int64
	hash          [][]byte
}

func (c *linkColumns) add(owner, event uuid.UUID, seq int64, position int, hash []byte) {
	c.owner = append(c.owner, owner)
	c.event = append(c.event, event)
	c.seq = append(c.seq, seq)
	c.position = append(c.position, int64(position))
	c.hash = append(c.hash, hash)
}

func (c *linkColumns) insert(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO activity_link (owner, event_id, seq, position, hash)
		SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[])`,
		c.owner, c.event, c.seq, c.position, c.hash)
	if err != nil {
		return fmt.Errorf("write the links: %w", err)
	}
	return nil
}

type sealColumns struct {
	heads           []head
	prev, signature [][]byte
}

func (c *sealColumns) add(h head, prev, signature []byte) {
	c.heads = append(c.heads, h)
	c.prev = append(c.prev, prev)
	c.signature = append(c.signature, signature)
}

func (c *sealColumns) insert(ctx context.Context, tx pgx.Tx, checkpoint int64, keyID string) error {
	var owners []uuid.UUID
	var seqs []int64
	var hashes [][]byte
	for _, h := range c.heads {
		owners, seqs, hashes = append(owners, h.owner), append(seqs, h.seq), append(hashes, h.hash)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO activity_seal (owner, seq, prev, hash, signature, checkpoint, key_id)
		SELECT owner, seq, prev, hash, signature, $6, $7
		FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[]) AS s (owner, seq, prev, hash, signature)`,
		owners, seqs, c.prev, hashes, c.signature, checkpoint, keyID)
	if err != nil {
		return fmt.Errorf("write the seals: %w", err)
	}
	return nil
}
