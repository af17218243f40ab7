package provenance

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// SealKeySize is the length of an operator's key, in bytes.
const SealKeySize = 32

// ErrSealed: a sealed value cannot be opened, because its key is unknown, it
// was changed, or it belongs to another context.
var ErrSealed = errors.New("sealed value cannot be opened")

// Sealer seals what must be kept secret and used again (card keys, login client
// secrets, evidence) under the operator's key, with AES-256-GCM. A sealed value
// names its key, so that keys can be rotated: the current one seals, older ones
// still open.
type Sealer struct {
	current *sealKey
	all     []*sealKey
}

type sealKey struct {
	id   []byte
	aead cipher.AEAD
}

// sealVersion is the first byte of a sealed value: version, key id (8 bytes),
// then GCM's random nonce, ciphertext and tag.
const sealVersion = 1

const sealIDSize = 8

// NewSealer makes a Sealer of keys of SealKeySize bytes.
func NewSealer(current []byte, older ...[]byte) (*Sealer, error) {
	s := &Sealer{}
	for _, key := range append([][]byte{current}, older...) {
		if len(key) != SealKeySize {
			return nil, fmt.Errorf("sealing key: %d bytes where %d are needed", len(key), SealKeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("sealing key: %w", err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("sealing key: %w", err)
		}
		// Domain-separated, so that the id says nothing about the key elsewhere.
		id := sha256.Sum256(append([]byte("switchboard sealing key id\x00"), key...))
		s.all = append(s.all, &sealKey{id: id[:sealIDSize], aead: aead})
	}
	s.current = s.all[0]
	return s, nil
}

// ParseSealKey reads a key as an operator writes it: 32 bytes in base64 or
// base64url, padded or not.
func ParseSealKey(text string) ([]byte, error) {
	text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimSpace(text)), "=")
	key, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(key) != SealKeySize {
		return nil, fmt.Errorf("sealing key: not %d bytes in base64", SealKeySize)
	}
	return key, nil
}

// Seal encrypts plaintext. context says what it is and whose, like
// "evidence:<request id>"; only the same context opens it, so a value cannot be
// moved to another row.
func (s *Sealer) Seal(plaintext []byte, context string) ([]byte, error) {
	head := append([]byte{sealVersion}, s.current.id...)
	return s.current.aead.Seal(head, nil, plaintext, bound(head, context)), nil
}

// Open decrypts what Seal made; ErrSealed when it cannot.
func (s *Sealer) Open(sealed []byte, context string) ([]byte, error) {
	if len(sealed) < 1+sealIDSize || sealed[0] != sealVersion {
		return nil, fmt.Errorf("%w: not a sealed value", ErrSealed)
	}
	head, rest := sealed[:1+sealIDSize], sealed[1+sealIDSize:]
	for _, k := range s.all {
		if bytes.Equal(k.id, head[1:]) {
			plaintext, err := k.aead.Open(nil, nil, rest, bound(head, context))
			if err != nil {
				return nil, fmt.Errorf("%w: changed, or of another context", ErrSealed)
			}
			return plaintext, nil
		}
	}
	return nil, fmt.Errorf("%w: its key is not among the operator's keys", ErrSealed)
}

// bound is GCM's additional data: the head cannot be exchanged either.
func bound(head []byte, context string) []byte {
	return append(bytes.Clone(head), context...)
}
