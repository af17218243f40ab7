package server_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/scope"
	"switchboard/internal/server/servertest"
)

func TestAPersonaWithFriendsIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := servertest.Start(t)
	bob := w.SignIn(t, "bob")
	h := bob.Publish("reviewer")
	var endpoints struct{ Items []struct{ ID string } }
	bob.Get("/v1/endpoints", &endpoints)
	for _, e := range endpoints.Items {
		bob.Post("/v1/endpoints/"+e.ID+"/revoke", map[string]any{}, nil)
	}
	refused := func(why string) {
		t.Helper()
		r := bob.Do(http.MethodDelete, "/v1/personas/"+h.PersonaID, nil)
		require.Equal(t, http.StatusConflict, r.Status, r.Body)
		require.Contains(t, r.Body, why)
	}
	f := ask(t, w, "alice", h, scope.Asked{})
	refused("friend requests to decide")
	bob.Post("/v1/friend-requests/"+f.request.ID+"/approve", map[string]any{}, nil)
	f.approved(t)
	refused("it still has live")
	bob.Post("/v1/grants/"+f.request.Grant.ID+"/revoke", map[string]any{}, nil)
	bob.Must(http.MethodDelete, "/v1/personas/"+h.PersonaID, nil, nil)
}
