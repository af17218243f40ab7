package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/scope"
	"switchboard/internal/server"
	"switchboard/internal/server/servertest"
)

// TestErase_TakesOnesOwnAndLeavesOthers: bob gave alice a grant, holds one of
// carol's, and erases his account. Alice sees what a revoked friend sees; nothing of
// carol's is gone; nothing in any table is bob's or says who he was.
func TestErase_TakesOnesOwnAndLeavesOthers(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob, carol := w.SignIn(t, "bob"), w.SignIn(t, "carol")
	hb, hc := bob.Publish("reviewer"), carol.Publish("builder")
	given := ask(t, w, "alice", hb, scope.Asked{Queues: []string{hb.Queue}})
	bob.Post("/v1/friend-requests/"+given.request.ID+"/approve", map[string]any{"note": "bobs-own-words"}, nil)
	given.approved(t)
	held := ask(t, w, "bob", hc, scope.Asked{Queues: []string{hc.Queue}})
	carol.Post("/v1/friend-requests/"+held.request.ID+"/approve", map[string]any{"note": "carols-own-words"}, nil)
	held.approved(t)
	kept := ask(t, w, "alice", hc, scope.Asked{Queues: []string{hc.Queue}})
	carol.Post("/v1/friend-requests/"+kept.request.ID+"/approve", map[string]any{}, nil)
	kept.approved(t)
	pending := ask(t, w, "carol", hb, scope.Asked{Queues: []string{hb.Queue}})
	given.call(t, "create_for", map[string]any{"queue": hb.Queue, "title": "alices-todo-at-bobs", "idempotency_key": "1"}, nil)
	held.call(t, "create_for", map[string]any{"queue": hc.Queue, "title": "at-carols", "idempotency_key": "1"}, nil)
	var todo struct {
		TodoID string `json:"todo_id"`
	}
	kept.call(t, "create_for", map[string]any{"queue": hc.Queue, "title": "kept-at-carols", "idempotency_key": "1"}, &todo)
	bob.Post("/v1/todos", map[string]any{"queue": hb.Queue, "title": "bobs-todo", "idempotency_key": "x"}, nil)

	// Another grant, revoked the ordinary way, is what an erased one has to look like.
	revoked := ask(t, w, "carol", hc, scope.Asked{Queues: []string{hc.Queue}})
	carol.Post("/v1/friend-requests/"+revoked.request.ID+"/approve", map[string]any{}, nil)
	revoked.approved(t)
	revoked.call(t, "whoami", nil, nil)
	carol.Post("/v1/grants/"+revoked.request.Grant.ID+"/revoke", map[string]any{}, nil)
	_, like := revoked.endpoint.Call(t.Context(), "whoami", nil)
	require.Error(t, like)

	var me struct{ ID string }
	bob.Get("/v1/me", &me)
	answer := erase(t, w, bob)
	require.Contains(t, answer.Body, "Your account is erased")
	require.Equal(t, http.StatusUnauthorized, bob.Do(http.MethodGet, "/v1/me", nil).Status)

	// For friends and strangers.
	var agent struct{ ID string }
	carol.Post("/v1/agents", map[string]any{"name": "spare"}, &agent)
	_, err := given.endpoint.Call(t.Context(), "whoami", nil)
	require.Error(t, err)
	require.Equal(t, strings.ReplaceAll(like.Error(), revoked.endpoint.URL(), ""), strings.ReplaceAll(err.Error(), given.endpoint.URL(), ""), "as if it had been revoked")
	require.Equal(t, http.StatusUnauthorized, work(t, w, hb, "claim_next", map[string]any{}, nil).Status)
	require.Equal(t, http.StatusNotFound, w.Stranger(t, "").Do(http.MethodGet, "/a2a/reviewer/.well-known/agent-card.json", nil).Status)
	require.Equal(t, http.StatusConflict, carol.Do(http.MethodPost, "/v1/personas", map[string]any{"agent_id": agent.ID, "slug": "reviewer", "name": "x", "queues": []string{}, "offers": []any{}}).Status,
		"nobody else gets the slug")

	// Carol's own is all there.
	var claimed struct {
		Todos []struct {
			TodoID string `json:"todo_id"`
		}
	}
	work(t, w, hc, "claim_next", map[string]any{"queues": []string{hc.Queue}}, &claimed)
	require.Equal(t, todo.TodoID, claimed.Todos[0].TodoID, "what bob left open was cancelled, what alice did was not")
	kept.call(t, "todo_status", map[string]any{"todo_id": todo.TodoID}, nil)
	require.Contains(t, carol.Do(http.MethodGet, "/v1/friend-requests/"+held.request.ID, nil).Body, "carols-own-words")

	// In the database nothing is bob's but the chain of what happened, and nothing says who he was.
	pool := pgtest.Open(t, w.Database)
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
	require.NoError(t, server.VerifyActivity(t.Context(), w.Config, nil, io.Discard), "the record is whole")

	// The same person may come again, as somebody new.
	var again struct{ ID string }
	w.SignIn(t, "bob").Get("/v1/me", &again)
	require.NotEqual(t, me.ID, again.ID)
}

// erase presses the button of the page that erases somebody's account.
func erase(t *testing.T, w *servertest.Instance, who *servertest.Person) servertest.Reply {
	t.Helper()
	return erasing(t, w, who)()
}

// erasing opens the page; what it returns presses the button.
func erasing(t *testing.T, w *servertest.Instance, who *servertest.Person) func() servertest.Reply {
	t.Helper()
	csrf := csrfField.FindStringSubmatch(who.Do(http.MethodGet, "/settings/erase", nil).Body)
	require.NotNil(t, csrf)
	form := url.Values{"csrf": {csrf[1]}, "phrase": {"erase my account"}}
	return func() servertest.Reply {
		return who.Do(http.MethodPost, "/settings/erase", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Origin", w.URL)
	}
}

// TestErase_LeavesNothingThatIsJustBeingMade: in another tab, bob makes an agent while
// his account is being erased; a program of his has a code, and redeems it afterwards.
func TestErase_LeavesNothingThatIsJustBeingMade(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	bob.Publish("reviewer")
	program := newProgramSignIn()
	code := program.allow(t, bob).Get("code")
	var me struct{ ID string }
	bob.Get("/v1/me", &me)
	pool := pgtest.Open(t, w.Database)
	held, err := pool.Begin(t.Context()) // the erasure waits for this on its way
	require.NoError(t, err)
	defer held.Rollback(context.WithoutCancel(t.Context()))
	_, err = held.Exec(t.Context(), `SELECT FROM agent WHERE owner = $1 FOR UPDATE`, me.ID)
	require.NoError(t, err)
	waiting := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			var waiting int
			err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
			return err == nil && waiting == n
		}, 20*time.Second, 5*time.Millisecond)
	}
	erased, made := make(chan servertest.Reply, 1), make(chan servertest.Reply, 1)
	press := erasing(t, w, bob)
	go func() { erased <- press() }()
	waiting(1)
	go func() { made <- bob.Do(http.MethodPost, "/v1/agents", map[string]any{"name": "late"}) }()
	waiting(2)
	require.NoError(t, held.Rollback(t.Context()))
	require.Contains(t, (<-erased).Body, "Your account is erased")
	require.Equal(t, http.StatusNotFound, (<-made).Status)
	var agents int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM agent WHERE owner = $1`, me.ID).Scan(&agents))
	require.Zero(t, agents)
	r := redeem(w, t, code, program.verifier, programRedirect)
	require.Equal(t, http.StatusUnprocessableEntity, r.Status, r.Body)
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
