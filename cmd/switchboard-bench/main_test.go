package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets this binary be its own child processes, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && (os.Args[1] == "serve" || os.Args[1] == "client" || os.Args[1] == "worker") {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestSoak is `make soak` at a small size: workers, server processes and
// PostgreSQL are killed under load, and the history is checked.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for a while")
	}
	t.Parallel()
	o := soakOptions{length: 10 * time.Second, workers: 3, dir: t.TempDir()}
	o.pace()
	var out bytes.Buffer
	err := runSoak(t.Context(), o, &out)
	t.Log(out.String())
	require.NoError(t, err)
	require.Regexp(t, `history: ok: \d+ operations .* [1-9]\d* worker kills, [1-9]\d* server kills, [1-9]\d* Postgres restarts\n$`, out.String())
}

// TestBench runs every experiment for a moment: what is measured means nothing,
// but each figure is there.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("runs every contender")
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bench.json")
	var out bytes.Buffer
	err := runBench(context.Background(), benchOptions{json: path, rounds: 1, seconds: .2, hold: 1.2, ready: 2, done: 3, drain: 1500, waiters: 50, samples: 20, callers: []int{1, 4, most}}, &out)
	t.Log(out.String())
	require.NoError(t, err)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var figures map[string]any
	require.NoError(t, json.Unmarshal(content, &figures))
	for _, g := range goals {
		require.IsType(t, 1.5, figures[g.name], g.name)
		require.Positive(t, figures[g.name], g.name)
	}
}
