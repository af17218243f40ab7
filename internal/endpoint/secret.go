package endpoint

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Prefixes of what opens an endpoint, so that people and scanners know a secret
// when they see one (specs/protocol.md section 4).
const (
	accessPrefix  = "sbt_"
	refreshPrefix = "sbr_"
	staticPrefix  = "sbe_"
	codePrefix    = "sbc_"
)

const secretBytes = 32

// newSecret returns a bearer and what is kept of it.
func newSecret(prefix string) (bearer string, id []byte) {
	b := make([]byte, secretBytes)
	rand.Read(b) //nolint:errcheck // crypto/rand.Read never fails
	bearer = prefix + base64.RawURLEncoding.EncodeToString(b)
	return bearer, secretID(bearer)
}

// secretID is what is kept of a bearer. A plain hash is enough: 256 random
// bits cannot be guessed, however fast the hash.
func secretID(bearer string) []byte {
	sum := sumOf(bearer)
	return sum[:]
}

func sumOf(bearer string) [sha256.Size]byte { return sha256.Sum256([]byte(bearer)) }

// plausible spares the database what cannot be one of ours.
func plausible(bearer string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(bearer, p) && len(bearer) == len(p)+base64.RawURLEncoding.EncodedLen(secretBytes) {
			return true
		}
	}
	return false
}

// hashOf hashes parts so that no two lists of parts have the same hash.
func hashOf(parts ...string) []byte {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256([]byte(p))
		h.Write(sum[:])
	}
	return h.Sum(nil)
}
