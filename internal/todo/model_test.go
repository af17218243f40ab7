package todo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// The reference model of the state machine: what specs/protocol.md says, for one
// human with two queues, two friends and two workers, one call at a time. Time does
// not pass but when an action says so.
type model struct {
	todos  []*modelTodo
	paused map[string]bool
	keys   map[string]*modelTodo // by line and key
	served map[string]int64      // by class: the virtual start claimed last
	lasts  map[string]int64      // by class and line: one more than the last virtual start
}

func (t *modelTodo) class() string { return fmt.Sprint(t.queue, t.priority) }

const modelBudget = 3

type modelTodo struct {
	id       uuid.UUID
	line     int
	queue    string
	key      string
	title    string
	priority int
	vstart   int64

	state     State
	version   int64
	attempt   int
	spent     int
	free      int
	due       bool // not waiting for a not_before
	cancel    bool
	late      bool // its deadline has passed
	deadline  bool // it has one
	lapsed    bool // its lease has lapsed, unnoticed
	beaten    bool
	token     string
	worker    int
	question  uuid.UUID
	asked     string
	exchanges int
	ended     map[string]modelEnd // by token: what ended it and what came of it
}

type modelEnd struct {
	act, content string
	state        State
	version      int64
}

func (t *modelTodo) live() bool { return !t.state.Terminal() }

// next is what is claimed next from the queue, nil when nothing is.
func (m *model) next(queues []string) *modelTodo {
	var best *modelTodo
	for _, t := range m.todos {
		if t.state != Ready || !t.due || t.late || m.paused[t.queue] || !slices.Contains(queues, t.queue) {
			continue
		}
		if best == nil || t.priority > best.priority || t.priority == best.priority && (t.vstart < best.vstart ||
			t.vstart == best.vstart && t.id.String() < best.id.String()) {
			best = t
		}
	}
	return best
}

// start gives a new todo its virtual start: the virtual time of its class, or one
// more than its line's last, whichever is more. The virtual time is the start that
// was claimed last, or, before any was, that of the first ready one.
func (m *model) start(x *modelTodo) {
	now, known := m.served[x.class()]
	if !known {
		if first := m.first(x); first != nil {
			now = first.vstart
		}
	}
	x.vstart = max(now, m.lasts[fmt.Sprint(x.class(), x.line)])
	m.lasts[fmt.Sprint(x.class(), x.line)] = x.vstart + 1
}

// first is the first ready todo of x's class.
func (m *model) first(x *modelTodo) (first *modelTodo) {
	for _, t := range m.todos {
		if t.class() == x.class() && t.state == Ready && t.due && (first == nil || t.vstart < first.vstart) {
			first = t
		}
	}
	return first
}

// reclaim settles a lapsed lease.
func (t *modelTodo) reclaim() {
	cost := 0
	if t.beaten || t.free >= 3 {
		cost = 1
	}
	switch {
	case t.cancel || t.late:
		t.end("lapsed", "", Canceled)
	case cost == 1 && t.spent+1 >= modelBudget:
		t.end("lapsed", "", Failed)
	default:
		t.end("lapsed", "", Ready)
		t.spent += cost
		t.free += 1 - cost
	}
}

// end ends the attempt.
func (t *modelTodo) end(act, content string, next State) {
	t.version++
	t.ended[t.token] = modelEnd{act, content, next, t.version}
	t.state, t.token, t.lapsed, t.beaten = next, "", false, false
	t.due = true
}

// reap is what time has decided.
func (m *model) reap() {
	for _, t := range m.todos {
		if t.late && t.live() {
			if t.state == Leased {
				if !t.cancel {
					t.cancel = true
					t.version++
				}
			} else {
				t.state = Failed
				t.version++
			}
		}
	}
	for _, t := range m.todos {
		if t.state == Leased && t.lapsed {
			t.reclaim()
		}
	}
}

// machine runs the store and the model side by side.
type machine struct {
	k       *kit
	m       *model
	friends []endpoint.Caller
	workers []endpoint.Caller
	n       int
}

