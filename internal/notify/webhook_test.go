package notify_test

import (
	"net/http"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"switchboard/internal/human"
	"switchboard/internal/notify"
)

func TestAFailingWebhookIsTriedAgainAndNothingSecretIsKept(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	secret, err := i.store.RotateSecret(t.Context(), i.bob.ID)
	require.NoError(t, err)
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications.Email = false })
	i.hook.answers(func(n int) int {
		if n < 3 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	run(t, i.store)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	calls := i.hook.received()
	require.Len(t, calls, 3)
	require.Equal(t, calls[0].Header.Get("webhook-id"), calls[2].Header.Get("webhook-id"))

	jobs := i.text(t, `SELECT json_agg(j)::text FROM river_job j`)
	require.Contains(t, jobs, "the webhook answered 500")
	for _, secret := range []string{secret, strings.TrimPrefix(secret, "whsec_"), "token-in-the-path", "alice", "bob@", "billing"} {
		require.NotContains(t, jobs, secret)
		require.NotContains(t, i.text(t, `SELECT json_agg(c)::text || (SELECT json_agg(n)::text FROM notification n) FROM notification_channel c`), secret)
	}
	status, err := i.store.Status(t.Context(), i.bob.ID)
	require.NoError(t, err)
	require.True(t, status[1].On)
	require.True(t, status[1].HasSecret)
	require.Zero(t, status[1].Failures)
	require.Empty(t, status[1].LastError)
	require.False(t, status[1].LastSuccess.IsZero())
	require.False(t, status[1].LastFailure.IsZero())
}

func TestAnUnreachableWebhookLeaksNeitherURLNorAddress(t *testing.T) {
	t.Parallel()
	i := newInstance(t, func(o *notify.Options) { o.Dev = false })
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications.Webhook = "https://127.0.0.1:9/token-in-the-path" })
	run(t, i.store)
	require.NoError(t, i.store.SendTest(t.Context(), i.bob.ID))
	i.settled(t)
	jobs := i.text(t, `SELECT json_agg(j)::text FROM river_job j`)
	require.Contains(t, jobs, "not a public one")
	require.NotContains(t, jobs, "token-in-the-path")
	require.NotContains(t, jobs, "127.0.0.1")
}

func TestAWebhookThatKeepsFailingIsSwitchedOffUntilATestSucceeds(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.hook.answers(func(int) int { return http.StatusBadGateway })
	run(t, i.store)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.hook.received(), 9, "given up")
	require.Equal(t, 1, i.count(t, `SELECT count(*) FROM notification_delivery WHERE channel = 'webhook' AND outcome = 'failed'`))
	require.Zero(t, i.count(t, `SELECT count(*) FROM notification_channel WHERE disabled_at IS NOT NULL`), "it has not failed for long")

	i.exec(t, `UPDATE notification_channel SET failing_since = failing_since - interval '25 hours' WHERE channel = 'webhook'`)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	status, err := i.store.Status(t.Context(), i.bob.ID)
	require.NoError(t, err)
	require.False(t, status[1].On)
	require.Equal(t, "the webhook answered 502", status[1].LastError)
	require.Equal(t, 1, i.count(t, `SELECT count(*) FROM activity WHERE kind = 'webhook.disabled' AND owner = $1`, i.bob.ID))
	mails := i.sink.received()
	require.Contains(t, header(mails[len(mails)-1]), "Your webhook is switched off")

	calls := len(i.hook.received())
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.hook.received(), calls, "nothing is sent there")

	i.hook.answers(func(int) int { return http.StatusOK })
	require.NoError(t, i.store.SendTest(t.Context(), i.bob.ID))
	i.settled(t)
	require.Len(t, i.hook.received(), calls+1)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.hook.received(), calls+2)

	// 410 asks to be left alone at once; another URL is another webhook.
	i.hook.answers(func(int) int { return http.StatusGone })
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.hook.received(), calls+3)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.hook.received(), calls+3)
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications.Webhook += "/new" })
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.hook.received(), calls+4)
}

func TestRotatingTheSecretKeepsTheOldOneForADay(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	run(t, i.store)
	require.NoError(t, i.store.SendTest(t.Context(), i.bob.ID))
	i.settled(t)
	require.NotEmpty(t, i.hook.received()[0].Header.Get("webhook-signature"), "signed before anybody asked for a secret")
	old, err := i.store.RotateSecret(t.Context(), i.bob.ID)
	require.NoError(t, err)
	fresh, err := i.store.RotateSecret(t.Context(), i.bob.ID)
	require.NoError(t, err)
	require.NotEqual(t, old, fresh)
	check := func(secret string) error {
		require.NoError(t, i.store.SendTest(t.Context(), i.bob.ID))
		i.settled(t)
		calls := i.hook.received()
		w, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		return w.Verify(calls[len(calls)-1].Body, calls[len(calls)-1].Header)
	}
	require.NoError(t, check(old))
	require.NoError(t, check(fresh))
	i.exec(t, `UPDATE notification_channel SET secret_before_until = now()`)
	require.Error(t, check(old))
	require.NoError(t, check(fresh))
}
