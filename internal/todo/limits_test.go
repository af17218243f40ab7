package todo

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
)

func TestCreate_HoldsAFriendToItsScope(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	limits := wide()
	limits.MaxPayloadBytes, limits.MaxPriority, limits.MaxDelayDays = 10, 3, 2
	friend := k.friend(limits, "reviews")
	for name, c := range map[string]struct {
		change func(*New)
		code   refusal.Code
	}{
		"no title":             {func(n *New) { n.Title = "" }, refusal.InvalidArgument},
		"long title":           {func(n *New) { n.Title = strings.Repeat("ä", 201) }, refusal.InvalidArgument},
		"title of 200":         {func(n *New) { n.Title = strings.Repeat("ä", 200) }, ""},
		"no key":               {func(n *New) { n.IdempotencyKey = "" }, refusal.InvalidArgument},
		"NUL":                  {func(n *New) { n.Body = "a\x00b" }, refusal.InvalidArgument},
		"long body":            {func(n *New) { n.Body = strings.Repeat("x", maxBody+1) }, refusal.PayloadTooLarge},
		"payload at the limit": {func(n *New) { n.Payload = json.RawMessage(`"12345678"`) }, ""},
		"payload over it":      {func(n *New) { n.Payload = json.RawMessage(`"123456789"`) }, refusal.PayloadTooLarge},
		"no JSON":              {func(n *New) { n.Payload = json.RawMessage(`{`) }, refusal.InvalidArgument},
		"priority over":        {func(n *New) { n.Priority = new(4) }, refusal.InvalidArgument},
		"priority 0":           {func(n *New) { n.Priority = new(0) }, refusal.InvalidArgument},
		"priority at":          {func(n *New) { n.Priority = new(3) }, ""},
		"too far ahead":        {func(n *New) { n.NotBefore = new(time.Now().Add(49 * time.Hour)) }, refusal.InvalidArgument},
		"far ahead":            {func(n *New) { n.NotBefore = new(time.Now().Add(47 * time.Hour)) }, ""},
		"deadline passed":      {func(n *New) { n.Deadline = new(time.Now().Add(-time.Minute)) }, refusal.InvalidArgument},
		"other queue":          {func(n *New) { n.Queue = "builds" }, refusal.NotFound},
		"no queue":             {func(n *New) { n.Queue = "nowhere" }, refusal.NotFound},
		"inbox":                {func(n *New) { n.Queue = "inbox" }, refusal.NotFound},
		"no trace":             {func(n *New) { n.Traceparent = "zz" }, refusal.InvalidArgument},
	} {
		// Alone and among many: two ways through the database.
		for _, many := range []bool{false, true} {
			n := New{Queue: "reviews", Title: "t", IdempotencyKey: name}
			c.change(&n)
			items := []New{n}
			if many {
				if n.IdempotencyKey != "" {
					items[0].IdempotencyKey += " among many"
				}
				for _, other := range []string{"a", "b", "c", "d", "e"} {
					items = append(items, New{Queue: "reviews", Title: "t", IdempotencyKey: name + other})
				}
			}
			out, err := k.store.Create(ctx, friend, items)
			require.NoError(t, err)
			if c.code == "" {
				require.NoError(t, out[0].Err, name)
			} else {
				requireCode(t, c.code, out[0].Err)
			}
			for _, o := range out[1:] {
				require.NoError(t, o.Err, "beside %s", name)
			}
		}
	}
	// Other queue, no queue and inbox are told apart by nobody.
	var said []string
	for _, q := range []string{"builds", "nowhere", "inbox"} {
		out, err := k.store.Create(ctx, friend, []New{{Queue: q, Title: "t", IdempotencyKey: "x"}})
		require.NoError(t, err)
		said = append(said, refusal.From(out[0].Err).Message)
	}
	require.Equal(t, said[0], said[1])
	require.Equal(t, said[0], said[2])

	// A priority left out is the lesser of 5 and what is allowed.
	got, err := k.store.ClaimNext(ctx, k.work, ClaimNext{Max: 100})
	require.NoError(t, err)
	for _, c := range got {
		require.Equal(t, 3, c.Priority)
	}
	k.create("default")
	require.Equal(t, 5, k.next().Priority)
}