func TestModel_StoreAgreesWithTheReferenceModel(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	rapid.Check(t, func(t *rapid.T) {
		k := k.human(t)
		k.exec(`UPDATE queue SET max_attempts = $2 WHERE owner = $1`, k.owner, modelBudget)
		s := &machine{
			k: k, m: &model{paused: map[string]bool{}, keys: map[string]*modelTodo{}, served: map[string]int64{}, lasts: map[string]int64{}},
			friends: []endpoint.Caller{k.friend(wide(), "reviews", "builds"), k.friend(wide(), "reviews", "builds")},
			workers: []endpoint.Caller{k.home("reviews", "builds"), k.home("reviews")},
		}
		t.Repeat(map[string]func(*rapid.T){
			"":          s.agree,
			"create":    s.create,
			"claim":     s.claimNext,
			"claim one": s.claimOne,
			"heartbeat": s.heartbeat,
			"complete":  s.complete,
			"fail":      s.fail,
			"release":   s.release,
			"ask":       s.ask,
			"answer":    s.answer,
			"cancel":    s.cancel,
			"retry":     s.retry,
			"take back": s.takeBack,
			"lapse":     s.lapse,
			"due":       s.due,
			"late":      s.late,
			"reap":      s.reap,
			"pause":     s.pause,
		})
	})
}

// human is another human on the same database.
func (k *kit) human(t tester) *kit {
	c := *k
	c.t, c.owner = t, newID()
	c.newQueue("reviews")
	c.newQueue("builds")
	return &c
}

var ctx0 = context.Background()

func (s *machine) pick(t *rapid.T, name string, from func(*modelTodo) bool) *modelTodo {
	var all []*modelTodo
	for _, x := range s.m.todos {
		if from(x) {
			all = append(all, x)
		}
	}
	if len(all) == 0 {
		t.Skip("none")
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, name)]
}

func anyTodo(*modelTodo) bool { return true }

// agree compares every todo with the model.
func (s *machine) agree(t *rapid.T) {
	for _, x := range s.m.todos {
		st, err := s.k.store.Status(ctx0, s.friends[x.line], x.id, 0, nil)
		require.NoError(t, err)
		require.Equal(t, x.state, st.State, "state of %s", x.key)
		require.Equal(t, x.version, st.Version, "version of %s", x.key)
		require.Equal(t, x.attempt, st.Attempt, "attempt of %s", x.key)
		_, err = s.k.store.Status(ctx0, s.friends[1-x.line], x.id, 0, nil)
		requireCode(t, refusal.NotFound, err)
	}
}

func (s *machine) create(t *rapid.T) {
	line := rapid.IntRange(0, 1).Draw(t, "line")
	s.n++
	key := fmt.Sprintf("k%d", s.n)
	if len(s.m.todos) > 0 && rapid.IntRange(0, 3).Draw(t, "old key") == 0 {
		key = s.m.todos[rapid.IntRange(0, len(s.m.todos)-1).Draw(t, "key")].key
	}
	n := New{
		Queue:          rapid.SampledFrom([]string{"reviews", "builds"}).Draw(t, "queue"),
		Title:          rapid.SampledFrom([]string{"a", "b"}).Draw(t, "title"),
		IdempotencyKey: key, Priority: new(rapid.IntRange(4, 6).Draw(t, "priority")),
	}
	later := rapid.IntRange(0, 4).Draw(t, "later") == 0
	if later {
		n.NotBefore = new(time.Now().Add(time.Hour).UTC())
	}
	hasDeadline := rapid.IntRange(0, 3).Draw(t, "deadline") == 0
	if hasDeadline {
		n.Deadline = new(time.Now().Add(time.Hour).UTC())
	}
	out, err := s.k.store.Create(ctx0, s.friends[line], []New{n})
	require.NoError(t, err)
	if old := s.m.keys[fmt.Sprint(line, key)]; old != nil {
		if old.title == n.Title && old.queue == n.Queue && old.priority == *n.Priority && !later && !hasDeadline && !old.deadline && old.asked == "" {
			require.NoError(t, out[0].Err)
			require.Equal(t, Created{TodoID: old.id, State: old.state, Version: old.version, Deduplicated: true}, out[0].Value)
		} else {
			requireCode(t, refusal.Conflict, out[0].Err)
		}
		return
	}
	require.NoError(t, out[0].Err)
	x := &modelTodo{
		id: out[0].Value.TodoID, line: line, queue: n.Queue, key: key, title: n.Title, priority: *n.Priority,
		state: Ready, version: 1, due: !later, deadline: hasDeadline, ended: map[string]modelEnd{},
	}
	if later {
		x.asked = "later" // part of the content that a repeat is compared with
	}
	s.m.start(x)
	require.Equal(t, Created{TodoID: x.id, State: Ready, Version: 1}, out[0].Value)
	s.m.todos = append(s.m.todos, x)
	s.m.keys[fmt.Sprint(line, key)] = x
}

