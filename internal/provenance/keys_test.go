package provenance_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
	"switchboard/internal/provenance/provenancetest"
	"switchboard/internal/refusal"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	type testBundle struct {
		w      *provenancetest.World
		keys   *provenance.Keys
		passed atomic.Int64 // seconds on the cache's clock
		token  func(how provenancetest.JWS) string
		verify func(token string) refusal.Code
	}
	setup := func(t *testing.T) *testBundle {
		t.Helper()
		b := &testBundle{w: newWorld(t), keys: provenance.NewKeys(provenance.GuardedClient(true))}
		b.keys.SetNow(func() time.Time { return testNow.Add(time.Duration(b.passed.Load()) * time.Second) })
		plain := &b.w.Entries()[0]
		b.token = func(how provenancetest.JWS) string { return b.w.IDToken(t, "plain", "n", how) }
		b.verify = func(token string) refusal.Code {
			_, err := b.keys.VerifyToken(t.Context(), plain, token)
			return refusal.CodeOf(err)
		}
		return b
	}

	t.Run("an issuer under 500 bad signatures in 10 seconds sees at most 2 key fetches", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		tokens := []string{b.token(provenancetest.JWS{Signature: "flipped"}), b.token(provenancetest.JWS{SignedBy: "b"})}
		var wg sync.WaitGroup
		for n := range 500 {
			wg.Go(func() {
				b.passed.Store(int64(n) / 50)
				if got := b.verify(tokens[n%2]); got != refusal.IDTokenSignature {
					t.Errorf("got %q", got)
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, b.w.KeyFetches.Load(), int64(2))
		require.LessOrEqual(t, b.w.Discoveries.Load(), int64(1))
		require.Empty(t, b.verify(b.token(provenancetest.JWS{})), "good tokens pass all the while")
	})

	t.Run("a failing issuer is not asked for each request", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.w.Break(true)
		good := b.token(provenancetest.JWS{})
		for range 50 {
			require.Equal(t, refusal.Unavailable, b.verify(good))
		}
		b.w.Break(false)
		require.Equal(t, refusal.Unavailable, b.verify(good), "not before the retry is due")
		b.passed.Add(11)
		require.Empty(t, b.verify(good))
		require.Equal(t, int64(1), b.w.KeyFetches.Load())
	})

	t.Run("a rotated key is found at once, and again a minute later", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Empty(t, b.verify(b.token(provenancetest.JWS{})))
		b.w.Publish("a", "b")
		require.Empty(t, b.verify(b.token(provenancetest.JWS{SignedBy: "b"})))
		require.Equal(t, int64(2), b.w.KeyFetches.Load())

		b.w.Publish("a", "b", "ed25519")
		next := b.token(provenancetest.JWS{SignedBy: "ed25519", Alg: "EdDSA"})
		require.Equal(t, refusal.IDTokenSignature, b.verify(next), "one refetch a minute")
		b.passed.Add(61)
		require.Empty(t, b.verify(next))
		require.Equal(t, int64(3), b.w.KeyFetches.Load())
	})

	t.Run("a kid that was given to another key is found", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.w.Publish("a", "b")
		require.Empty(t, b.verify(b.token(provenancetest.JWS{})))
		require.Equal(t, refusal.IDTokenSignature, b.verify(b.token(provenancetest.JWS{SignedBy: "b", Header: map[string]any{"kid": "a"}})))
		require.Equal(t, int64(2), b.w.KeyFetches.Load())
	})

	t.Run("many callers share one fetch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Empty(t, b.verify(b.token(provenancetest.JWS{})))
		b.w.Publish("b")
		next := b.token(provenancetest.JWS{SignedBy: "b"})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if got := b.verify(next); got != "" {
					t.Errorf("got %q", got)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(2), b.w.KeyFetches.Load())
	})

	t.Run("a withdrawn key stops counting when the set's time is over", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.w.Cache("max-age=600")
		old := b.token(provenancetest.JWS{})
		require.Empty(t, b.verify(old))
		b.w.Publish("b")
		b.passed.Add(601)
		require.Equal(t, refusal.IDTokenSignature, b.verify(old))
	})

	t.Run("keys outlive their time by an hour at most when the issuer is down", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.w.Cache("no-store")
		good := b.token(provenancetest.JWS{})
		require.Empty(t, b.verify(good))
		b.w.Break(true)
		b.passed.Add(600)
		require.Empty(t, b.verify(good))
		b.passed.Add(3600)
		require.Equal(t, refusal.Unavailable, b.verify(good))
	})

	t.Run("no-store is kept a minute all the same", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.w.Cache("no-store, max-age=0")
		good := b.token(provenancetest.JWS{})
		for range 20 {
			require.Empty(t, b.verify(good))
		}
		require.Equal(t, int64(1), b.w.KeyFetches.Load())
	})

	t.Run("a caller who gives up does not wait, and the fetch goes on", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.keys.VerifyToken(ctx, &b.w.Entries()[0], b.token(provenancetest.JWS{}))
		if err != nil { // the fetch may have been faster
			require.Equal(t, refusal.Unavailable, refusal.CodeOf(err))
		}
		require.Empty(t, b.verify(b.token(provenancetest.JWS{})))
		require.Equal(t, int64(1), b.w.KeyFetches.Load())
	})

	t.Run("discovery must be about the very issuer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		entry := b.w.Entries()[0]
		entry.Issuer += "/"
		_, err := b.keys.Discover(t.Context(), &entry)
		require.Equal(t, refusal.Unavailable, refusal.CodeOf(err))
		require.ErrorContains(t, err, "the document is of issuer")
		require.NotContains(t, refusal.From(err).Message, "/", "the cause stays inside")

		d, err := b.keys.Discover(t.Context(), &b.w.Entries()[0])
		require.NoError(t, err)
		require.Equal(t, b.w.Server.URL+"/authorize", d.AuthorizationEndpoint)
	})
}
