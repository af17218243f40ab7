package devidp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Options of a provider. The zero value is good.
type Options struct {
	// LoginRedirects are the exact redirect URIs of LoginClient; none means any loopback one.
	LoginRedirects []string
	// Algorithm of the signing keys: RS256 (default) or ES256, which is much quicker to make.
	Algorithm jose.SignatureAlgorithm
	// KeysMaxAge is the max-age that the key set is served with; 5 minutes by default.
	KeysMaxAge time.Duration
}

// Provider is a running OpenID provider.
type Provider struct {
	options     Options
	issuer      string
	server      *http.Server
	served      chan struct{} // closed when the listener has ended
	stopOnDone  func() bool
	jwksFetches atomic.Int64

	mu    sync.Mutex
	keys  []jose.JSONWebKey // newest first; the first one signs
	codes map[string]grantedCode
}

// Start listens on addr, which has to be a loopback one ("127.0.0.1:0" takes
// any free port), and serves until ctx ends or Close is called.
func Start(ctx context.Context, addr string, options Options) (*Provider, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("development issuer: address %q: %w", addr, err)
	}
	if !isLoopback(host) {
		return nil, fmt.Errorf("development issuer: %q is not a loopback address, and anybody can sign in as anybody here", addr)
	}
	if options.Algorithm == "" {
		options.Algorithm = jose.RS256
	}
	if options.KeysMaxAge == 0 {
		options.KeysMaxAge = 5 * time.Minute
	}
	p := &Provider{options: options, served: make(chan struct{}), codes: map[string]grantedCode{}}
	if err := p.RotateKey(); err != nil {
		return nil, fmt.Errorf("development issuer: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("development issuer: %w", err)
	}
	p.issuer = "http://" + listener.Addr().String()
	p.server = &http.Server{Handler: p.routes(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(listener) // always ErrServerClosed: the listener is nobody else's
	}()
	p.stopOnDone = context.AfterFunc(ctx, func() { _ = p.server.Close() })
	return p, nil
}

// Issuer returns the issuer identifier, http://<host>:<port> without a slash.
func (p *Provider) Issuer() string { return p.issuer }

// Close ends the provider and returns when it has ended. It may be called twice.
func (p *Provider) Close() error {
	p.stopOnDone()
	err := p.server.Close()
	<-p.served
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (p *Provider) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.serveConfiguration)
	mux.HandleFunc("GET /jwks", p.serveKeys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	return http.MaxBytesHandler(mux, 64<<10)
}

func (p *Provider) serveConfiguration(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"issuer":                                p.issuer,
		"authorization_endpoint":                p.issuer + "/authorize",
		"token_endpoint":                        p.issuer + "/token",
		"jwks_uri":                              p.issuer + "/jwks",
		"response_types_supported":              []string{"code"},
		"response_modes_supported":              []string{"query"},
		"grant_types_supported":                 []string{"authorization_code"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{string(p.options.Algorithm)},
		"token_endpoint_auth_methods_supported": []string{"none"},
		"code_challenge_methods_supported":      []string{"S256"},
		"scopes_supported":                      []string{"openid", "email", "profile"},
		"prompt_values_supported":               []string{"none", "login", "select_account"},
		"claims_supported": []string{"iss", "sub", "aud", "azp", "iat", "exp", "nonce", "auth_time",
			"email", "email_verified", "name"},
		"authorization_response_iss_parameter_supported": true,
	})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // a reader that went away needs no answer
}
