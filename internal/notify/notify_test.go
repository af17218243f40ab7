package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/postgres"
	"switchboard/internal/refusal"
)

func TestARequestReachesItsOwnerByMailAndSignedWebhook(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	secret, err := i.store.RotateSecret(t.Context(), i.bob.ID)
	require.NoError(t, err)
	r := i.request(t)
	run(t, i.store)
	i.commit(t, received(r))
	i.settled(t)

	mails := i.sink.received()
	require.Len(t, mails, 1)
	require.Equal(t, "switchboard@example.com", mails[0].From)
	require.Equal(t, "bob@example.com", mails[0].To)
	head, plain, html := parts(t, mails[0])
	subject, err := new(mime.WordDecoder).DecodeHeader(head.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, "Friend request for review-bot from alice@example.com", subject)
	require.Regexp(t, "^<"+publicURL+`/notifications/off\?of=[A-Za-z0-9_-]+>$`, head.Get("List-Unsubscribe"))
	require.Equal(t, "List-Unsubscribe=One-Click", head.Get("List-Unsubscribe-Post"))
	require.Equal(t, "auto-generated", head.Get("Auto-Submitted"))
	id := i.text(t, `SELECT id::text FROM notification`)
	require.Equal(t, "<"+id+"@switchboard.example>", head.Get("Message-ID"))
	link := publicURL + "/inbox/requests/" + r.ID.String()
	for _, text := range []string{plain, html} {
		require.Contains(t, text, link)
		require.Contains(t, text, "alice@example.com, verified by https://issuer.example")
		require.Contains(t, text, "may add up to 60 todos an hour to reviews, with at most 20 open at once")
		require.Contains(t, text, "Hand you pull requests that touch billing for review.")
		require.NotContains(t, text, link+"/", "no link decides")
	}
	require.Contains(t, plain, "\n> Hand you pull requests")

	calls := i.hook.received()
	require.Len(t, calls, 1)
	verify, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	require.NoError(t, verify.Verify(calls[0].Body, calls[0].Header))
	require.Equal(t, id, calls[0].Header.Get("webhook-id"))
	var body struct {
		Type string
		Data struct {
			URL  string
			From struct{ Reason, Identity string }
		}
	}
	require.NoError(t, json.Unmarshal(calls[0].Body, &body))
	require.Equal(t, "friend_request.received", body.Type)
	require.Equal(t, link, body.Data.URL)
	require.Equal(t, r.Reason, body.Data.From.Reason)
}

func TestWhatIsRolledBackIsToldToNobody(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	run(t, i.store)
	gone, stays := i.request(t), i.request(t)
	fault := errors.New("the act failed after its notice was written")
	err := pgx.BeginFunc(t.Context(), i.pool, func(tx pgx.Tx) error {
		require.NoError(t, i.store.Notify(t.Context(), tx, received(gone)))
		return fault
	})
	require.ErrorIs(t, err, fault)
	i.commit(t, received(stays))
	i.settled(t)
	mails := i.sink.received()
	require.Len(t, mails, 1)
	_, plain, _ := parts(t, mails[0])
	require.Contains(t, plain, stays.ID.String())
	require.Len(t, i.hook.received(), 1)
}

func TestTwoReplicasTellEachNoticeOnce(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	// The other replica stands behind transaction pooling.
	pooled, err := postgres.Open(t.Context(), i.url, postgres.Options{TransactionPooling: true, MaxConns: 8})
	require.NoError(t, err)
	t.Cleanup(pooled.Close)
	other := i.replica(t, pooled)
	run(t, i.store)
	run(t, other)
	const n = 20
	for k := range n {
		r := i.request(t)
		i.commit(t, received(r), received(r)) // written twice, as a retried act would
		if k%2 == 0 {
			i.commit(t, received(r))
		}
	}
	i.settled(t)
	ids := map[string]int{}
	for _, c := range i.hook.received() {
		ids[c.Header.Get("webhook-id")]++
	}
	require.Len(t, ids, n)
	for id, times := range ids {
		require.Equal(t, 1, times, id)
	}
	require.Len(t, i.sink.received(), n)
	require.Equal(t, n, i.count(t, `SELECT count(*) FROM river_job WHERE kind = 'notification_route'`), "the repeats made no jobs")
}

