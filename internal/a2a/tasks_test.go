package a2a_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

func (b *bundle) decide(id, verb string, body any) {
	b.t.Helper()
	b.bob.Post("/v1/friend-requests/"+id+"/"+verb, body, nil)
}

// TestATaskIsItsRequest: each decision is a state, terminal ones never change,
// and only who asked sees it.
func TestATaskIsItsRequest(t *testing.T) {
	t.Parallel()
	versions(t, func(t *testing.T, v servertest.A2A, b *bundle) {
		alice, carol := b.i.Agent(t, "alice"), b.i.Agent(t, "carol")
		first := alice.Ask(t, v, b.home)
		theirs := carol.Ask(t, v, b.home)
		bearer := alice.Token(t, b.resource())
		get := func(id string) servertest.Answer { return b.call(bearer, v.Get, map[string]any{"id": id}) }
		require.Equal(t, first, get(first.ID).Task)

		// A stranger's task, an unknown one and no id at all: the same bytes.
		unknown := uuid.Must(uuid.NewV7()).String()
		for _, method := range []string{v.Get, v.Cancel, v.Subscribe} {
			var bodies []string
			for _, id := range []string{theirs.ID, unknown, "not-an-id", strings.Repeat("x", 36)} {
				r := b.call(bearer, method, map[string]any{"id": id})
				b.refused(method+" "+id, noTask, r)
				bodies = append(bodies, r.Body)
			}
			require.Len(t, slices.Compact(bodies), 1)
			b.refused("no id", badParams, b.call(bearer, method, map[string]any{}))
		}
		b.refused("a negative history", badParams, b.call(bearer, v.Get, map[string]any{"id": first.ID, "historyLength": -1}))
		require.Nil(t, b.call(bearer, v.Get, map[string]any{"id": first.ID, "historyLength": 5}).Error)
		other := b.bob.Publish("triager")
		elsewhere := v.Call(t, b.i, other.Slug, bearer, v.Get, map[string]any{"id": first.ID})
		require.Equal(t, http.StatusUnauthorized, elsewhere.Status, "a token is for one persona")

		// Declined, with the human's note.
		b.decide(first.ID, "decline", map[string]any{"note": "Not now.", "may_ask_again": true})
		declined := get(first.ID).Task
		require.Equal(t, v.Rejected, declined.Status.State)
		require.Equal(t, "Not now.", declined.Status.Message.Parts[0].Text)
		b.refused("cancel what was declined", notCancel, b.call(bearer, v.Cancel, map[string]any{"id": first.ID}))
		b.refused("follow what was declined", unsupported, b.call(bearer, v.Subscribe, map[string]any{"id": first.ID}))
		require.Equal(t, declined, get(first.ID).Task)

		// Canceled by who asked.
		second := alice.Ask(t, v, b.home)
		gone := b.call(bearer, v.Cancel, map[string]any{"id": second.ID})
		require.Equal(t, v.Canceled, gone.Task.Status.State, gone.Body)
		b.refused("cancel twice", notCancel, b.call(bearer, v.Cancel, map[string]any{"id": second.ID}))

		// Approved: the artifact, once and for ever.
		third := alice.Ask(t, v, b.home)
		b.decide(third.ID, "approve", map[string]any{"note": "Welcome."})
		r := get(third.ID)
		require.Equal(t, v.Completed, r.Task.Status.State)
		require.Len(t, r.Task.Artifacts, 1)
		require.Equal(t, "grant", r.Task.Artifacts[0].ArtifactID)
		require.Len(t, r.Task.Artifacts[0].Parts, 1)
		var grant map[string]any
		require.NoError(t, json.Unmarshal(r.Task.Artifacts[0].Parts[0].Data, &grant))
		members := []string{"mcp_endpoint", "resource_metadata", "authorization_server", "granted_scope", "grant_id", "expires_at"}
		for _, m := range members {
			require.NotEmpty(t, grant[m], m)
		}
		require.Len(t, grant, len(members))
		_, err := time.Parse(time.RFC3339, grant["expires_at"].(string))
		require.NoError(t, err)
		for _, secret := range []string{"sbt_", "sbe_", "sbr_", "sba_", "id_token"} {
			require.NotContains(t, r.Body, secret)
		}
		b.refused("cancel what was approved", notCancel, b.call(bearer, v.Cancel, map[string]any{"id": third.ID}))
		b.bob.Post("/v1/grants/"+grant["grant_id"].(string)+"/revoke", map[string]any{}, nil)
		after := get(third.ID)
		require.Equal(t, r.Body, after.Body, "a later revocation does not show in the task")

		b.list(alice, bearer, []string{third.ID, second.ID, first.ID})
	})
}

