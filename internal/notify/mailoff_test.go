package notify_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/human"
	"switchboard/internal/notify"
)

// TestAMailsOwnLinkSwitchesMailOff, for whom and where it was sent, and nothing else does.
func TestAMailsOwnLinkSwitchesMailOff(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	run(t, i.store)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	mails := i.sink.received()
	require.Len(t, mails, 1)
	head, plain, html := parts(t, mails[0])
	link, err := url.Parse(strings.Trim(head.Get("List-Unsubscribe"), "<>"))
	require.NoError(t, err)
	of := link.Query().Get("of")
	for _, text := range []string{plain, html} {
		require.NotContains(t, text, of, "a link that decides is for mail programs, not for what a mail says")
	}
	on := func() bool {
		h, err := i.people.Get(t.Context(), i.bob.ID)
		require.NoError(t, err)
		return h.Notifications.Email
	}
	sealed, err := base64.RawURLEncoding.DecodeString(of)
	require.NoError(t, err)
	elsewhere, err := i.options.Sealer.Seal(append(i.bob.ID[:], make([]byte, 32)...), "webhook")
	require.NoError(t, err)
	changed := append([]byte{}, sealed...)
	changed[len(changed)-1] ^= 1
	for _, other := range []string{"", "x", "%", of + "=", of[:40], base64.RawURLEncoding.EncodeToString(changed), base64.RawURLEncoding.EncodeToString(elsewhere)} {
		require.NoError(t, i.store.MailOff(t.Context(), other), other)
	}
	require.True(t, on())
	i.people.change(i.bob.ID, func(h *human.Human) { h.Email = "bob@elsewhere.example" })
	require.NoError(t, i.store.MailOff(t.Context(), of))
	require.True(t, on(), "another address was never asked")
	i.people.change(i.bob.ID, func(h *human.Human) { h.Email = i.bob.Email })
	for range 2 {
		require.NoError(t, i.store.MailOff(t.Context(), of))
		require.False(t, on())
	}
	i.people.change(i.bob.ID, func(h *human.Human) { h.ID = newID(t) })
	require.NoError(t, i.store.MailOff(t.Context(), of), "an account that is erased")
}

// TestNoOneClickWithoutHTTPS: the standard has none, and a reader is shown the setting.
func TestNoOneClickWithoutHTTPS(t *testing.T) {
	t.Parallel()
	i := newInstance(t, func(o *notify.Options) { o.PublicURL = "http://127.0.0.1:8080" })
	run(t, i.store)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	head, _, _ := parts(t, i.sink.received()[0])
	require.Equal(t, "<http://127.0.0.1:8080/settings#h-notify>", head.Get("List-Unsubscribe"))
	require.Empty(t, head.Get("List-Unsubscribe-Post"))
}
