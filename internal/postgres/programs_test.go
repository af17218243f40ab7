package postgres

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDownload_OnceAndThenFromTheCache serves an archive as Maven does, whose
// programs know their version and nothing else.
func TestDownload_OnceAndThenFromTheCache(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	xz, err := exec.LookPath("xz")
	if err != nil {
		t.Skip("needs xz to make the archive")
	}
	var unpacked bytes.Buffer
	w := tar.NewWriter(&unpacked)
	for _, name := range []string{"bin/postgres", "bin/initdb", "bin/pg_ctl"} {
		script := []byte("#!/bin/sh\necho 'postgres (PostgreSQL) 17.5'\n")
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(script))}))
		_, err := w.Write(script)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	compress := exec.Command(xz, "--stdout")
	compress.Stdin = &unpacked
	packed, err := compress.Output()
	require.NoError(t, err)
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	f, err := z.Create("postgres.txz")
	require.NoError(t, err)
	_, err = f.Write(packed)
	require.NoError(t, err)
	require.NoError(t, z.Close())

	requests := 0
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			sum := sha256.Sum256(jar.Bytes())
			_, _ = w.Write([]byte(hex.EncodeToString(sum[:])))
			return
		}
		_, _ = w.Write(jar.Bytes())
	}))
	defer mirror.Close()

	cache := t.TempDir()
	p, err := downloadInto(ctx, cache, mirror.URL)
	require.NoError(t, err)
	require.FileExists(t, p.postgres)
	require.FileExists(t, p.initdb)
	require.Equal(t, 2, requests)
	again, err := downloadInto(ctx, cache, mirror.URL)
	require.NoError(t, err)
	require.Equal(t, p, again)
	require.Equal(t, 2, requests)
}

func TestDownload_SaysWhereItFailed(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	mirror := httptest.NewServer(http.NotFoundHandler())
	defer mirror.Close()
	_, err := downloadInto(context.Background(), cache, mirror.URL)
	require.ErrorContains(t, err, mirror.URL)
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestProgramsIn_RefusesOldOnes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho 'postgres (PostgreSQL) 14.11'\n"), 0o755))
	}
	_, err := programsIn(context.Background(), dir)
	require.ErrorContains(t, err, "older than 15")
}
