package provenance

// CONTRACT FILE: signatures that others code against; it shrinks as the real files arrive.

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"switchboard/internal/scope"
)

// ErrNotJSON: the bytes are no JSON text at all (A2A answers -32700). Everything else that
// ParseStrict refuses is refusal.InvalidArgument or refusal.PayloadTooLarge.
var ErrNotJSON = errors.New("not JSON")

// ParseStrict checks that b is one I-JSON text (RFC 7493) of at most limit bytes and returns it as a raw value
// that may be decoded with any decoder that matches member names exactly (go-json-experiment/json, not encoding/json v1).
func ParseStrict(b []byte, limit int) (json.RawMessage, error) { panic("contract") }

// Part is the one data part of a friend request.
type Part struct {
	From       From
	Reason     string
	Scope      scope.Asked
	Key        PublicKey
	Supersedes string // grant id, "" when absent
	Provenance *Provenance
}

type From struct{ Name, Card string }

type Provenance struct{ Method, IDToken, Salt, Statement string }

const (
	MethodOIDCNonce = "oidc-nonce"
	MethodSignIn    = "sign-in"
)

func DecodePart(raw []byte) (Part, error) { panic("contract") }
func (p Part) Digest() string             { panic("contract") }

// Canonical is the JCS text without provenance: what was digested; keep it with the request.
func (p Part) Canonical() json.RawMessage { panic("contract") }

// PublicKey is an agent's key with exactly the RFC 7638 members.
type PublicKey struct{ KTY, Crv, X, Y string }

func ParsePublicKey(raw []byte) (PublicKey, error)                      { panic("contract") }
func (k PublicKey) Thumbprint() string                                  { panic("contract") }
func (k PublicKey) JWK() json.RawMessage                                { panic("contract") }
func (k PublicKey) Public() crypto.PublicKey                            { panic("contract") }
func Nonce(aud, persona, jkt, digest, salt string) string               { panic("contract") }
func VerifyJWT(token string, key PublicKey, typ string) ([]byte, error) { panic("contract") } // header strict; typ "" = absent or JWT

// Target is what the request is checked against.
type Target struct {
	Aud     string // PUBLIC_URL
	Persona string // slug
	Allowed Allowed
	Now     time.Time // from the database
}

// Allowed says which issuers a persona lets ask; nil allows none.
type Allowed func(*Issuer) bool

func Anyone() Allowed                { panic("contract") }
func Nobody() Allowed                { panic("contract") }
func Only(issuers ...string) Allowed { panic("contract") }

type Verifier struct{}

func NewVerifier(issuers []Issuer, keys *Keys) *Verifier { panic("contract") }

// Verify does rows 2 to 7 for method oidc-nonce.
func (v *Verifier) Verify(ctx context.Context, t Target, p Part) (*Verified, error) {
	panic("contract")
}

// VerifySignIn does row 7 for method sign-in: the statement, which has neither iss nor sub, with its times.
func (v *Verifier) VerifySignIn(t Target, p Part) (*SignIn, error) { panic("contract") }

type SignIn struct {
	Digest, KeyThumbprint, Nonce string
	StatementID                  string
	StatementUntil               time.Time
}

// CompleteSignIn does rows 3 to 6 for an ID token that this instance itself obtained with SignIn.Nonce as client
// clientID; then CheckTimes and CheckConditions as usual.
func (v *Verifier) CompleteSignIn(ctx context.Context, t Target, p Part, idToken, clientID string) (*Verified, error) {
	panic("contract")
}

// Verified is a request whose provenance stands (rows 2 to 7).
type Verified struct {
	Method         string
	Issuer         *Issuer // the entry
	IssuerName     string  // canonical issuer, never an alias
	Subject        string
	Identity       []byte // SHA-256 of the entry's identity claims; the same for login
	Name           string // what the issuer says the person is called, "" when it says nothing
	Email          string // "" unless the entry is authoritative for its domain and it is verified
	Claims         json.RawMessage
	IDToken        string // for Seal only
	KeyThumbprint  string
	Digest         string
	Nonce          string
	NonceUntil     time.Time // keep the nonce until then
	StatementID    string    // jti
	StatementUntil time.Time
}

