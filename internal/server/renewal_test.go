package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
	"switchboard/internal/refusal"
	"switchboard/internal/requester"
	"switchboard/internal/scope"
	"switchboard/internal/server/servertest"
)

// askBy sends a request by a method, and with supersedes as a renewal.
func askBy(t *testing.T, w *servertest.Instance, store *requester.Store, name, method, supersedes string, h servertest.Home) (*friendship, error) {
	t.Helper()
	f := &friendship{q: requester.New(30 * time.Second), store: store}
	card, err := f.q.Find(t.Context(), w.URL+"/a2a/"+h.Slug)
	require.NoError(t, err)
	ask, err := requester.Ask{Card: card, Name: name + "-bot", Reason: "Because.", Method: method, Supersedes: supersedes}.Prepare()
	require.NoError(t, err)
	f.request, err = f.q.Send(t.Context(), store, ask, requester.SignIn{Headless: name})
	return f, err
}

func newStore(t *testing.T) *requester.Store {
	t.Helper()
	store, err := requester.Open(t.TempDir())
	require.NoError(t, err)
	return store
}

func TestRenewal_CarriesTheLineOnWithANewKey(t *testing.T) {
	t.Parallel()
	for _, method := range []string{provenance.MethodOIDCNonce, provenance.MethodSignIn} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := servertest.Start(t)
			bob := w.SignIn(t, "bob")
			h := bob.Publish("reviewer")
			store := newStore(t)
			old, err := askBy(t, w, store, "alice", method, "", h)
			require.NoError(t, err)
			require.Equal(t, requester.Pending, old.request.State)
			bob.Post("/v1/friend-requests/"+old.request.ID+"/approve", map[string]any{}, nil)
			old.approved(t)
			type made struct {
				TodoID       string `json:"todo_id"`
				Deduplicated bool
			}
			var first, again, other made
			work := map[string]any{"queue": h.Queue, "title": "Review PR 7", "idempotency_key": "pr-7"}
			old.call(t, "create_for", work, &first)

			// Somebody else cannot take the line over, whatever they know of it.
			_, err = askBy(t, w, newStore(t), "carol", method, old.request.Grant.ID, h)
			require.Error(t, err)

			renewed, err := askBy(t, w, store, "alice", method, old.request.Grant.ID, h)
			require.NoError(t, err)
			require.NotEqual(t, old.request.Thumbprint(), renewed.request.Thumbprint())
			old.call(t, "todo_status", map[string]any{"todo_id": first.TodoID}, nil) // until it is approved, the old one works
			bob.Post("/v1/friend-requests/"+renewed.request.ID+"/approve", map[string]any{}, nil)
			renewed.approved(t)
			require.NotEqual(t, old.request.Grant.Endpoint, renewed.request.Grant.Endpoint)

			_, err = old.endpoint.Call(t.Context(), "whoami", nil)
			require.Equal(t, refusal.Forbidden, refusal.CodeOf(err), "the old grant ended with the approval")
			renewed.call(t, "create_for", work, &again)
			require.Equal(t, made{first.TodoID, true}, again)
			var listed struct {
				Todos []struct {
					TodoID string `json:"todo_id"`
				}
			}
			renewed.call(t, "list_created", nil, &listed)
			require.Len(t, listed.Todos, 1)
			require.Equal(t, first.TodoID, listed.Todos[0].TodoID)

			// What is kept on the requester's side follows.
			kept, err := store.Find(old.request.Grant.Endpoint)
			require.NoError(t, err)
			require.Equal(t, requester.Ended, kept.State)
			current, err := store.Current(kept)
			require.NoError(t, err)
			require.Equal(t, renewed.request.ID, current.ID)

			// Another agent of the same human has a line of its own.
			fresh := ask(t, w, "alice", h, scope.Asked{})
			bob.Post("/v1/friend-requests/"+fresh.request.ID+"/approve", map[string]any{}, nil)
			fresh.approved(t)
			fresh.call(t, "create_for", work, &other)
			require.NotEqual(t, first.TodoID, other.TodoID)
		})
	}
}

func TestSignIn_ARequestThatNobodySignedIsTakenBack(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	h := w.SignIn(t, "bob").Publish("reviewer")
	store := newStore(t)
	_, err := askBy(t, w, store, "nobody", provenance.MethodSignIn, "", h)
	require.ErrorIs(t, err, requester.ErrSignIn)
	require.ErrorContains(t, err, "did not sign you in")
	kept, err := store.List()
	require.NoError(t, err)
	require.Empty(t, kept, "nor is a key kept")
}
