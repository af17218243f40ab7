package servertest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"switchboard/internal/devidp"
	"switchboard/internal/human"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/provenance"
	"switchboard/internal/server"
)

// Instance is one instance, with the issuer that it trusts.
type Instance struct {
	URL      string
	Database string
	Issuer   *devidp.Provider
	Config   server.Config
}

// Start starts an instance; it ends with the test. The test binary's TestMain
// is pgtest.Main. change may alter the configuration.
func Start(t testing.TB, change ...func(*server.Config)) *Instance {
	t.Helper()
	idp, err := devidp.Start(context.Background(), "127.0.0.1:0", devidp.Options{Algorithm: jose.ES256})
	require.NoError(t, err)
	t.Cleanup(func() { _ = idp.Close() })
	issuers, err := provenance.ParseIssuers([]byte(`
- issuer: `+idp.Issuer()+`
  algs: [ES256]
  email_authoritative_for: [example.com]
  login: {client_id: `+devidp.LoginClient+`}
  provenance:
    max_auth_age: 3600
    published_client: {client_id: `+devidp.FriendClient+`, redirect_uris: ["http://127.0.0.1/callback"], scope: openid email}
`), true)
	require.NoError(t, err)
	residents, err := human.NewResidents([]string{"*"}, true)
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	i := &Instance{URL: "http://" + l.Addr().String(), Database: pgtest.URL(t), Issuer: idp}
	i.Config = server.Config{
		PublicURL: i.URL, DatabaseURL: i.Database, Issuers: issuers, SealKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Residents: residents, Dev: true,
	}
	for _, c := range change {
		c(&i.Config)
	}
	i.serve(t, l)
	return i
}

// Replica starts another process of the instance and returns the address at
// which it listens; Host stays the instance's, as behind a balancer. end stops
// it, at the latest when the test ends.
func (i *Instance) Replica(t testing.TB) (address string, end func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l.Addr().String(), i.serve(t, l)
}

func (i *Instance) serve(t testing.TB, l net.Listener) (end func()) {
	t.Helper()
	out := io.Discard
	if testing.Verbose() {
		out = os.Stderr
	}
	s, err := server.New(context.Background(), i.Config, "test", slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	require.NoError(t, err)
	s.Use(l)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(end)
	return end
}