// list checks pages, order and filters of three requests: the newest approved,
// then one canceled, then one declined.
func (b *bundle) list(alice *servertest.Agent, bearer string, ids []string) {
	t, v := b.t, b.v
	t.Helper()
	type page struct {
		Tasks         []servertest.Task
		TotalSize     *int
		PageSize      *int
		NextPageToken *string
	}
	list := func(params map[string]any) (page, []string) {
		r := b.call(bearer, v.List, params)
		require.Nil(t, r.Error, r.Body)
		var p page
		require.NoError(t, json.Unmarshal(r.Result, &p))
		require.NotNil(t, p.Tasks, r.Body)
		require.NotNil(t, p.TotalSize, r.Body)
		require.NotNil(t, p.PageSize, r.Body)
		require.NotNil(t, p.NextPageToken, r.Body)
		got := []string{}
		for _, task := range p.Tasks {
			got = append(got, task.ID)
			require.Equal(t, map[string]string{"0.3": "task"}[v.Version], task.Kind)
		}
		return p, got
	}
	p, got := list(map[string]any{})
	require.Equal(t, ids, got, "newest first, and nobody else's")
	require.Equal(t, 3, *p.TotalSize)
	require.Equal(t, 50, *p.PageSize)
	require.Empty(t, *p.NextPageToken)
	require.Empty(t, p.Tasks[0].Artifacts, "artifacts on demand")
	p, _ = list(map[string]any{"includeArtifacts": true})
	require.Len(t, p.Tasks[0].Artifacts, 1)

	// Pages.
	var paged []string
	token := ""
	for range 3 {
		params := map[string]any{"pageSize": 1}
		if token != "" {
			params["pageToken"] = token
		}
		p, got := list(params)
		require.Equal(t, 3, *p.TotalSize)
		require.Equal(t, 1, *p.PageSize)
		paged = append(paged, got...)
		token = *p.NextPageToken
	}
	require.Empty(t, token)
	require.Equal(t, ids, paged)
	p, _ = list(map[string]any{"pageSize": 2})
	for name, params := range map[string]map[string]any{
		"a token of another filter": {"pageToken": *p.NextPageToken, "status": v.Completed},
		"a token that is none":      {"pageToken": "nonsense"},
		"no task a page":            {"pageSize": 0},
		"101 tasks a page":          {"pageSize": 101},
		"a negative history":        {"historyLength": -1},
		"a state that is none":      {"status": "DONE"},
		"a time that is none":       {"statusTimestampAfter": "yesterday"},
	} {
		b.refused(name, badParams, b.call(bearer, v.List, params))
	}
	carol := b.i.Agent(t, "carol")
	carol.Ask(t, v, b.bob.Publish("elsewhere"))
	b.refused("a token of another caller", badParams,
		v.Call(t, b.i, "elsewhere", carol.Token(t, b.i.URL+"/a2a/elsewhere"), v.List, map[string]any{"pageToken": *p.NextPageToken}))

	// Filters.
	for status, want := range map[string][]string{
		v.Completed: {ids[0]}, v.Canceled: {ids[1]}, v.Rejected: {ids[2]}, v.Submitted: {}, v.Working: {},
	} {
		p, got := list(map[string]any{"status": status})
		require.Equal(t, want, got, status)
		require.Equal(t, len(want), *p.TotalSize)
	}
	if v.Version == "1.0" {
		_, got = list(map[string]any{"status": "TASK_STATE_UNSPECIFIED"})
		require.Equal(t, ids, got)
	}
	all, _ := list(map[string]any{})
	middle := all.Tasks[1].Status.Timestamp
	_, got = list(map[string]any{"statusTimestampAfter": middle.Format(time.RFC3339Nano)})
	require.Equal(t, ids[:2], got, "at or after")
	_, got = list(map[string]any{"statusTimestampAfter": middle.Add(time.Microsecond).Format(time.RFC3339Nano)})
	require.Equal(t, ids[:1], got)
	for context, want := range map[string][]string{ids[1]: {ids[1]}, uuid.NewString(): {}, "mine": {}} {
		_, got = list(map[string]any{"contextId": context})
		require.Equal(t, want, got)
	}
	_, got = list(map[string]any{"contextId": ids[1], "status": v.Completed})
	require.Empty(t, got)
}
