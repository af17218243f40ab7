package activity_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"switchboard/internal/activity"
	"switchboard/internal/postgres"
	"switchboard/internal/postgres/pgtest"
	"switchboard/internal/refusal"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var testKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func record(t *testing.T, pool *pgxpool.Pool, events ...activity.Event) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return activity.Record(ctx, tx, events...) }))
}

func seal(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	s, err := activity.NewSealer(pool, testKey, nil)
	require.NoError(t, err)
	require.NoError(t, s.Seal(context.Background()))
}

func verify(t *testing.T, pool *pgxpool.Pool, heads ...string) activity.Report {
	t.Helper()
	r, err := activity.Verify(context.Background(), pool, []ed25519.PublicKey{public(testKey)}, activity.VerifyOptions{Heads: heads})
	require.NoError(t, err)
	return r
}

func narrowed(owner uuid.UUID, n int) activity.Event {
	return activity.Event{Owner: owner, Kind: "grant.narrowed", Actor: "human:" + owner.String(), Object: "grant", ObjectID: uuid.New(),
		Detail: map[string]any{"n": n}, Personal: map[string]string{"name": fmt.Sprintf("Alice %d", n)}}
}

func TestRecord_StandsAndFallsWithItsTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	store, alice := activity.NewStore(pool), uuid.New()
	undone := errors.New("undone")
	require.ErrorIs(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		require.NoError(t, activity.Record(ctx, tx, narrowed(alice, 1)))
		return undone
	}), undone)
	events, _, err := store.List(ctx, alice, activity.Filter{}, "", 0)
	require.NoError(t, err)
	require.Empty(t, events)

	grant := uuid.New()
	want := activity.Event{Owner: alice, Kind: "friend_request.received", Actor: "identity:ab", Object: "friend_request", ObjectID: uuid.New(), GrantID: grant,
		Detail: map[string]any{"persona": "reviewer"}, Personal: map[string]string{"reason": "Hand you pull requests."}}
	record(t, pool, want)
	events, next, err := store.List(ctx, alice, activity.Filter{}, "", 0)
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, events, 1)
	require.WithinDuration(t, time.Now(), events[0].At, time.Minute)
	want.ID, want.At = events[0].ID, events[0].At
	require.Equal(t, want, events[0])
}

func TestList_PagesNewestFirstWithinTheFilter(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	store, alice, bob, grant := activity.NewStore(pool), uuid.New(), uuid.New(), uuid.New()
	for i := range 7 {
		e := narrowed(alice, i)
		if i%2 == 0 {
			e.GrantID = grant
		}
		record(t, pool, e, narrowed(bob, i), activity.Event{Owner: alice, Kind: "grants.else"})
	}
	f := activity.Filter{GrantID: grant, Kind: "grant"}
	var seen []float64
	cursor := ""
	for {
		events, next, err := store.List(ctx, alice, f, cursor, 3)
		require.NoError(t, err)
		for _, e := range events {
			seen = append(seen, e.Detail["n"].(float64))
		}
		if next == "" {
			break
		}
		cursor = next
	}
	require.Equal(t, []float64{6, 4, 2, 0}, seen)

	for name, list := range map[string]func() error{
		"another owner's cursor":  func() error { _, _, err := store.List(ctx, bob, f, cursor, 3); return err },
		"another filter's cursor": func() error { _, _, err := store.List(ctx, alice, activity.Filter{}, cursor, 3); return err },
		"a kind that is none":     func() error { _, _, err := store.List(ctx, alice, activity.Filter{Kind: "a\x00"}, "", 3); return err },
		"too much at once":        func() error { _, _, err := store.List(ctx, alice, f, "", 101); return err },
	} {
		require.Equal(t, refusal.InvalidArgument, refusal.CodeOf(list()), name)
	}
}

func TestRecord_TakesAnyText(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	alice := uuid.New()
	record(t, pool, activity.Event{Owner: alice, Kind: "k\x00", Actor: "\xff", Object: "o",
		Detail:   map[string]any{"nul": "\x00", "big": uint64(1) << 63, "small": 1e-300, "\u202e": []any{nil, true}},
		Personal: map[string]string{"reason": "a\x00b\xff\u202e"}}, activity.Event{Owner: alice, Kind: "bare"})
	seal(t, pool)
	r := verify(t, pool)
	require.Empty(t, r.Faults)
	require.Equal(t, 2, r.Sealed)
}