func (s *machine) taken(t *rapid.T, x *modelTodo, worker int, c Claimed) {
	require.Equal(t, x.id, c.TodoID, "order: wanted %s (priority %d, start %d)", x.key, x.priority, x.vstart)
	s.m.served[x.class()] = max(s.m.served[x.class()], x.vstart)
	x.state, x.token, x.worker, x.beaten, x.lapsed = Leased, c.LeaseToken, worker, false, false
	x.version++
	x.attempt++
	require.Equal(t, x.version, c.Version)
	require.Equal(t, x.attempt, c.Attempt)
	require.Len(t, c.PriorAttempts, len(x.ended))
	require.Len(t, c.Exchanges, x.exchanges)
	require.NotNil(t, c.FromFriend)
	require.Equal(t, x.title, c.FromFriend.Title)
}

// claimNext claims up to three from the worker's queues. What has lapsed is
// reclaimed on the way though no reaper ran.
func (s *machine) claimNext(t *rapid.T) {
	worker := rapid.IntRange(0, 1).Draw(t, "worker")
	queue := "reviews"
	if worker == 0 {
		queue = rapid.SampledFrom([]string{"reviews", "builds"}).Draw(t, "queue")
	}
	max := rapid.IntRange(1, 3).Draw(t, "max")
	got, err := s.k.store.ClaimNext(ctx0, s.workers[worker], ClaimNext{Queues: []string{queue}, Max: max})
	require.NoError(t, err)
	// What is ready is taken first; only a look that finds nothing goes on to the
	// lapsed. Those before the first ready are found as well, so compare as a set of
	// allowed continuations: settle lapsed ones when the store did.
	for _, c := range got {
		x := s.find(c.TodoID)
		if x.state == Leased && x.lapsed {
			x.reclaim()
		}
	}
	if len(got) == 0 && !s.m.paused[queue] {
		for _, x := range s.m.todos {
			if x.queue == queue && x.state == Leased && x.lapsed {
				x.reclaim()
			}
		}
		require.Nil(t, s.m.next([]string{queue}), "claim_next found nothing")
	}
	if s.m.paused[queue] {
		require.Empty(t, got)
		s.syncLapsed(t, queue)
		return
	}
	s.syncLapsed(t, queue)
	for _, c := range got {
		x := s.m.next([]string{queue})
		require.NotNil(t, x)
		s.taken(t, x, worker, c)
	}
	if len(got) < max && len(got) > 0 {
		require.Nil(t, s.m.next([]string{queue}), "fewer than asked for though there were more")
	}
}

func (s *machine) find(id uuid.UUID) *modelTodo {
	for _, x := range s.m.todos {
		if x.id == id {
			return x
		}
	}
	return nil
}

// syncLapsed lets the model notice those lapsed leases that the store has noticed:
// when that happens is not promised, what comes of it is.
func (s *machine) syncLapsed(t *rapid.T, queue string) {
	for _, x := range s.m.todos {
		if x.queue != queue || x.state != Leased || !x.lapsed {
			continue
		}
		st, err := s.k.store.Status(ctx0, s.friends[x.line], x.id, 0, nil)
		require.NoError(t, err)
		if st.Version != x.version {
			x.reclaim()
		}
	}
}

func (s *machine) claimOne(t *rapid.T) {
	x := s.pick(t, "todo", anyTodo)
	worker := rapid.IntRange(0, 1).Draw(t, "worker")
	c, err := s.k.store.Claim(ctx0, s.workers[worker], x.id, 0, "")
	if x.state == Leased && x.lapsed {
		x.reclaim()
	}
	switch {
	case worker == 1 && x.queue == "builds":
		requireCode(t, refusal.NotFound, err)
	case x.state == Ready && x.due && !x.late && !s.m.paused[x.queue]:
		require.NoError(t, err)
		s.taken(t, x, worker, c)
	default:
		requireCode(t, refusal.Conflict, err)
	}
}

// held draws a todo and a token: the current one, an old one, or none's.
func (s *machine) held(t *rapid.T) (x *modelTodo, worker endpoint.Caller, token string, current bool) {
	x = s.pick(t, "todo", func(x *modelTodo) bool { return x.attempt > 0 })
	worker = s.workers[0]
	if x.state == Leased && rapid.IntRange(0, 3).Draw(t, "current") > 0 {
		return x, worker, x.token, true
	}
	tokens := []string{uuid.NewString()}
	for old := range x.ended {
		tokens = append(tokens, old)
	}
	slices.Sort(tokens[1:])
	return x, worker, tokens[rapid.IntRange(0, len(tokens)-1).Draw(t, "token")], false
}

