package address_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/address"
)

func TestOneAddressIsHeldBackAndOthersAreNot(t *testing.T) {
	t.Parallel()
	l := address.NewLimit(3)
	mine := netip.MustParseAddr("192.0.2.1")
	for range 3 {
		require.Zero(t, l.Take(mine))
	}
	require.Positive(t, l.Take(mine))
	require.Zero(t, l.Take(netip.MustParseAddr("192.0.2.2")))
}

func TestASubscriberIsOneAddress(t *testing.T) {
	t.Parallel()
	same := func(a, b string) bool {
		return address.Network(netip.MustParseAddr(a)) == address.Network(netip.MustParseAddr(b))
	}
	require.True(t, same("2001:db8:1:1::1", "2001:db8:1:1:ffff::2"))
	require.False(t, same("2001:db8:1:1::1", "2001:db8:1:2::1"))
	require.True(t, same("::ffff:192.0.2.1", "192.0.2.1"))
	require.False(t, same("192.0.2.1", "192.0.2.2"))
}
