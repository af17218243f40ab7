package persona

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/gowebpki/jcs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"switchboard/internal/provenance"
)

// CardKeyOverlap is how long a retired card key stays in jwks.json: longer than
// any card that it signed may be cached.
const CardKeyOverlap = 7 * 24 * time.Hour

// cardKeysFresh is how long a replica goes on with the keys that it has read. A
// rotation is therefore seen by every replica well within the overlap.
const cardKeysFresh = time.Minute

// cardKeyLock keeps two replicas from both making the first key.
const cardKeyLock = 0x5b_ca_4d_6b

// CardKeys are the keys that sign cards. The private halves are sealed at rest.
type CardKeys struct {
	pool   *pgxpool.Pool
	sealer *provenance.Sealer

	mu     sync.Mutex
	read   time.Time
	signer jose.Signer
	public []jose.JSONWebKey
}

// NewCardKeys returns the keys kept in the database; the first use makes one.
func NewCardKeys(pool *pgxpool.Pool, sealer *provenance.Sealer) *CardKeys {
	return &CardKeys{pool: pool, sealer: sealer}
}

// Public returns the keys of jwks.json, current first, public halves only.
func (k *CardKeys) Public(ctx context.Context) ([]jose.JSONWebKey, error) {
	_, public, err := k.load(ctx)
	return public, err
}

// Sign returns the protected header and the signature, both base64url, of a
// JWS whose payload is the canonical form (RFC 8785) of the card without
// signatures (A2A 1.0 §8.4).
func (k *CardKeys) Sign(ctx context.Context, card []byte) (protected, signature string, err error) {
	signer, _, err := k.load(ctx)
	if err != nil {
		return "", "", err
	}
	canonical, err := jcs.Transform(card)
	if err != nil {
		return "", "", fmt.Errorf("canonical card: %w", err)
	}
	jws, err := signer.Sign(canonical)
	if err != nil {
		return "", "", fmt.Errorf("sign card: %w", err)
	}
	var flat struct {
		Protected string `json:"protected"`
		Signature string `json:"signature"`
	}
	if err := json.Unmarshal([]byte(jws.FullSerialize()), &flat); err != nil {
		return "", "", fmt.Errorf("read signature: %w", err)
	}
	return flat.Protected, flat.Signature, nil
}

// Rotate makes a new current key; the old ones go on being published for
// CardKeyOverlap.
func (k *CardKeys) Rotate(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, cardKeyLock); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE card_key SET retired_at = clock_timestamp() WHERE retired_at IS NULL`); err != nil {
			return err
		}
		return k.make(ctx, tx)
	})
	k.mu.Lock()
	k.read = time.Time{}
	k.mu.Unlock()
	if err != nil {
		return fmt.Errorf("rotate card key: %w", err)
	}
	return nil
}

func (k *CardKeys) load(ctx context.Context) (jose.Signer, []jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.signer != nil && time.Since(k.read) < cardKeysFresh {
		return k.signer, k.public, nil
	}
	err := pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
		var have bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM card_key WHERE retired_at IS NULL)`).Scan(&have); err != nil || have {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, cardKeyLock); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM card_key WHERE retired_at IS NULL)`).Scan(&have); err != nil || have {
			return err
		}
		return k.make(ctx, tx)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("first card key: %w", err)
	}
	rows, err := k.pool.Query(ctx, `
		SELECT kid, sealed, retired_at IS NULL
		FROM card_key
		WHERE retired_at IS NULL OR retired_at > clock_timestamp() - $1::interval
		ORDER BY retired_at DESC NULLS FIRST, created_at DESC`, CardKeyOverlap)
	if err != nil {
		return nil, nil, fmt.Errorf("card keys: %w", err)
	}
	defer rows.Close()
	var signer jose.Signer
	var public []jose.JSONWebKey
	for rows.Next() {
		var kid string
		var sealed []byte
		var current bool
		if err := rows.Scan(&kid, &sealed, &current); err != nil {
			return nil, nil, fmt.Errorf("card keys: %w", err)
		}
		seed, err := k.sealer.Open(sealed, "card-key:"+kid)
		if err != nil {
			return nil, nil, fmt.Errorf("open card key %s: %w", kid, err)
		}
		private := ed25519.NewKeyFromSeed(seed)
		public = append(public, jose.JSONWebKey{Key: private.Public(), KeyID: kid, Algorithm: string(jose.EdDSA), Use: "sig"})
		if current && signer == nil {
			signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: kid}},
				(&jose.SignerOptions{}).WithType("JOSE"))
			if err != nil {
				return nil, nil, fmt.Errorf("card key %s: %w", kid, err)
			}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, nil, fmt.Errorf("card keys: %w", err)
	}
	if signer == nil {
		return nil, nil, fmt.Errorf("card keys: there is no current one")
	}
	k.signer, k.public, k.read = signer, public, time.Now()
	return signer, public, nil
}

// Openable reports whether the operator's sealing keys open every card key that
// is kept; nil too when there is none yet.
func (k *CardKeys) Openable(ctx context.Context) error {
	rows, err := k.pool.Query(ctx, `SELECT kid, sealed FROM card_key`)
	if err != nil {
		return fmt.Errorf("card keys: %w", err)
	}
	var kid string
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&kid, &sealed}, func() error {
		_, err := k.sealer.Open(sealed, "card-key:"+kid)
		return err
	})
	if err != nil {
		return fmt.Errorf("card key %s: %w", kid, err)
	}
	return nil
}

func (k *CardKeys) make(ctx context.Context, tx pgx.Tx) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make card key: %w", err)
	}
	jwk, err := json.Marshal(jose.JSONWebKey{Key: private.Public()})
	if err != nil {
		return fmt.Errorf("make card key: %w", err)
	}
	key, err := provenance.ParsePublicKey(jwk)
	if err != nil {
		return fmt.Errorf("make card key: %w", err)
	}
	kid := key.Thumbprint()
	sealed, err := k.sealer.Seal(private.Seed(), "card-key:"+kid)
	if err != nil {
		return fmt.Errorf("seal card key: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO card_key (kid, public, sealed) VALUES ($1, $2, $3)`, kid, json.RawMessage(jwk), sealed)
	return err
}
