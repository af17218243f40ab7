package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/server/servertest"
)

func TestMain(m *testing.M) {
	servertest.Watch = asDocumented
	pgtest.Main(m)
}

// problem is RFC 9457 with our members.
type problem struct {
	Type, Title, Detail, Code, Field string
	Status                           int
	RequestID                        string `json:"request_id"`
}

// refused requires a problem of this status and code.
func refused(t *testing.T, status int, code string, r servertest.Reply, what ...any) problem {
	t.Helper()
	require.Equal(t, status, r.Status, append(what, r.Body)...)
	require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"), r.Body)
	var p problem
	r.Into(t, &p)
	require.Equal(t, code, p.Code, append(what, r.Body)...)
	require.Equal(t, status, p.Status)
	require.Equal(t, "about:blank", p.Type)
	require.Equal(t, http.StatusText(status), p.Title)
	require.NotEmpty(t, p.Detail)
	require.NotEmpty(t, p.RequestID)
	require.Equal(t, r.Header.Get("X-Request-Id"), p.RequestID)
	return p
}

// list is the shape of every list.
type list struct {
	Items      []map[string]any
	NextCursor *string `json:"next_cursor"`
}

func (l list) ids() (out []string) {
	for _, i := range l.Items {
		out = append(out, i["id"].(string))
	}
	return out
}
