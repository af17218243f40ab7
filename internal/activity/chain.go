package activity

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"time"

	"github.com/google/uuid"
)

// The hashes. Each is SHA-256 over its label and its members, every one with
// its length before it, so that no two different records have equal input.

const (
	labelEvent      = "switchboard activity event v1"
	labelPersonal   = "switchboard activity personal v1"
	labelSeal       = "switchboard activity seal v1"
	labelCheckpoint = "switchboard activity checkpoint v1"
)

// frame writes members with their lengths into a hash.
type frame struct{ h hash.Hash }

func newFrame(label string) frame {
	f := frame{sha256.New()}
	f.bytes([]byte(label))
	return f
}

func (f frame) bytes(b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	f.h.Write(n[:])
	f.h.Write(b)
}

func (f frame) text(s string) { f.bytes([]byte(s)) }

func (f frame) number(n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n)) //nolint:gosec // a bijection is all that counts
	f.bytes(b[:])
}

func (f frame) sum() []byte { return f.h.Sum(nil) }

// row is an event as the database holds it.
type row struct {
	owner, id         uuid.UUID
	at                time.Time
	kind, actor       string
	object            string
	objectID, grantID *uuid.UUID
	detail, personal  string // the bytes, not the values
}

func (r row) hash() []byte {
	f := newFrame(labelEvent)
	f.bytes(r.owner[:])
	f.bytes(r.id[:])
	f.number(r.at.UnixMicro())
	f.text(r.kind)
	f.text(r.actor)
	f.text(r.object)
	for _, id := range []*uuid.UUID{r.objectID, r.grantID} {
		if id == nil {
			f.bytes(nil)
		} else {
			f.bytes(id[:])
		}
	}
	f.text(r.detail)
	f.text(r.personal)
	return f.sum()
}

func personalHash(salt []byte, value string) []byte {
	f := newFrame(labelPersonal)
	f.bytes(salt)
	f.text(value)
	return f.sum()
}

// sealHash chains a batch of an owner's events to the one before it.
func sealHash(owner uuid.UUID, seq int64, prev []byte, events [][]byte) []byte {
	f := newFrame(labelSeal)
	f.bytes(owner[:])
	f.number(seq)
	f.bytes(prev)
	f.number(int64(len(events)))
	for _, e := range events {
		f.bytes(e)
	}
	return f.sum()
}

// head is an owner's newest seal, as a checkpoint covers it.
type head struct {
	owner uuid.UUID
	seq   int64
	hash  []byte
}

// checkpointHash chains one pass; heads are sorted by owner and seq.
func checkpointHash(seq int64, prev []byte, at time.Time, heads []head) []byte {
	f := newFrame(labelCheckpoint)
	f.number(seq)
	f.bytes(prev)
	f.number(at.UnixMicro())
	f.number(int64(len(heads)))
	for _, h := range heads {
		f.bytes(h.owner[:])
		f.number(h.seq)
		f.bytes(h.hash)
	}
	return f.sum()
}

// sign signs a hash under its label, so that a signature of one kind of record
// is none of another.
func sign(key ed25519.PrivateKey, label string, sum []byte) []byte {
	return ed25519.Sign(key, append([]byte(label+"\n"), sum...))
}

func signed(key ed25519.PublicKey, label string, sum, signature []byte) bool {
	return ed25519.Verify(key, append([]byte(label+"\n"), sum...), signature)
}

// KeyID returns the RFC 7638 thumbprint of a sealing key.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(key) + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