func (s *machine) heartbeat(t *rapid.T) {
	x, w, token, current := s.held(t)
	b := Beat{TodoID: x.id, LeaseToken: token}
	note := rapid.Bool().Draw(t, "note")
	if note {
		b.Progress = &Progress{Note: "on"}
	}
	out, err := s.k.store.Heartbeat(ctx0, w, []Beat{b})
	require.NoError(t, err)
	if !current {
		requireCode(t, refusal.LeaseLost, out[0].Err)
		return
	}
	x.beaten, x.lapsed = true, false
	if note {
		x.version++
	}
	require.NoError(t, out[0].Err)
	require.Equal(t, x.version, out[0].Value.Version)
	require.Equal(t, x.cancel, out[0].Value.CancelRequested)
}

// ends checks an ending: done now, repeated, or lost.
func (s *machine) ends(t *rapid.T, x *modelTodo, token string, current bool, act, content string, next func() State, got Changed, err error) {
	if current {
		require.NoError(t, err)
		to := next()
		x.end(act, content, to)
		require.Equal(t, Changed{TodoID: x.id, State: x.state, Version: x.version}, got)
		return
	}
	if old, ok := x.ended[token]; ok && old.act == act && old.content == content {
		require.NoError(t, err)
		require.Equal(t, Changed{TodoID: x.id, State: old.state, Version: old.version}, got)
		return
	}
	requireCode(t, refusal.LeaseLost, err)
}

func (s *machine) complete(t *rapid.T) {
	x, w, token, current := s.held(t)
	content := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "result")
	out, err := s.k.store.Complete(ctx0, w, []Completion{{TodoID: x.id, LeaseToken: token, Result: json.RawMessage(content)}})
	require.NoError(t, err)
	s.ends(t, x, token, current, "completed", content, func() State { return Done }, out[0].Value, out[0].Err)
}

func (s *machine) fail(t *rapid.T) {
	x, w, token, current := s.held(t)
	content := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "error")
	noRetry := rapid.IntRange(0, 4).Draw(t, "no retry") == 0
	now := rapid.Bool().Draw(t, "at once")
	f := Failure{TodoID: x.id, LeaseToken: token, Error: content, NoRetry: noRetry}
	if now {
		f.RetryAfter = new(time.Duration(0))
	}
	out, err := s.k.store.Fail(ctx0, w, []Failure{f})
	require.NoError(t, err)
	cost := false
	s.ends(t, x, token, current, "failed", fmt.Sprint(content, noRetry, now), func() State {
		switch {
		case noRetry || x.spent+1 >= modelBudget:
			return Failed
		case x.cancel || x.late:
			return Canceled
		}
		cost = true
		return Ready
	}, out[0].Value, out[0].Err)
	if cost {
		x.spent++
		x.due = now
	}
}

func (x *modelTodo) backTo(s State) State {
	if x.cancel || x.late {
		return Canceled
	}
	return s
}

func (s *machine) release(t *rapid.T) {
	x, w, token, current := s.held(t)
	out, err := s.k.store.Release(ctx0, w, []Return{{TodoID: x.id, LeaseToken: token}})
	require.NoError(t, err)
	s.ends(t, x, token, current, "released", "", func() State { return x.backTo(Ready) }, out[0].Value, out[0].Err)
}

func (s *machine) ask(t *rapid.T) {
	x, w, token, current := s.held(t)
	content := rapid.SampledFrom([]string{"who?", "why?"}).Draw(t, "question")
	got, err := s.k.store.Ask(ctx0, w, x.id, token, content)
	s.ends(t, x, token, current, "asked", content, func() State { return x.backTo(InputRequired) }, got, err)
	if current && x.state == InputRequired {
		x.exchanges++
		st, err := s.k.store.Status(ctx0, s.friends[x.line], x.id, 0, nil)
		require.NoError(t, err)
		require.Equal(t, content, st.Question.Text)
		x.question = st.Question.ID
	}
}

