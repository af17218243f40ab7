package server

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/scope"
)

func TestAPersonaWithFriendsIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.signIn(t, "bob")
	h := bob.publish("reviewer")
	var endpoints struct{ Items []struct{ ID string } }
	bob.get("/v1/endpoints", &endpoints)
	for _, e := range endpoints.Items {
		bob.post("/v1/endpoints/"+e.ID+"/revoke", map[string]any{}, nil)
	}
	refused := func(why string) {
		t.Helper()
		r := bob.do(http.MethodDelete, "/v1/personas/"+h.personaID, nil)
		require.Equal(t, http.StatusConflict, r.status, r.body)
		require.Contains(t, r.body, why)
	}
	f := w.ask(t, "alice", h, scope.Asked{})
	refused("friend requests to decide")
	bob.post("/v1/friend-requests/"+f.request.ID+"/approve", map[string]any{}, nil)
	f.approved(t)
	refused("it still has live")
	bob.post("/v1/grants/"+f.request.Grant.ID+"/revoke", map[string]any{}, nil)
	bob.must(http.MethodDelete, "/v1/personas/"+h.personaID, nil, nil)
}
