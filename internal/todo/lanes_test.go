package todo

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// lookAt begins a look at one lane.
func lookAt(l *lanes, n lane, full bool) (*looks, *demand) {
	d := &demand{auth: &authority{owner: n.owner}, queues: []string{n.queue}, full: full}
	return l.begin(&round{demands: []*demand{d}}), d
}

// TestLanes_WhoFindsNothingBesideOthersIsToldSo: of two looks at once one may take what
// the other was to have, and leave what only it sees. Without the word of it the look at
// everything follows, which is dear while somebody holds an old snapshot.
func TestLanes_WhoFindsNothingBesideOthersIsToldSo(t *testing.T) {
	t.Parallel()
	l, n := newLanes(), lane{uuid.New(), "reviews"}

	one, d := lookAt(l, n, false)
	one.end(true)
	require.False(t, d.crowded, "alone")

	one, d = lookAt(l, n, false)
	two, _ := lookAt(l, n, false)
	one.end(true)
	require.True(t, d.crowded, "another is on its way")
	two.end(true)

	one, d = lookAt(l, n, false)
	two, _ = lookAt(l, n, false)
	two.took(n, place{5, 1, uuid.New()})
	two.end(true)
	one.end(true)
	require.True(t, d.crowded, "another has taken something meanwhile")

	one, d = lookAt(l, n, false)
	l.reset(n)
	one.end(true)
	require.True(t, d.crowded, "something was made ready meanwhile")
}

// TestLanes_QuietAfterAFullLookUntilSomethingIsReady.
func TestLanes_QuietAfterAFullLookUntilSomethingIsReady(t *testing.T) {
	t.Parallel()
	l, n := newLanes(), lane{uuid.New(), "reviews"}
	quiet := func() bool { return l.quiet(n.owner, []string{n.queue}) }
	require.False(t, quiet(), "nothing is known")

	look, _ := lookAt(l, n, false)
	look.end(true)
	require.False(t, quiet(), "what is due or lapsed was not looked at")

	look, _ = lookAt(l, n, true)
	look.end(false)
	require.False(t, quiet(), "a look that was rolled back")

	look, _ = lookAt(l, n, true)
	look.end(true)
	require.True(t, quiet())
	require.False(t, l.quiet(n.owner, []string{n.queue, "other"}))

	l.reset(n)
	require.False(t, quiet(), "a hint of another process, or something was made ready")

	look, _ = lookAt(l, n, true)
	l.reset(n)
	look.end(true)
	require.False(t, quiet(), "it came during the look")
}

// TestLanes_AMarkLivesLongerWhereALookFromTheFrontIsDear: what is dead in the index is
// passed at every such look while somebody holds an old snapshot.
func TestLanes_AMarkLivesLongerWhereALookFromTheFrontIsDear(t *testing.T) {
	t.Parallel()
	l, n := newLanes(), lane{uuid.New(), "reviews"}
	at := place{5, 9, uuid.New()}
	life := func(cost time.Duration) time.Duration {
		l.marks[n].since = time.Time{} // it has had its time
		look, _ := lookAt(l, n, false)
		require.Equal(t, front, look.from(n))
		look.began = look.began.Add(-cost)
		look.took(n, at)
		look.end(true)
		next, _ := lookAt(l, n, false)
		require.Equal(t, at, next.from(n), "the next begins where this one ended")
		next.end(true)
		return l.marks[n].life
	}
	first, _ := lookAt(l, n, false)
	first.end(true)
	require.Equal(t, markLife, life(0))
	require.Equal(t, markLife, life(100*time.Millisecond), "one may have waited for a lock")
	dear := life(100 * time.Millisecond)
	require.GreaterOrEqual(t, dear, 5*time.Second)
	require.Less(t, dear, longestLife)
	life(time.Minute)
	require.Equal(t, longestLife, life(time.Minute))
	require.Equal(t, markLife, life(0), "and no longer than it is")
}

// TestContents_KnownBeforeTheCreatorIsTold: others may claim what is committed at once,
// and one content that is not found makes claims read them all again for a while.
func TestContents_KnownBeforeTheCreatorIsTold(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := &work{auth: authorityOf(k.work)}
	m, err := newCreation(New{Queue: "reviews", Title: "a title", IdempotencyKey: "k"}, nil)
	require.NoError(t, err)
	m.auth, m.line = &w.auth, k.work.Endpoint.Line
	w.add(m)
	committed, err := k.store.carryOut(context.Background(), gather([]*work{w}), false)
	require.NoError(t, err)
	require.True(t, committed)
	require.NotNil(t, k.store.known.get(m.id))
	require.True(t, k.store.known.warm())
}

// TestContents_WhatIsNotCreatedIsForgotten: who may create nothing does not push out
// what others have created.
func TestContents_WhatIsNotCreatedIsForgotten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	k.create("one")
	limits := wide()
	limits.PerHour = 1
	friend := k.friend(limits, "reviews")
	sizes := func() [2]int {
		k.store.known.mu.Lock()
		defer k.store.known.mu.Unlock()
		return [2]int{len(k.store.known.now) + len(k.store.known.old), k.store.known.bytes}
	}
	create := func(keys ...string) {
		var items []New
		for _, key := range keys {
			items = append(items, New{Queue: "reviews", Title: "t", Body: strings.Repeat("x", 60_000), IdempotencyKey: key})
		}
		_, err := k.store.Create(ctx, friend, items)
		require.NoError(t, err)
	}
	create("mine")
	before := sizes()
	require.Equal(t, 2, before[0])
	create("mine")
	create("not allowed")
	var many []string
	for i := range 100 { // more than is kept at once
		many = append(many, fmt.Sprint(i))
	}
	create(many...)
	require.Equal(t, before, sizes())
	require.True(t, k.store.known.warm())
}

// TestClaim_ManyAtOnceDoNotGlance: a glance has no bound for each owner, so only a few
// are on their way, and the others are served by a batch.
func TestClaim_ManyAtOnceDoNotGlance(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	require.Empty(t, k.claim(1))
	require.True(t, k.store.lanes.quiet(k.owner, []string{"reviews"}))
	for range cap(k.store.glances) {
		k.store.glances <- struct{}{}
	}
	before, _, _ := k.store.batch.Stats()
	require.Empty(t, k.claim(1))
	after, _, _ := k.store.batch.Stats()
	require.Greater(t, after, before)
	for range cap(k.store.glances) {
		<-k.store.glances
	}
	require.Empty(t, k.claim(1))
	last, _, _ := k.store.batch.Stats()
	require.Equal(t, after, last, "alone it only asks")
	id := k.create("one").TodoID
	got, err := k.store.ClaimNext(ctx, k.work, ClaimNext{})
	require.NoError(t, err)
	require.Equal(t, id, got[0].TodoID)
}

// TestClaim_WhatOthersHaveLockedIsNotNothing: a claim of many locks more than it takes,
// so a look that finds only locked todos does not say that there are none.
func TestClaim_WhatOthersHaveLockedIsNotNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	k := newKit(t)
	k.create("one")
	tx, err := k.pool.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	_, err = tx.Exec(ctx, `SELECT FROM todo_live WHERE owner = $1 FOR UPDATE`, k.owner)
	require.NoError(t, err)
	auth := authorityOf(k.work)
	more, err := k.store.moreReady(ctx, &demand{auth: &auth, queues: []string{"reviews"}})
	require.NoError(t, err)
	require.True(t, more)
}
