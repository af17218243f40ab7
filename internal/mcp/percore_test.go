//go:build unix

package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asServer has the test binary serve what BenchmarkCallsPerCore measures, so
// that the client's share is not in it.
const asServer = "SWITCHBOARD_TEST_AS_SERVER"

type servedURLs struct{ Own, MCPGo, Plain, CPU string }

// TestServesABenchmark is the other process of BenchmarkCallsPerCore.
func TestServesABenchmark(t *testing.T) {
	if os.Getenv(asServer) == "" {
		t.Skip("for BenchmarkCallsPerCore")
	}
	own, mcpGo, plain := measured(t)
	cpu := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		_, _ = fmt.Fprint(w, u.Utime.Nano()+u.Stime.Nano())
	}))
	t.Cleanup(cpu.Close)
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(servedURLs{own.url, mcpGo, plain, cpu.URL}))
	_, _ = io.Copy(io.Discard, os.Stdin) // until the other one ends
}

// BenchmarkCallsPerCore says how many tools/call a second one core of the server
// carries, on our path, through mcp-go as it is, and as plain JSON on net/http,
// in turns within one run (adr/0011-mcp-fast-path.md):
//
//	go test -run - -bench CallsPerCore -benchtime 1x ./internal/mcp
func BenchmarkCallsPerCore(b *testing.B) {
	program, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(program, "-test.run", "^TestServesABenchmark$")
	cmd.Env = append(os.Environ(), asServer+"=yes")
	stdin, err := cmd.StdinPipe()
	require.NoError(b, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	})
	var at servedURLs
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(b, err)
	require.NoError(b, json.Unmarshal(line, &at))
	body, headers := measuredCall(b, client{t: b, url: at.Own, token: "peer", version: modern})

	rates := map[string][]float64{}
	for b.Loop() {
		for range 7 {
			for name, url := range map[string]string{"own": at.Own, "mcp-go": at.MCPGo, "plain": at.Plain} {
				rates[name] = append(rates[name], perCore(b, at.CPU, url, body, headers))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	plain := median(rates["plain"])
	for name := range rates {
		b.ReportMetric(median(rates[name]), name+":calls/s/core")
		if name != "plain" {
			b.ReportMetric(median(rates[name])/plain, name+"/plain")
		}
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// perCore calls for a second from eight connections and divides what was
// answered by the processor time that the server took.
func perCore(b *testing.B, cpu, url string, body []byte, headers map[string]string) float64 {
	spent := func() (ns int64) {
		resp, err := http.Get(cpu)
		require.NoError(b, err)
		defer resp.Body.Close()
		_, err = fmt.Fscan(resp.Body, &ns)
		require.NoError(b, err)
		return ns
	}
	from := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer from.CloseIdleConnections()
	var calls atomic.Int64
	var wg sync.WaitGroup
	before, until := spent(), time.Now().Add(time.Second)
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(until) {
				if err := callOnce(from, url, body, headers); err != nil {
					b.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(calls.Load()) / (float64(spent()-before) / 1e9)
}
