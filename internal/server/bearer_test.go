package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
)

// What says two things is refused before anything is asked of the database, as
// at an endpoint (RFC 9449 §4.3): nobody in between can have read the other one.
func TestATokenIsSaidOnce(t *testing.T) {
	t.Parallel()
	authenticate := requesterOf(nil, "https://todo.example")
	token := "sbt_" + strings.Repeat("a", 43)
	for name, h := range map[string]http.Header{
		"none":           {},
		"another scheme": {"Authorization": {"Basic YTpi"}},
		"two tokens":     {"Authorization": {"Bearer " + token, "Bearer sbt_b"}},
		"no proof":       {"Authorization": {"DPoP " + token}},
		"two proofs":     {"Authorization": {"DPoP " + token}, "Dpop": {"a", "b"}},
	} {
		r := httptest.NewRequest(http.MethodPost, "https://todo.example/a2a/reviewer", nil)
		r.Header = h
		_, err := authenticate(r, "reviewer")
		require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err), name)
	}
}