func (v *Verified) CheckTimes(now time.Time) error { panic("contract") } // row 9
func (v *Verified) CheckConditions() error         { panic("contract") } // row 11

// Issuer is one entry of the operator's list.
type Issuer struct {
	Issuer, Name          string
	Aliases               []string
	Discovery             string
	Algs                  []string
	Provenance            *ProvenanceClients // nil: not trusted for provenance
	Login                 *LoginClient       // nil: nobody signs in here
	Identity              []string
	Conditions            Conditions
	EmailAuthoritativeFor []string
	Ramp                  bool
}

type ProvenanceClients struct {
	ClientIDs       []string
	PublishedClient *PublishedClient
	MaxAuthAge      time.Duration
	ACR, AMR        []string
}

type PublishedClient struct {
	ClientID, ClientSecret string
	RedirectURIs           []string
	Scope                  string
}

type LoginClient struct{ ClientID, ClientSecret, Scope string }

type Conditions struct{ EmailDomain, HostedDomain, Tenant []string }

func ParseIssuers(b []byte, dev bool) ([]Issuer, error) { panic("contract") }

// Person is what an ID token's claims say about a human under this entry; human sign-in uses it too.
type Person struct {
	Issuer, Subject string
	Identity        []byte
	Name, Email     string
}

func (i *Issuer) Person(claims []byte) (Person, error) { panic("contract") }
func (i *Issuer) CheckConditions(claims []byte) error  { panic("contract") }

// Keys are the issuers' key sets and discovery documents.
type Keys struct{}

func NewKeys(client *http.Client) *Keys                                    { panic("contract") }
func (k *Keys) Discover(ctx context.Context, i *Issuer) (Discovery, error) { panic("contract") }

// VerifyToken returns the payload of a JWS by this issuer's key (row 4); human sign-in uses it too.
func (k *Keys) VerifyToken(ctx context.Context, i *Issuer, token string) ([]byte, error) {
	panic("contract")
}

type Discovery struct{ Issuer, AuthorizationEndpoint, TokenEndpoint, JWKSURI, EndSessionEndpoint string }

// GuardedClient is the only client for outgoing fetches: https, no redirects, 64 KiB, 5 s, address checked at dial; http and loopback only in dev.
func GuardedClient(dev bool) *http.Client { panic("contract") }

// ---- the requester's side ----

type Key struct{} // an agent's private key

func NewKey() (*Key, error)             { panic("contract") }
func LoadKey(path string) (*Key, error) { panic("contract") } // PEM, refuses a file that others can read
func (k *Key) Save(path string) error   { panic("contract") } // 0600
func ParseKey(pem []byte) (*Key, error) { panic("contract") }
func (k *Key) PEM() ([]byte, error)     { panic("contract") }
func (k *Key) Public() PublicKey        { panic("contract") }
func (k *Key) Thumbprint() string       { panic("contract") }

// SignJWT signs claims; header is added to alg (say {"typ": "dpop+jwt", "jwk": …}).
func (k *Key) SignJWT(header map[string]any, claims any) (string, error) { panic("contract") }

// ClientAssertion is the RFC 7523 assertion of protocol.md section 4.1.
func ClientAssertion(k *Key, aud string, now time.Time) (string, error) { panic("contract") }

// Request is a part without key and provenance.
type Request struct {
	From       From
	Reason     string
	Scope      scope.Asked
	Supersedes string
}

type To struct{ Aud, Persona string }

// Build signs a request for method oidc-nonce; obtain gets an ID token for the nonce. The answer is the data part.
func Build(ctx context.Context, k *Key, r Request, to To, now time.Time, obtain func(ctx context.Context, nonce string) (string, error)) (json.RawMessage, error) {
	panic("contract")
}
func BuildSignIn(k *Key, r Request, to To, now time.Time) (json.RawMessage, error) { panic("contract") }

// ---- sealing ----

// Sealer seals secrets that must be used again, under the operator's key.
type Sealer struct{}

func NewSealer(current []byte, older ...[]byte) (*Sealer, error)        { panic("contract") } // 32 bytes each
func (s *Sealer) Seal(plaintext []byte, context string) ([]byte, error) { panic("contract") } // context: what and whose it is
func (s *Sealer) Open(sealed []byte, context string) ([]byte, error)    { panic("contract") }
