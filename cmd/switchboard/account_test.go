package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATokenGoesOverHTTPSOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://todo.example/":                  "https://todo.example",
		"http://127.0.0.1:8080":                  "http://127.0.0.1:8080",
		"http://[::1]:8080/":                     "http://[::1]:8080",
		"http://localhost:8080":                  "http://localhost:8080",
		"http://todo.example":                    "",
		"http://127.0.0.1.evil.example":          "",
		"http://localhost.evil.example":          "",
		"https://todo.example@evil.example":      "",
		"https://todo.example?":                  "",
		"https://todo.example?next=https://evil": "",
		"file:///etc/passwd":                     "",
		"ms-msdt:/id":                            "",
		"todo.example":                           "",
	} {
		got, err := instanceURL(text)
		require.Equal(t, want, got, "%q", text)
		require.Equal(t, want == "", err != nil, "%q", text)
	}
}

func TestATokenDoesNotFollowRedirects(t *testing.T) {
	t.Parallel()
	reached := ""
	elsewhere := http.NewServeMux()
	server := httptest.NewServer(elsewhere)
	t.Cleanup(server.Close)
	elsewhere.HandleFunc("/v1/me", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	elsewhere.HandleFunc("/elsewhere", func(_ http.ResponseWriter, r *http.Request) { reached = r.Header.Get("Authorization") })
	var me struct{}
	require.Error(t, account{URL: server.URL, Token: "sba_x"}.get(t.Context(), "/v1/me", &me))
	require.Empty(t, reached)
}
