package notify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
	"switchboard/internal/human"
)

func TestADigestGathersADay(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications.Digest, h.Notifications.Webhook = "daily", "" })
	run(t, i.store)
	var rs []friend.Request
	for range 3 {
		r := i.request(t)
		rs = append(rs, r)
		i.commit(t, received(r))
	}
	i.settled(t)
	require.Empty(t, i.sink.received())
	require.Equal(t, 1, i.count(t, `SELECT count(*) FROM river_job WHERE kind = 'notification_digest' AND state = 'scheduled'
		AND scheduled_at > now() AND scheduled_at <= now() + interval '24 hours' AND extract(hour FROM scheduled_at AT TIME ZONE 'UTC') = 7`))

	rs[1].State = friend.Withdrawn
	i.friends.set(rs[1])
	due := `UPDATE river_job SET state = 'available', scheduled_at = now(), finalized_at = NULL, attempt = 0 WHERE kind = 'notification_digest'`
	i.exec(t, due)
	i.settled(t)
	mails := i.sink.received()
	require.Len(t, mails, 1)
	require.Contains(t, header(mails[0]), "Subject: 2 notifications from Switchboard")
	_, plain, html := parts(t, mails[0])
	for _, text := range []string{plain, html} {
		require.Contains(t, text, rs[0].ID.String())
		require.NotContains(t, text, rs[1].ID.String(), "it was withdrawn meanwhile")
		require.Contains(t, text, rs[2].ID.String())
	}
	i.exec(t, due) // a repeat finds nothing left
	i.settled(t)
	require.Len(t, i.sink.received(), 1)

	// The day's job has been done: what comes now waits for the day after.
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Equal(t, 1, i.count(t, `SELECT count(*) FROM river_job WHERE kind = 'notification_digest' AND state = 'scheduled'`))
}