func TestSealers_TakeTurnsWhileEventsArrive(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	url := pgtest.URL(t)
	pool, replica := pgtest.Open(t, url), pgtest.Open(t, url)
	owners := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}

	var sealing sync.WaitGroup
	for _, p := range []*pgxpool.Pool{pool, replica, replica} {
		s, err := activity.NewSealer(p, testKey, nil)
		require.NoError(t, err)
		sealing.Go(func() { s.Run(ctx, time.Millisecond) })
	}
	var recording errgroup.Group
	for w := range 4 {
		recording.Go(func() error {
			for i := range 50 {
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					return activity.Record(ctx, tx, narrowed(owners[i%3], w), narrowed(owners[w%3], i))
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, recording.Wait())
	require.Eventually(t, func() bool { return verify(t, pool).Sealed == 400 }, 20*time.Second, 10*time.Millisecond)
	cancel()
	sealing.Wait() // Run ends with its context

	r := verify(t, pool)
	require.Empty(t, r.Faults)
	require.Equal(t, 400, r.Events)
	require.Equal(t, 3, r.Owners)
	require.Greater(t, r.Checkpoints, 1, "sealed while events arrived")
}

func TestErase_LeavesTheChainWhole(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	alice, bob := uuid.New(), uuid.New()
	seen := narrowed(bob, 1) // alice's doing, in bob's record
	seen.Actor = "identity:a11ce"
	record(t, pool, narrowed(alice, 1), seen, narrowed(bob, 2))
	seal(t, pool)
	require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return activity.Erase(ctx, tx, alice, "identity:a11ce") }))

	r := verify(t, pool)
	require.Empty(t, r.Faults)
	require.Equal(t, 2, r.Erased)
	var left string
	require.NoError(t, pool.QueryRow(ctx, "SELECT string_agg(value, ',') FROM activity_personal").Scan(&left))
	require.Equal(t, "Alice 2", left)
}

func TestActivity_CannotBeChanged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	record(t, pool, narrowed(uuid.New(), 1))
	seal(t, pool)
	for _, table := range []string{"activity", "activity_checkpoint", "activity_seal", "activity_link"} {
		for _, sql := range []string{"DELETE FROM %s", "TRUNCATE %s CASCADE", "UPDATE %[1]s SET %[2]s = %[2]s"} {
			column := map[string]string{"activity": "kind", "activity_checkpoint": "at"}[table]
			if column == "" {
				column = "hash"
			}
			sql = fmt.Sprintf(sql+"%.0[2]s", table, column)
			_, err := pool.Exec(ctx, sql)
			require.Equal(t, "42501", postgres.SQLState(err), sql)
		}
	}
	_, err := pool.Exec(ctx, "UPDATE activity_personal SET value = 'x'")
	require.Equal(t, "42501", postgres.SQLState(err))
}

func TestActivity_WithoutKeyNothingSeals(t *testing.T) {
	t.Parallel()
	_, err := activity.NewSealer(nil, nil, nil)
	require.Error(t, err)
}

