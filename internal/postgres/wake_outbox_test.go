package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPacer_ASlowSendingDelaysTheNextOnlyWhenBusy: over time sending has its share and
// no more, and after a pause it need not wait.
func TestPacer_ASlowSendingDelaysTheNextOnlyWhenBusy(t *testing.T) {
	t.Parallel()
	var p pacer
	now := time.Unix(1000, 0)
	require.LessOrEqual(t, p.rest(now), time.Duration(0), "nothing was sent yet")
	p.took(now, now.Add(sendAhead))
	now = now.Add(sendAhead)
	require.LessOrEqual(t, p.rest(now), time.Duration(0), "one that was slow")

	var sent, whole time.Duration
	const each = time.Millisecond
	for range 2000 {
		if d := p.rest(now); d > 0 {
			now, whole = now.Add(d), whole+d
		}
		p.took(now, now.Add(each))
		now, whole, sent = now.Add(each), whole+each, sent+each
	}
	require.InDelta(t, 1.0/sendShare, float64(sent)/float64(whole), 0.01)
	require.LessOrEqual(t, p.rest(now), sendRest)
	require.LessOrEqual(t, p.rest(now.Add(time.Second)), time.Duration(0), "quiet since")
}

func TestOutbox_LeadingEdgeThenOncePerInterval(t *testing.T) {
	t.Parallel()
	const interval = 10 * time.Millisecond
	o := newOutbox(interval)
	now := time.Unix(0, 0)
	a, b := hashTopic("a"), hashTopic("b")
	take := func() []topicHash { topics, _, _ := o.take(now, 100); return topics }

	o.put(a)
	o.put(a)
	o.put(b)
	require.Equal(t, []topicHash{a, b}, take(), "at once, each once")
	for range 5 {
		o.put(a)
	}
	require.Empty(t, take(), "not again within the interval")
	_, _, wait := o.take(now, 100)
	require.Equal(t, interval, wait)
	now = now.Add(interval)
	require.Equal(t, []topicHash{a}, take(), "then once, and only what changed")
	now = now.Add(interval)
	require.Empty(t, take())
	require.Empty(t, o.state, "nothing is kept of a quiet topic")

	o.put(a)
	require.Equal(t, []topicHash{a}, take(), "at once after a silence")
}

func TestOutbox_TakesAtMostN(t *testing.T) {
	t.Parallel()
	o := newOutbox(time.Second)
	for _, topic := range []string{"a", "b", "c"} {
		o.put(hashTopic(topic))
	}
	topics, _, wait := o.take(time.Unix(0, 0), 2)
	require.Len(t, topics, 2)
	require.Positive(t, wait)
	topics, _, _ = o.take(time.Unix(0, 0), 2)
	require.Len(t, topics, 1)
}

func TestPayload_RoundTripsWithinNotifysLimit(t *testing.T) {
	t.Parallel()
	var topics []topicHash
	for range maxTopics {
		topics = append(topics, hashTopic("topic"))
	}
	payload := encodePayload("ABCDEFGH", topics)
	require.Less(t, len(payload), 8000)
	name, got := decodePayload(payload)
	require.Equal(t, "ABCDEFGH", name)
	require.Equal(t, topics, got)
	for _, junk := range []string{"", "short", "ABCDEFGH1", "ABCDEFGH" + strings.Repeat("!", topicLength)} {
		_, got = decodePayload(junk)
		require.Empty(t, got, junk)
	}
}
