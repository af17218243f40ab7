package provenance_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/provenance"
)

func TestTheGuardedClientDialsPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "::", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "fe80::1", "fd00:ec2::254",
		"fc00::1", "100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "::ffff:127.0.0.1",
		"::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "2001::1", "::127.0.0.1", "fec0::1", "203.0.113.1", "2001:db8::1",
	} {
		host := address
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		require.ErrorIs(t, provenance.CheckAddress(host+":443", false), provenance.ErrAddress, address)
	}
	for _, address := range []string{"8.8.8.8:443", "[2606:4700:4700::1111]:443", "172.32.0.1:443", "[::ffff:8.8.8.8]:443"} {
		require.NoError(t, provenance.CheckAddress(address, false), address)
	}
	require.NoError(t, provenance.CheckAddress("127.0.0.1:80", true))
	require.NoError(t, provenance.CheckAddress("[::1]:80", true))
	require.Error(t, provenance.CheckAddress("10.0.0.1:80", true), "dev opens loopback and nothing else")
	require.Error(t, provenance.CheckAddress("localhost:80", true), "a name is no address")
}

func TestTheGuardedClientBoundsAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/exact", http.StatusFound)
		case "/exact":
			_, _ = io.WriteString(w, strings.Repeat("x", provenance.MaxFetch))
		case "/more":
			_, _ = io.WriteString(w, strings.Repeat("x", provenance.MaxFetch+1))
		}
	}))
	t.Cleanup(server.Close)
	dev := provenance.GuardedClient(true)
	get := func(c *http.Client, url string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := c.Do(r)
		if err != nil {
			return 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		return len(b), err
	}
	n, err := get(dev, server.URL+"/exact")
	require.NoError(t, err)
	require.Equal(t, provenance.MaxFetch, n)
	_, err = get(dev, server.URL+"/more")
	require.ErrorIs(t, err, provenance.ErrTooLarge)
	_, err = get(dev, server.URL+"/redirect")
	require.ErrorIs(t, err, provenance.ErrRedirect)
	_, err = get(dev, "http://bob.example/")
	require.ErrorIs(t, err, provenance.ErrScheme, "http is for loopback in dev only")

	strict := provenance.GuardedClient(false)
	_, err = get(strict, server.URL+"/exact")
	require.ErrorIs(t, err, provenance.ErrScheme)
	_, err = get(strict, "https://localhost:1/")
	require.ErrorIs(t, err, provenance.ErrAddress, "the address counts, whatever its name")
}