func TestAJobThatRunsAgainAfterACrash(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	run(t, i.store)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.hook.received(), 1)

	// The crash came after the outcome was written down: nothing is sent again.
	again := `UPDATE river_job SET state = 'available', finalized_at = NULL, attempt = 0, scheduled_at = now()`
	i.exec(t, again)
	i.settled(t)
	require.Len(t, i.hook.received(), 1)
	require.Len(t, i.sink.received(), 1)

	// It came between sending and writing down: the repeat carries the same id.
	i.exec(t, `UPDATE notification_delivery SET outcome = 'waiting', ended_at = NULL`)
	i.exec(t, again)
	i.settled(t)
	calls, mails := i.hook.received(), i.sink.received()
	require.Len(t, calls, 2)
	require.Equal(t, calls[0].Header.Get("webhook-id"), calls[1].Header.Get("webhook-id"))
	require.Len(t, mails, 2)
	first, _, _ := parts(t, mails[0])
	second, _, _ := parts(t, mails[1])
	require.Equal(t, first.Get("Message-ID"), second.Get("Message-ID"))
}

func TestWhatIsNoLongerTrueIsNotSent(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.people.change(i.alice.ID, func(h *human.Human) { h.Notifications.Webhook = i.hook.url })
	r, g := i.request(t), i.grant(t)
	i.commit(t, received(r), changed(g, "grant.narrowed"))
	r.State = friend.Withdrawn
	i.friends.set(r)
	g.State = friend.GrantPaused
	i.friends.setGrant(g)
	i.commit(t, changed(g, "grant.paused"))
	run(t, i.store)
	i.settled(t)
	mails := i.sink.received()
	require.Len(t, mails, 1)
	require.Equal(t, "alice@example.com", mails[0].To)
	require.Contains(t, header(mails[0]), "Your grant from review-bot was paused")
	require.Equal(t, 4, i.count(t, `SELECT count(*) FROM notification_delivery WHERE outcome = 'dropped'`))
}

func TestPeopleHearOfWhatOthersDid(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.people.change(i.bob.ID, func(h *human.Human) { h.Notifications.Webhook = "" })
	run(t, i.store)
	decided := func(state friend.RequestState) friend.Notice {
		r := i.request(t)
		r.State, r.Note = state, "Not now; see https://evil.example"
		n := received(r)
		n.Kind = "friend_request.decided"
		if state == friend.Approved {
			g := i.grant(t)
			r.GrantID, n.GrantID = g.ID, g.ID
		}
		i.friends.set(r)
		return n
	}
	grant := func(state friend.GrantState, event string) friend.Notice {
		g := i.grant(t)
		g.State = state
		i.friends.setGrant(g)
		return changed(g, event)
	}
	ending := changed(i.grant(t), "")
	ending.Kind = "grant.ending"
	both := []string{"alice@example.com", "bob@example.com"}
	for _, c := range []struct {
		n    friend.Notice
		to   []string
		text string
	}{
		{decided(friend.Approved), both[:1], "review-bot approved your friend request"},
		{decided(friend.Declined), both[:1], "review-bot declined your friend request"},
		{decided(friend.RequestExpired), both[:1], "Your friend request to review-bot expired"},
		{decided(friend.Withdrawn), nil, ""},
		{grant(friend.GrantActive, "grant.narrowed"), both[:1], "Your grant from review-bot was narrowed"},
		{grant(friend.GrantActive, "grant.resumed"), both[:1], "Your grant from review-bot goes on"},
		{grant(friend.GrantRevoked, "grant.revoked"), both[:1], "Your grant from review-bot was revoked"},
		{grant(friend.GrantEnded, "grant.left"), both[1:], "The grant of alice@example.com on review-bot was ended by your friend"},
		{grant(friend.GrantExpired, "grant.expired"), both, "is now expired"},
		{ending, both, "ends on 2 January 2030"},
		{friend.Notice{Kind: "unheard.of", Owner: i.bob.ID}, nil, ""},
	} {
		before := len(i.sink.received())
		i.commit(t, c.n)
		i.settled(t)
		var to []string
		for _, m := range i.sink.received()[before:] {
			to = append(to, m.To)
			require.Contains(t, header(m), c.text)
		}
		require.ElementsMatch(t, c.to, to, "%s %s", c.n.Kind, c.n.State)
	}
}

