package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/server/servertest"
)

// TestABodyWithTwoReadingsIsRefused: what one reader takes in one way and another
// in another is neither kept nor handed on.
func TestABodyWithTwoReadingsIsRefused(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	bob.Must(http.MethodPost, "/v1/queues", map[string]any{"name": "reviews"}, nil)
	for path, bodies := range map[string][]string{
		"/v1/agents": {
			`{"name":"a","name":"b"}`, `{"Name":"a"}`, `{"name":"a","Name":"b"}`, `{"name":"\ud800"}`, "{\"name\":\"\xff\"}", `{"name":"a"}{"name":"b"}`, `{"name":"a\u0000"}`,
		},
		"/v1/todos": {
			`{"queue":"reviews","title":"t","payload":{"a":1,"a":2}}`, `{"queue":"reviews","title":"t","payload":{"a":"\udc00"}}`, `{"queue":"reviews","title":"t","Payload":1}`,
		},
	} {
		for _, body := range bodies {
			refused(t, http.StatusUnprocessableEntity, "invalid_argument", bob.Do(http.MethodPost, path, body), body)
		}
	}
	var todos list
	bob.Must(http.MethodGet, "/v1/todos", nil, &todos)
	require.Empty(t, todos.Items)
	refused(t, http.StatusNotFound, "not_found", bob.Do(http.MethodPost, "/v1/todos", `{"queue":"re\u0000views","title":"t"}`))
}

// TestNoBytesInAQueryAreAFaultOfOurs: PostgreSQL's text has no U+0000 and is UTF-8.
func TestNoBytesInAQueryAreAFaultOfOurs(t *testing.T) {
	t.Parallel()
	i := servertest.Start(t)
	bob := i.SignIn(t, "bob")
	for _, path := range []string{
		"/v1/todos?queue=", "/v1/todos?state=", "/v1/todos?grant_id=", "/v1/todos?cursor=", "/v1/activity?kind=", "/v1/activity?object_id=", "/v1/directory?q=",
		"/v1/friend-requests?state=", "/v1/friend-requests/", "/v1/grants/", "/v1/queues/", "/v1/a2a/", "/queues/", "/todos/", "/friends/", "/activity?kind=", "/a2a/", "/login?issuer=",
	} {
		for _, bytes := range []string{"%00", "%ff", "%ed%a0%80"} {
			r := bob.Do(http.MethodGet, path+bytes, nil, "Accept", "application/json")
			require.Less(t, r.Status, 500, path+bytes)
		}
	}
}
