package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/endpoint"
	"switchboard/internal/mcp"
	"switchboard/internal/todo"
)

// BenchmarkHandler is the handler alone, without a connection and with a domain
// that does nothing: what each of the four steps of a todo's life costs here.
// Bytes and allocations are exact.
func BenchmarkHandler(b *testing.B) {
	const fence = `"todo_id":"01890a5d-ac96-774b-bcce-b302099a8057","lease_token":"fence"`
	var h http.Handler
	s := setup(b, func(d *mcp.Deps) {
		d.Todos = ownTodos{d.Todos.(*fakeTodos)}
		var err error
		h, err = mcp.New(*d)
		require.NoError(b, err)
	})
	for _, c := range []struct{ tool, arguments string }{
		{"create", `{"queue":"reviews","title":"Review 7","idempotency_key":"pr-7","body":"Look at the change of the billing address.","payload":{"repository":"billing","pull_request":7}}`},
		{"claim_next", `{"max":1}`},
		{"heartbeat", `{` + fence + `}`},
		{"complete", `{` + fence + `,"result":{"verdict":"approve","comments":2}}`},
	} {
		b.Run(c.tool, func(b *testing.B) {
			message := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + c.tool + `","arguments":` + c.arguments + `}}`
			body := strings.NewReader(message)
			r := httptest.NewRequest(http.MethodPost, s.home.url, io.NopCloser(body))
			r.ContentLength = int64(len(message))
			for k, v := range s.home.as(legacy[0]).headers("tools/call", nil) {
				r.Header.Set(k, v)
			}
			w := &discarded{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				body.Reset(message)
				clear(w.header)
				h.ServeHTTP(w, r)
			}
			require.Equal(b, http.StatusOK, w.status)
			require.Contains(b, string(w.last), `"structuredContent":{"todo`)
		})
	}
}

// discarded is an answer that nobody reads.
type discarded struct {
	header http.Header
	status int
	last   []byte
}

func (d *discarded) Header() http.Header    { return d.header }
func (d *discarded) WriteHeader(status int) { d.status = status }
func (d *discarded) Write(b []byte) (int, error) {
	if d.status == 0 {
		d.status = http.StatusOK
	}
	d.last = append(d.last[:0], b...)
	return len(b), nil
}

// ownTodos are todos that their owner made.
type ownTodos struct{ *fakeTodos }

// ClaimNext finds one.
func (f ownTodos) ClaimNext(_ context.Context, _ endpoint.Caller, _ todo.ClaimNext) ([]todo.Claimed, error) {
	return []todo.Claimed{{
		TodoID: aTodo, Queue: "reviews", State: todo.Leased, Version: 2, LeaseToken: aTodo.String(), LeaseExpiresAt: time.Unix(1700000000, 123456000), Attempt: 1, Priority: 5,
		Title: "Review 7", Body: "Look at the change of the billing address.", Payload: json.RawMessage(`{"repository":"billing","pull_request":7}`),
	}}, nil
}
