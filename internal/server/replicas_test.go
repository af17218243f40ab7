package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/scope"
	"switchboard/internal/server/servertest"
)

// repetitions is how often a race is run: a few times in every test run, more
// where SWITCHBOARD_TEST_REPETITIONS says so.
func repetitions(t *testing.T, few int) int {
	t.Helper()
	if text := os.Getenv("SWITCHBOARD_TEST_REPETITIONS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	return few
}

// replicas adds processes to the instance and returns the URLs under which each
// can be reached; Host stays the instance's name, as behind a balancer.
func replicas(t *testing.T, w *servertest.Instance, more int) []string {
	t.Helper()
	urls := []string{w.URL}
	for range more {
		address, _ := w.Replica(t)
		urls = append(urls, "http://"+address)
	}
	return urls
}

// through returns a client whose connections go to the replica at url.
func through(url string) *http.Client {
	addr := strings.TrimPrefix(url, "http://")
	dialer := net.Dialer{Timeout: 10 * time.Second}
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, addr)
	}
	tr.MaxIdleConnsPerHost = 64
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// TestOnceItAnswered_NothingUncommittedTakesEffect: many callers on three
// replicas create todos while the owner ends their authority on one of them.
// What stands in the database when that call has answered is what stands there
// for ever.
func TestOnceItAnswered_NothingUncommittedTakesEffect(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	bob.Must(http.MethodPatch, "/v1/personas/"+h.PersonaID, map[string]any{
		"offers": []any{map[string]any{"queue": h.Queue, "verbs": scope.Verbs(), "limits": map[string]any{"max_open": 1_000_000, "per_hour": 1_000_000}}},
	}, nil)
	f := ask(t, w, "alice", h, scope.Asked{})
	bob.Post("/v1/friend-requests/"+f.request.ID+"/approve", map[string]any{}, nil)
	f.approved(t)
	token, err := f.endpoint.Token(t.Context())
	require.NoError(t, err)
	urls := replicas(t, w, 2)
	db := pgtest.Open(t, w.Database)
	grant := "/v1/grants/" + f.request.Grant.ID

	// vended is another endpoint of bob's own each time, for what cannot be undone.
	type vended struct{ ID, URL, Credential string }
	vend := func() (e vended) {
		bob.Post("/v1/endpoints", map[string]any{"kind": "home", "agent_id": h.AgentID, "persona_id": h.PersonaID, "queues": []string{h.Queue}}, &e)
		return e
	}
	once := func(t *testing.T, url, bearer string, end func()) {
		t.Helper()
		burst := startBurst(t, urls, url, bearer, h.Queue)
		burst.awaitSome(t)
		end()
		then := countTodos(t, db, h.Queue)
		burst.stop(t)
		require.Equal(t, then, countTodos(t, db, h.Queue), "calls took effect after it had answered")
	}
	// One after the other: they count the same queue's todos.
	t.Run("pause", func(t *testing.T) {
		for range repetitions(t, 4) {
			once(t, f.endpoint.URL(), token, func() { bob.Post(grant+"/pause", map[string]any{}, nil) })
			bob.Post(grant+"/resume", map[string]any{}, nil)
		}
	})
	t.Run("narrow", func(t *testing.T) {
		for range repetitions(t, 4) {
			e := vend()
			once(t, e.URL, e.Credential, func() {
				bob.Post("/v1/endpoints/"+e.ID+"/narrow", map[string]any{"verbs": []string{"claim_next", "complete"}}, nil)
			})
		}
		narrowed := map[string]any{"scope": map[string]any{"queues": []string{h.Queue}, "verbs": []scope.Verb{scope.TodoStatus}}}
		once(t, f.endpoint.URL(), token, func() { bob.Post(grant+"/narrow", narrowed, nil) })
	})
	t.Run("revoke", func(t *testing.T) {
		for range repetitions(t, 4) {
			e := vend()
			once(t, e.URL, e.Credential, func() { bob.Post("/v1/endpoints/"+e.ID+"/revoke", map[string]any{}, nil) })
		}
	})
	// Nobody answers for an expiry: what begins after the database's clock has
	// passed it takes no effect. Its moment is brought near by hand, and all
	// replicas remember their callers until then.
	t.Run("expiry", func(t *testing.T) {
		for range repetitions(t, 4) {
			e := vend()
			burst := startBurst(t, urls, e.URL, e.Credential, h.Queue)
			burst.awaitSome(t)
			var at time.Time
			require.NoError(t, db.QueryRow(t.Context(), `
				UPDATE endpoint SET expires_at = clock_timestamp() + interval '300 milliseconds', version = version + 1 WHERE id = $1 RETURNING expires_at`, e.ID).Scan(&at))
			require.Eventually(t, func() bool {
				var over bool
				err := db.QueryRow(t.Context(), `SELECT clock_timestamp() >= $1`, at).Scan(&over)
				return err == nil && over
			}, 10*time.Second, time.Millisecond)
			burst.late.Store(true)
			burst.stop(t)
			require.Zero(t, burst.lateMade.Load(), "calls that began after the expiry took effect")
		}
	})
}

func countTodos(t *testing.T, db *pgxpool.Pool, queue string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM todo WHERE queue = $1`, queue).Scan(&n))
	return n
}

// burst is many callers that create todos until they are refused or stopped.
type burst struct {
	tool          string
	made, refused atomic.Int64
	late          atomic.Bool  // set once authority is known to have ended
	lateMade      atomic.Int64 // calls that began after that and took effect all the same
	done          chan struct{}
	group         sync.WaitGroup
}

func startBurst(t *testing.T, urls []string, endpoint, bearer, queue string) *burst {
	t.Helper()
	b := &burst{tool: "create_for", done: make(chan struct{})}
	if strings.HasPrefix(bearer, "sbe_") {
		b.tool = "create"
	}
	tool := b.tool
	for n := range 64 {
		client := through(urls[n%len(urls)])
		b.group.Go(func() {
			for {
				select {
				case <-b.done:
					return
				default:
				}
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"queue":%q,"title":"x","idempotency_key":%q}}}`, tool, queue, uuid.NewString())
				r, err := http.NewRequest(http.MethodPost, endpoint, strings.NewReader(body))
				if err != nil {
					return
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				r.Header.Set("MCP-Protocol-Version", "2025-11-25")
				r.Header.Set("Authorization", "Bearer "+bearer)
				late := b.late.Load()
				resp, err := client.Do(r)
				if err != nil {
					return
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				switch {
				case err != nil:
					return
				case !bytes.Contains(text, []byte(`"structuredContent":{"todo_id"`)):
					b.refused.Add(1)
				case late:
					b.lateMade.Add(1)
				default:
					b.made.Add(1)
				}
			}
		})
	}
	return b
}

// awaitSome returns when the burst is on its way.
func (b *burst) awaitSome(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return b.made.Load() > 100 }, 30*time.Second, time.Millisecond)
}

// stop ends the burst, once it has met its end.
func (b *burst) stop(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return b.refused.Load() > 0 }, 10*time.Second, time.Millisecond, "the callers noticed nothing")
	close(b.done)
	b.group.Wait()
}
