package server

import (
	"context"
	"fmt"
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
func (w *world) replicas(t *testing.T, more int) []string {
	t.Helper()
	urls := []string{w.url}
	for range more {
		l := listen(t)
		urls = append(urls, "http://"+l.Addr().String())
		w.replica(t, l)
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
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	bob.must(http.MethodPatch, "/v1/personas/"+h.personaID, map[string]any{
		"offers": []any{map[string]any{"queue": h.queue, "verbs": scope.Verbs(), "limits": map[string]any{"max_open": 1_000_000, "per_hour": 1_000_000}}},
	}, nil)
	f := w.ask(t, "alice", h, scope.Asked{})
	bob.post("/v1/friend-requests/"+f.request.ID+"/approve", map[string]any{}, nil)
	f.approved(t)
	token, err := f.endpoint.Token(t.Context())
	require.NoError(t, err)
	urls := w.replicas(t, 2)
	db := pgtest.Open(t, w.database)
	grant := "/v1/grants/" + f.request.Grant.ID

	type ending struct {
		name      string
		end, mend func()
	}
	narrowed := map[string]any{"scope": map[string]any{"queues": []string{h.queue}, "verbs": []scope.Verb{scope.TodoStatus}}}
	run := func(e ending, n int) {
		for range n {
			burst := startBurst(t, urls, f.endpoint.URL(), token, h.queue)
			burst.awaitSome(t)
			e.end()
			then := countTodos(t, db, h.queue)
			burst.stop()
			require.Equal(t, then, countTodos(t, db, h.queue), "%s: calls took effect after it had answered", e.name)
			require.Equal(t, then, countTodos(t, db, h.queue))
			if e.mend != nil {
				e.mend()
			}
		}
	}
	run(ending{"pause", func() { bob.post(grant+"/pause", map[string]any{}, nil) }, func() { bob.post(grant+"/resume", map[string]any{}, nil) }}, repetitions(t, 6))
	run(ending{"narrow", func() { bob.post(grant+"/narrow", narrowed, nil) }, nil}, 1)

	// Revoking is for good, so each time it is another endpoint: bob's own.
	for range repetitions(t, 6) {
		var e struct{ ID, URL, Credential string }
		bob.post("/v1/endpoints", map[string]any{"kind": "home", "agent_id": bob.agentOf(h), "persona_id": h.personaID, "queues": []string{h.queue}}, &e)
		burst := startBurst(t, urls, e.URL, e.Credential, h.queue)
		burst.tool = "create"
		burst.awaitSome(t)
		bob.post("/v1/endpoints/"+e.ID+"/revoke", map[string]any{}, nil)
		then := countTodos(t, db, h.queue)
		burst.stop()
		require.Equal(t, then, countTodos(t, db, h.queue), "revoke: calls took effect after it had answered")
	}
}

func (p *person) agentOf(h home) string {
	p.t.Helper()
	var persona struct {
		AgentID string `json:"agent_id"`
	}
	p.get("/v1/personas/"+h.personaID, &persona)
	return persona.AgentID
}

func countTodos(t *testing.T, db *pgxpool.Pool, queue string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM todo WHERE queue = $1`, queue).Scan(&n))
	return n
}

// burst is many callers that create todos until they are refused or stopped.
type burst struct {
	tool  string
	made  atomic.Int64
	done  chan struct{}
	group sync.WaitGroup
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
				resp, err := client.Do(r)
				if err != nil {
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
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

func (b *burst) stop() {
	close(b.done)
	b.group.Wait()
}