func TestAGrantThatChangesTheSameWayTwiceIsToldTwice(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	run(t, i.store)
	g := i.grant(t)
	i.commit(t, changed(g, "grant.narrowed"))
	i.commit(t, changed(g, "grant.narrowed"))
	i.settled(t)
	require.Len(t, i.sink.received(), 2)
	// Reminders are named by the end that they are about.
	n := changed(g, "")
	n.Kind = "grant.ending"
	i.commit(t, n)
	i.commit(t, n)
	i.settled(t)
	require.Equal(t, 2, i.count(t, `SELECT count(*) FROM notification WHERE kind = 'grant.ending'`), "one a side")
}

func TestSendTest(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	run(t, i.store)
	i.people.change(i.alice.ID, func(h *human.Human) { h.Email = "" })
	err := i.store.SendTest(t.Context(), i.alice.ID)
	require.ErrorIs(t, err, refusal.New(refusal.Conflict, ""))
	require.ErrorContains(t, err, "not vouched for an e-mail address")
	require.ErrorContains(t, err, "no webhook is set")

	i.hook.answers(func(int) int { return http.StatusTeapot })
	for range 10 {
		require.NoError(t, i.store.SendTest(t.Context(), i.bob.ID))
	}
	require.ErrorIs(t, i.store.SendTest(t.Context(), i.bob.ID), refusal.New(refusal.RateLimited, ""))
	i.settled(t)
	require.Len(t, i.sink.received(), 10)
	require.Len(t, i.hook.received(), 10, "a test is tried once")
	status, err := i.store.Status(t.Context(), i.bob.ID)
	require.NoError(t, err)
	require.Equal(t, "the webhook answered 418", status[1].LastError)
	require.Zero(t, status[1].Failures, "tests do not switch a webhook off")
}

func TestDepthShowsWhatWaits(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.commit(t, received(i.request(t)))
	jobs, _, err := i.store.Depth(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, jobs["available"])
	run(t, i.store)
	i.settled(t)
	jobs, oldest, err := i.store.Depth(t.Context())
	require.NoError(t, err)
	require.Zero(t, jobs["available"]+jobs["running"]+jobs["retryable"])
	require.Zero(t, oldest)
}

func TestNoRecipientHereIsNoError(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	run(t, i.store)
	r := i.request(t)
	r.State, r.Identity.Hash = friend.Declined, []byte("somebody elsewhere")
	i.friends.set(r)
	n := received(r)
	n.Kind = "friend_request.decided"
	i.commit(t, n)
	i.settled(t)
	require.Equal(t, 1, i.count(t, `SELECT count(*) FROM notification`))
	require.Zero(t, i.count(t, `SELECT count(*) FROM notification_delivery`))
	require.Equal(t, "completed", i.text(t, `SELECT state::text FROM river_job`))
}

func TestEraseForgetsAHuman(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	run(t, i.store)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), i.pool, func(tx pgx.Tx) error { return i.store.Erase(t.Context(), tx, i.bob.ID) }))
	require.Zero(t, i.count(t, `SELECT (SELECT count(*) FROM notification) + (SELECT count(*) FROM notification_delivery) + (SELECT count(*) FROM notification_channel)`))
}

// The serving role owns nothing and may not change the schema.
func TestRunsWithoutDDL(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	role := "serving_" + strings.ReplaceAll(newID(t).String(), "-", "")
	i.exec(t, fmt.Sprintf(`
		CREATE ROLE %[1]s LOGIN PASSWORD 'serving';
		REVOKE CREATE ON SCHEMA public FROM PUBLIC;
		GRANT USAGE ON SCHEMA public TO %[1]s;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO %[1]s;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO %[1]s`, role))
	t.Cleanup(func() {
		_, err := i.pool.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role))
		require.NoError(t, err)
	})
	config := i.pool.Config().Copy()
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET ROLE "+role)
		return err
	}
	pool, err := openWith(t, config)
	require.NoError(t, err)
	serving := i.replica(t, pool)
	run(t, serving)
	i.commit(t, received(i.request(t)))
	i.settled(t)
	require.Len(t, i.sink.received(), 1)
	// Leadership and the maintenance that comes with it work as well.
	require.Eventually(t, func() bool { return i.count(t, `SELECT count(*) FROM river_leader`) == 1 }, patience, tick)
}
