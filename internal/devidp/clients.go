package devidp

import (
	"net"
	"net/url"
	"slices"
)

// The clients registered here; all are public (PKCE instead of a secret).
const (
	// LoginClient is an instance's own client for signing its humans in.
	LoginClient = "switchboard-login"
	// FriendClient is the native client that cards publish for provenance.
	FriendClient = "switchboard-friend"
	// OtherClient is one that no instance accepts for provenance.
	OtherClient = "not-for-provenance"
)

// redirectAllowed reports whether client may have its answer sent to redirect.
// Native clients take any port and path of loopback (RFC 8252 section 7.3).
// The login client does too, unless the options list its redirects.
func (p *Provider) redirectAllowed(client, redirect string) bool {
	if client == LoginClient && len(p.options.LoginRedirects) > 0 {
		return slices.Contains(p.options.LoginRedirects, redirect)
	}
	u, err := url.Parse(redirect)
	if err != nil || u.Scheme != "http" || u.User != nil || u.Fragment != "" {
		return false
	}
	return isLoopback(u.Hostname())
}

func knownClient(id string) bool {
	return id == LoginClient || id == FriendClient || id == OtherClient
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
