package server

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/activity"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/scope"
)

// TestErase_TakesOnesOwnAndLeavesOthers: bob gave alice a grant, holds one of
// carol's, and erases his account. Alice sees what a revoked friend sees; nothing of
// carol's is gone; nothing in any table is bob's or says who he was.
func TestErase_TakesOnesOwnAndLeavesOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob, carol := w.signIn(t, "bob"), w.signIn(t, "carol")
	hb, hc := bob.publish("reviewer"), carol.publish("builder")
	given := w.ask(t, "alice", hb, scope.Asked{Queues: []string{hb.queue}})
	bob.post("/v1/friend-requests/"+given.request.ID+"/approve", map[string]any{"note": "bobs-own-words"}, nil)
	given.approved(t)
	held := w.ask(t, "bob", hc, scope.Asked{Queues: []string{hc.queue}})
	carol.post("/v1/friend-requests/"+held.request.ID+"/approve", map[string]any{"note": "carols-own-words"}, nil)
	held.approved(t)
	kept := w.ask(t, "alice", hc, scope.Asked{Queues: []string{hc.queue}})
	carol.post("/v1/friend-requests/"+kept.request.ID+"/approve", map[string]any{}, nil)
	kept.approved(t)
	pending := w.ask(t, "carol", hb, scope.Asked{Queues: []string{hb.queue}})
	given.call(t, "create_for", map[string]any{"queue": hb.queue, "title": "alices-todo-at-bobs", "idempotency_key": "1"}, nil)
	held.call(t, "create_for", map[string]any{"queue": hc.queue, "title": "at-carols", "idempotency_key": "1"}, nil)
	var work struct {
		TodoID string `json:"todo_id"`
	}
	kept.call(t, "create_for", map[string]any{"queue": hc.queue, "title": "kept-at-carols", "idempotency_key": "1"}, &work)
	bob.post("/v1/todos", map[string]any{"queue": hb.queue, "title": "bobs-todo", "idempotency_key": "x"}, nil)

	// Another grant, revoked the ordinary way, is what an erased one has to look like.
	revoked := w.ask(t, "carol", hc, scope.Asked{Queues: []string{hc.queue}})
	carol.post("/v1/friend-requests/"+revoked.request.ID+"/approve", map[string]any{}, nil)
	revoked.approved(t)
	revoked.call(t, "whoami", nil, nil)
	carol.post("/v1/grants/"+revoked.request.Grant.ID+"/revoke", map[string]any{}, nil)
	_, like := revoked.endpoint.Call(t.Context(), "whoami", nil)
	require.Error(t, like)

	var me struct{ ID string }
	bob.get("/v1/me", &me)
	page := bob.do(http.MethodGet, "/settings/erase", nil)
	csrf := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(page.body)
	require.NotNil(t, csrf)
	form := url.Values{"csrf": {csrf[1]}, "phrase": {"erase my account"}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/settings/erase", strings.NewReader(form.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", w.url)
	answer, err := bob.http.Do(r)
	require.NoError(t, err)
	var body bytes.Buffer
	_, _ = body.ReadFrom(answer.Body)
	_ = answer.Body.Close()
	require.Contains(t, body.String(), "Your account is erased")
	require.Equal(t, http.StatusUnauthorized, bob.do(http.MethodGet, "/v1/me", nil).status)

	// For friends and strangers.
	var agent struct{ ID string }
	carol.post("/v1/agents", map[string]any{"name": "spare"}, &agent)
	_, err = given.endpoint.Call(t.Context(), "whoami", nil)
	require.Error(t, err)
	require.Equal(t, strings.ReplaceAll(like.Error(), revoked.endpoint.URL(), ""), strings.ReplaceAll(err.Error(), given.endpoint.URL(), ""), "as if it had been revoked")
	require.Equal(t, http.StatusUnauthorized, w.work(t, hb, "claim_next", map[string]any{}, nil).status)
	require.Equal(t, http.StatusNotFound, w.stranger(t).do(http.MethodGet, "/a2a/reviewer/.well-known/agent-card.json", nil).status)
	require.Equal(t, http.StatusConflict, carol.do(http.MethodPost, "/v1/personas", map[string]any{"agent_id": agent.ID, "slug": "reviewer", "name": "x", "queues": []string{}, "offers": []any{}}).status,
		"nobody else gets the slug")

	// Carol's own is all there.
	var claimed struct {
		Todos []struct {
			TodoID string `json:"todo_id"`
		}
	}
	w.work(t, hc, "claim_next", map[string]any{"queues": []string{hc.queue}}, &claimed)
	require.Equal(t, work.TodoID, claimed.Todos[0].TodoID, "what bob left open was cancelled, what alice did was not")
	kept.call(t, "todo_status", map[string]any{"todo_id": work.TodoID}, nil)
	require.Contains(t, carol.do(http.MethodGet, "/v1/friend-requests/"+held.request.ID, nil).body, "carols-own-words")

	// In the database nothing is bob's but the chain of what happened, and nothing says who he was.
	pool := pgtest.Open(t, w.database)
	for _, table := range tables(t, pool) {
		rows, err := pool.Query(t.Context(), fmt.Sprintf(`SELECT to_jsonb(x)::text FROM %s x`, pgx.Identifier{table}.Sanitize()))
		require.NoError(t, err)
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for _, text := range texts {
			for _, gone := range []string{"bob@example.com", "bobs-own-words", "bobs-todo", "alices-todo-at-bobs", "bob-bot"} {
				if table == "todo" && gone != "bobs-todo" && strings.Contains(text, "at-carols") {
					continue // a todo at carol's is carol's
				}
				require.NotContains(t, text, gone, table)
			}
			if strings.Contains(text, me.ID) {
				require.Contains(t, []string{"activity", "activity_seal", "activity_link", "friend_request", "friend_grant", "friend_message", "persona_slug", "notification", "notification_delivery", "river_job"}, table, text)
			}
		}
	}
	var pendingState string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT state FROM friend_request WHERE id = $1`, pending.request.ID).Scan(&pendingState))
	require.Equal(t, "declined", pendingState)
	signer, err := derivedKey(w.config.SealKeys[0], activityHeads)
	require.NoError(t, err)
	report, err := activity.Verify(t.Context(), pool, []ed25519.PublicKey{signer.Public().(ed25519.PublicKey)}, activity.VerifyOptions{})
	require.NoError(t, err)
	require.Empty(t, report.Faults, "the record is whole")

	// The same person may come again, as somebody new.
	var again struct{ ID string }
	w.signIn(t, "bob").get("/v1/me", &again)
	require.NotEqual(t, me.ID, again.ID)
}

func tables(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(names), 30)
	return names
}
