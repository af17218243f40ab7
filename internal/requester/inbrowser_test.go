package requester

import (
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A browser on another machine cannot reach our loopback; its human types where
// it ended.
func TestInBrowser_TakesATypedAddress(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{"code=c": nil, "error=access_denied": ErrSaidNo} {
		typed := make(chan string, 3)
		var puzzled atomic.Int32
		code, redirect, err := InBrowser(t.Context(), "https://todo.example",
			func(redirect, state string) string {
				typed <- "yes"
				typed <- redirect + "?" + answer + "&state=another"
				typed <- redirect + "?" + answer + "&iss=" + url.QueryEscape("https://todo.example") + "&state=" + state + "\r"
				return redirect
			},
			func(string) error { return nil }, typed, func() { puzzled.Add(1) })
		require.Equal(t, int32(2), puzzled.Load())
		if want != nil {
			require.ErrorIs(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "c", code)
		require.Contains(t, redirect, "http://127.0.0.1:")
	}
}