func (s *machine) answer(t *rapid.T) {
	x := s.pick(t, "todo", anyTodo)
	r := Reply{TodoID: x.id, Text: "so"}
	wrong := rapid.IntRange(0, 3).Draw(t, "wrong question") == 0
	if wrong {
		r.QuestionID = new(newID())
	} else if x.state == InputRequired && rapid.Bool().Draw(t, "name it") {
		r.QuestionID = &x.question
	}
	got, err := s.k.store.Answer(ctx0, s.friends[x.line], r)
	if wrong || x.state != InputRequired {
		requireCode(t, refusal.Conflict, err)
		return
	}
	require.NoError(t, err)
	x.state, x.due = Ready, true
	x.version++
	require.Equal(t, Changed{TodoID: x.id, State: Ready, Version: x.version}, got)
}

func (s *machine) cancel(t *rapid.T) {
	x := s.pick(t, "todo", anyTodo)
	var got Changed
	var err error
	if rapid.Bool().Draw(t, "by the human") {
		got, err = s.k.store.CancelOwn(ctx0, s.k.owner, x.id, "")
	} else {
		got, err = s.k.store.Cancel(ctx0, s.friends[x.line], x.id, "no more")
	}
	switch x.state {
	case Done, Failed:
		requireCode(t, refusal.Conflict, err)
		return
	case Leased:
		if !x.cancel {
			x.cancel = true
			x.version++
		}
	case Ready, InputRequired:
		x.state = Canceled
		x.version++
	}
	require.NoError(t, err)
	require.Equal(t, x.state, got.State)
	require.Equal(t, x.version, got.Version)
	require.True(t, *got.CancelRequested)
}

func (s *machine) retry(t *rapid.T) {
	x := s.pick(t, "todo", anyTodo)
	got, err := s.k.store.Retry(ctx0, s.k.owner, x.id)
	if x.state != Failed {
		requireCode(t, refusal.Conflict, err)
		return
	}
	require.NoError(t, err)
	first := int64(0)
	if head := s.m.first(x); head != nil {
		first = head.vstart
	}
	x.state, x.spent, x.free, x.due, x.cancel, x.late, x.vstart = Ready, 0, 0, true, false, false, first
	x.version++
	key := fmt.Sprint(x.class(), x.line)
	s.m.lasts[key] = max(s.m.lasts[key], first+1)
	require.Equal(t, Changed{TodoID: x.id, State: Ready, Version: x.version}, got)
}

func (s *machine) takeBack(t *rapid.T) {
	x := s.pick(t, "todo", anyTodo)
	got, err := s.k.store.ReleaseOwn(ctx0, s.k.owner, x.id)
	if x.state != Leased {
		requireCode(t, refusal.Conflict, err)
		return
	}
	require.NoError(t, err)
	x.end("taken back", "", x.backTo(Ready))
	require.Equal(t, Changed{TodoID: x.id, State: x.state, Version: x.version}, got)
}

func (s *machine) lapse(t *rapid.T) {
	x := s.pick(t, "todo", func(x *modelTodo) bool { return x.state == Leased })
	s.k.lapse(x.id)
	x.lapsed = true
}

func (s *machine) due(t *rapid.T) {
	x := s.pick(t, "todo", func(x *modelTodo) bool { return x.state == Ready && !x.due })
	s.k.due(x.id)
	require.NoError(t, s.k.store.promote(ctx0))
	x.due = true
}

func (s *machine) late(t *rapid.T) {
	x := s.pick(t, "todo", func(x *modelTodo) bool { return x.live() && x.deadline })
	s.k.exec(`UPDATE todo_live SET deadline = clock_timestamp() - interval '1 second' WHERE owner = $1 AND id = $2 AND deadline IS NOT NULL`, s.k.owner, x.id)
	s.k.exec(`UPDATE todo_timer SET at = clock_timestamp() - interval '1 second' WHERE owner = $1 AND todo = $2 AND what = 'deadline'`, s.k.owner, x.id)
	var late bool
	require.NoError(t, s.k.pool.QueryRow(ctx0, `SELECT coalesce(deadline <= clock_timestamp(), false) FROM todo_live WHERE owner = $1 AND id = $2`, s.k.owner, x.id).Scan(&late))
	x.late = late
}

func (s *machine) reap(t *rapid.T) {
	require.NoError(t, s.k.store.reap(ctx0))
	require.NoError(t, s.k.store.reapLapsed(ctx0))
	s.m.reap()
}

func (s *machine) pause(t *rapid.T) {
	queue := rapid.SampledFrom([]string{"reviews", "builds"}).Draw(t, "queue")
	to := !s.m.paused[queue]
	_, err := s.k.store.UpdateQueue(ctx0, s.k.owner, queue, QueuePatch{Paused: &to})
	require.NoError(t, err)
	s.m.paused[queue] = to
}
