package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