// TestVerify_FindsEveryTampering does what somebody with all rights on the
// database could do, but without the sealing key.
func TestVerify_FindsEveryTampering(t *testing.T) {
	t.Parallel()
	const alice, bob = "0190a0a0-0000-7000-8000-00000000000a", "0190a0a0-0000-7000-8000-00000000000b"
	const lastEvent = `(SELECT id FROM activity WHERE owner = '` + alice + `' ORDER BY at DESC, id DESC LIMIT 1)`
	const lastSeal = `(SELECT max(seq) FROM activity_seal WHERE owner = '` + alice + `')`
	for name, c := range map[string]struct {
		sql  string
		want string // part of a fault
	}{
		"kind changed":        {`UPDATE activity SET kind = 'grant.widened' WHERE id = ` + lastEvent, "an event was changed"},
		"detail changed":      {`UPDATE activity SET detail = '{"n":9}' WHERE id = ` + lastEvent, "an event was changed"},
		"detail respaced":     {`UPDATE activity SET detail = (detail::text || ' ')::json WHERE id = ` + lastEvent, "an event was changed"},
		"time changed":        {`UPDATE activity SET at = at + '1 microsecond' WHERE id = ` + lastEvent, "an event was changed"},
		"object taken away":   {`UPDATE activity SET object_id = NULL WHERE id = ` + lastEvent, "an event was changed"},
		"object made grant":   {`UPDATE activity SET grant_id = object_id, object_id = NULL WHERE id = ` + lastEvent, "an event was changed"},
		"hash with event":     {`UPDATE activity SET personal = '{}' WHERE id = ` + lastEvent, "an event was changed"},
		"given to bob":        {`UPDATE activity SET owner = '` + bob + `' WHERE id = ` + lastEvent, "an event was removed"},
		"event removed":       {`DELETE FROM activity WHERE id = ` + lastEvent, "an event was removed"},
		"event and link":      {`WITH e AS (DELETE FROM activity WHERE id = ` + lastEvent + ` RETURNING id) DELETE FROM activity_link USING e WHERE event_id = e.id`, "list of its events was changed"},
		"old event inserted":  {`INSERT INTO activity (owner, id, at, kind, actor, object, detail, personal) VALUES ('` + alice + `', gen_random_uuid(), now() - interval '1 day', 'k', 'a', 'o', '{}', '{}')`, "has no seal"},
		"event linked in":     {`WITH e AS (INSERT INTO activity (owner, id, at, kind, actor, object, detail, personal) VALUES ('` + alice + `', gen_random_uuid(), now(), 'k', 'a', 'o', '{}', '{}') RETURNING id) INSERT INTO activity_link SELECT '` + alice + `', id, 1, 99, '\x00' FROM e`, "an event was changed"},
		"link rehashed":       {`UPDATE activity_link SET hash = sha256(hash) WHERE event_id = ` + lastEvent, "list of its events was changed"},
		"order changed":       {`UPDATE activity_link SET position = 7 WHERE owner = '` + alice + `' AND seq = 1 AND position = 0`, "list of its events was changed"},
		"place left open":     {`UPDATE activity_link SET position = position + 5 WHERE owner = '` + alice + `' AND seq = 1`, "place in its seal"},
		"last seal removed":   {`DELETE FROM activity_seal WHERE owner = '` + alice + `' AND seq = ` + lastSeal, "list of its seals was changed"},
		"tail of one owner":   {`WITH l AS (DELETE FROM activity_link WHERE owner = '` + alice + `' AND seq = 3 RETURNING event_id), e AS (DELETE FROM activity USING l WHERE id = event_id) DELETE FROM activity_seal WHERE owner = '` + alice + `' AND seq = 3`, "list of its seals was changed"},
		"whole owner":         {`WITH l AS (DELETE FROM activity_link WHERE owner = '` + alice + `'), e AS (DELETE FROM activity WHERE owner = '` + alice + `'), p AS (DELETE FROM activity_personal WHERE owner = '` + alice + `') DELETE FROM activity_seal WHERE owner = '` + alice + `'`, "list of its seals was changed"},
		"all seals of one":    {`DELETE FROM activity_seal WHERE owner = '` + alice + `'`, "seals are gone"},
		"middle seal removed": {`DELETE FROM activity_seal WHERE owner = '` + alice + `' AND seq = 2`, "a seal is missing"},
		"seal changed":        {`UPDATE activity_seal SET hash = sha256(hash) WHERE owner = '` + alice + `' AND seq = 2`, "signature does not fit"},
		"seal unsigned":       {`UPDATE activity_seal SET signature = '' WHERE owner = '` + alice + `' AND seq = 2`, "signature does not fit"},
		"foreign key":         {`UPDATE activity_seal SET key_id = 'mine'`, "unknown key"},
		"signature of a seal": {`UPDATE activity_checkpoint c SET hash = s.hash, signature = s.signature FROM activity_seal s WHERE c.seq = 2 AND s.checkpoint = 2`, "signature does not fit"},
		"seal moved":          {`UPDATE activity_seal SET checkpoint = 1 WHERE owner = '` + alice + `' AND seq = 2`, "list of its seals was changed"},
		"checkpoint removed":  {`DELETE FROM activity_checkpoint WHERE seq = 2`, "a checkpoint is missing"},
		"no checkpoint":       {`DELETE FROM activity_checkpoint`, "checkpoint that is not there"},
		"checkpoint's time":   {`UPDATE activity_checkpoint SET at = at - interval '1 day' WHERE seq = 2`, "checkpoint or the list"},
		"word changed":        {`UPDATE activity_personal SET value = 'Mallory' WHERE event_id = ` + lastEvent, "personal data was changed or added: name"},
		"word added":          {`INSERT INTO activity_personal VALUES ('` + alice + `', ` + lastEvent + `, 'reason', '\x00', 'hi')`, "personal data was changed or added: reason"},
		"word on nothing":     {`INSERT INTO activity_personal VALUES ('` + alice + `', gen_random_uuid(), 'reason', '\x00', 'hi')`, "belongs to no event"},
		"everything cut off": {`WITH s AS (DELETE FROM activity_seal WHERE checkpoint = 3 RETURNING owner, seq), l AS (DELETE FROM activity_link l USING s WHERE l.owner = s.owner AND l.seq = s.seq RETURNING event_id),
			e AS (DELETE FROM activity USING l WHERE id = event_id), p AS (DELETE FROM activity_personal p USING l WHERE p.event_id = l.event_id) DELETE FROM activity_checkpoint WHERE seq = 3`, "noted earlier"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			pool := pgtest.Pool(t)
			for range 3 {
				record(t, pool, narrowed(uuid.MustParse(alice), 1), narrowed(uuid.MustParse(alice), 2), narrowed(uuid.MustParse(alice), 3))
				record(t, pool, narrowed(uuid.MustParse(bob), 1))
				seal(t, pool)
			}
			before := verify(t, pool)
			require.Empty(t, before.Faults)
			require.Equal(t, 12, before.Sealed)
			require.Equal(t, before, verify(t, pool, before.Head))

			require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				// Switches triggers and foreign keys off, as only a superuser can.
				if _, err := tx.Exec(ctx, "SET LOCAL session_replication_role = replica"); err != nil {
					return err
				}
				tag, err := tx.Exec(ctx, c.sql)
				require.NoError(t, err)
				require.NotZero(t, tag.RowsAffected(), "the tampering took place")
				return nil
			}))
			after := verify(t, pool, before.Head)
			require.False(t, after.OK())
			var all string
			for _, f := range after.Faults {
				all += f.String() + "\n"
			}
			require.Contains(t, all, c.want)
		})
	}
}
