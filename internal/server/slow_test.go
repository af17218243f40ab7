package server_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
)

// A client that asks for answers and does not read them is cut off: each that is
// held is memory that others need.
func TestAnAnswerThatNobodyReadsIsNotHeld(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	s, err := server.New(t.Context(), w.Config, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.Use(l)
	s.WriteWithin(200 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})

	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(30*time.Second)))
	request := "GET /openapi.json HTTP/1.1\r\nHost: " + strings.TrimPrefix(w.URL, "http://") + "\r\nX-Padding: " + strings.Repeat("x", 16<<10) + "\r\n\r\n"
	for err == nil { // until our own buffers are full, and then until the server gives up
		_, err = conn.Write([]byte(request))
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is held still")
}