func TestCreate_ARepeatIsComparedInAllButItsTrace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	at := time.Now().Add(time.Hour)
	first := New{
		Queue: "reviews", Title: "t", IdempotencyKey: "k", Body: "b", Payload: json.RawMessage(`{"a":1,"b":[1.0,2]}`), Priority: new(4),
		NotBefore: &at, Deadline: new(at.Add(time.Hour)), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	try := func(change func(*New)) error {
		n := first
		change(&n)
		out, err := k.store.Create(ctx, k.peer, []New{n})
		require.NoError(t, err)
		if out[0].Err == nil {
			require.True(t, out[0].Value.Deduplicated)
		}
		return out[0].Err
	}
	out, err := k.store.Create(ctx, k.peer, []New{first})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	require.NoError(t, try(func(*New) {}))
	require.NoError(t, try(func(n *New) { n.Traceparent = "" }))
	require.NoError(t, try(func(n *New) { n.Payload = json.RawMessage(`{"b": [1.0, 2], "a": 1}`) }))
	utc := at.UTC()
	require.NoError(t, try(func(n *New) { n.NotBefore = &utc }))
	for name, change := range map[string]func(*New){
		"queue":      func(n *New) { n.Queue = "builds" },
		"title":      func(n *New) { n.Title = "T" },
		"body":       func(n *New) { n.Body = "" },
		"payload":    func(n *New) { n.Payload = json.RawMessage(`{"a":1}`) },
		"no payload": func(n *New) { n.Payload = nil },
		"priority":   func(n *New) { n.Priority = nil },
		"not before": func(n *New) { n.NotBefore = new(at.Add(time.Second)) },
		"deadline":   func(n *New) { n.Deadline = nil },
	} {
		err := try(change)
		require.Error(t, err, name)
		requireCode(t, refusal.Conflict, err)
	}
	// Another line's key is another key.
	other, err := k.store.Create(ctx, k.friend(wide(), "reviews"), []New{first})
	require.NoError(t, err)
	require.NoError(t, other[0].Err)
	require.False(t, other[0].Value.Deduplicated)
}

func TestCreate_AKeyIsForgottenThirtyDaysAfterTheEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	made := k.create("k")
	got := k.next()
	_, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: got.TodoID, LeaseToken: got.LeaseToken}})
	require.NoError(t, err)
	end := func(days string) {
		k.exec(`UPDATE todo_outcome SET finished_at = clock_timestamp() - $2::interval WHERE id = $1`, made.TodoID, days)
	}
	end("29 days 23 hours")
	again := k.create("k")
	require.True(t, again.Deduplicated)
	require.Equal(t, Done, again.State)
	end("30 days 1 hour")
	fresh := k.create("k")
	require.False(t, fresh.Deduplicated)
	require.NotEqual(t, made.TodoID, fresh.TodoID)
}

func TestRetention_DropsWeeksAndKeepsWhatIsOpen(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	k.create("kept")
	done := k.create("done").TodoID
	got := k.claim(2)
	for _, c := range got {
		if c.TodoID == done {
			_, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: c.TodoID, LeaseToken: c.LeaseToken}})
			require.NoError(t, err)
		}
	}
	weeks := func() (n int) {
		require.NoError(t, k.pool.QueryRow(ctx, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'todo'::regclass`).Scan(&n))
		return n
	}
	before := weeks()
	drop := func(days int) (dropped bool) {
		require.NoError(t, k.pool.QueryRow(ctx, `
			SELECT bool_or(todo_drop_partitions(substr(c.relname, 6), clock_timestamp() + make_interval(days => $1)))
			FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			WHERE i.inhparent = 'todo'::regclass AND c.relname ~ '^todo_[0-9]{8}$'`, days).Scan(&dropped))
		return dropped
	}
	require.False(t, drop(0), "this week")
	// A week that nothing is in goes, one with an open todo stays however old.
	drop(60)
	require.Equal(t, before-1, weeks())
	st := k.status(done)
	require.Equal(t, Done, st.State)
	for _, c := range got {
		if c.TodoID != done {
			_, err := k.store.Complete(ctx, k.work, []Completion{{TodoID: c.TodoID, LeaseToken: c.LeaseToken}})
			require.NoError(t, err)
		}
	}
	require.False(t, drop(29))
	require.True(t, drop(60))
	_, err := k.store.Status(ctx, k.peer, done, 0, nil)
	requireCode(t, refusal.NotFound, err)
	// Its key went with it, and new partitions come by themselves.
	var keys int
	require.NoError(t, k.pool.QueryRow(ctx, `SELECT count(*) FROM todo_key`).Scan(&keys))
	require.Zero(t, keys)
	require.NoError(t, k.store.retain(ctx))
	require.Equal(t, before, weeks())
	require.False(t, k.create("done").Deduplicated)
}
