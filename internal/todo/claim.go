package todo

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/endpoint"
	"switchboard/internal/refusal"
)

// Claimed is a todo under a lease of the caller's. A friend's words stand in
// FromFriend and nowhere else.
type Claimed struct {
	TodoID         uuid.UUID       `json:"todo_id"`
	Queue          string          `json:"queue"`
	State          State           `json:"state"`
	Version        int64           `json:"version"`
	LeaseToken     string          `json:"lease_token"`
	LeaseExpiresAt time.Time       `json:"lease_expires_at"`
	Attempt        int             `json:"attempt"` // counts claims
	Priority       int             `json:"priority"`
	Deadline       *time.Time      `json:"deadline,omitempty"`
	FromFriend     *FromFriend     `json:"from_friend,omitempty"`
	Title          string          `json:"title,omitempty"`
	Body           string          `json:"body,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	Exchanges      []Exchange      `json:"exchanges"`
	PriorAttempts  []PriorAttempt  `json:"prior_attempts"`
	Artifacts      []Artifact      `json:"artifacts"`

	more bool // exchanges, earlier attempts or artifacts are to be read
	bare bool // so is the content
}

// ClaimNext asks for the next todos.
type ClaimNext struct {
	Queues  []string // nil = all of the endpoint
	Max     int      // 0 = 1, at most 100
	Wait    time.Duration
	Lease   time.Duration // 0 = 300 s
	ClaimID string        // makes a repeat return the same leases
}

// demand is what one call wants to claim: the next of its queues, or one by id.
type demand struct {
	verdict
	auth   *authority
	queues []string // sorted
	max    int
	lease  time.Duration
	id     uuid.UUID // when one by id
	full   bool      // also look at what is due or lapsed, and skip nothing

	crowded bool // others were at its queues during the look

	taken  []Claimed
	weight int         // of the taken, in bytes
	lines  []uuid.UUID // of the taken, in order
	moves  []move      // of lapsed leases, found on the way
}

// Claim leases one todo. One that is not ready, not yet due, or in a paused queue
// is refused as a conflict.
func (s *Store) Claim(ctx context.Context, c endpoint.Caller, id uuid.UUID, lease time.Duration, claimID string) (Claimed, error) {
	lease, err := leaseLength(lease, defaultLease)
	if err != nil {
		return Claimed{}, err
	}
	w := &work{auth: authorityOf(c), size: itemSize}
	w.demand = &demand{auth: &w.auth, id: id, max: 1, lease: lease, queues: c.Endpoint.Scope.Queues}
	taken, err := s.take(ctx, w, claimID)
	if err != nil {
		return Claimed{}, err
	}
	if len(taken) == 0 {
		return Claimed{}, s.whyNot(ctx, w.auth, id)
	}
	return taken[0], nil
}

// ClaimNext leases the next todos, most urgent first, and waits for one if there is
// none. The list is empty when there is none in the end.
func (s *Store) ClaimNext(ctx context.Context, c endpoint.Caller, n ClaimNext) ([]Claimed, error) {
	lease, err := leaseLength(n.Lease, defaultLease)
	if err != nil {
		return nil, err
	}
	if err := checkWait(n.Wait); err != nil {
		return nil, err
	}
	if n.Max == 0 {
		n.Max = 1
	}
	if n.Max < 1 || n.Max > maxClaim {
		return nil, refusal.Invalid("max", "max must be from 1 to %d", maxClaim)
	}
	queues, err := claimQueues(c.Endpoint.Scope.Queues, n.Queues)
	if err != nil {
		return nil, err
	}
	auth := authorityOf(c)
	ask := func() *work {
		w := &work{auth: auth, size: itemSize}
		w.demand = &demand{auth: &w.auth, queues: queues, max: n.Max, lease: lease}
		return w
	}
	if n.Wait == 0 {
		return s.take(ctx, ask(), n.ClaimID)
	}
	look := func() ([]Claimed, error) { return s.take(context.WithoutCancel(ctx), ask(), n.ClaimID) }
	// Registered before looking: what becomes ready between a look and the wait for
	// the next wakes that wait.
	waiting := s.hub.waitForReady(auth, queues)
	defer waiting.end()
	if n.ClaimID == "" {
		waiting.ask = ask // a claim_id takes more than a statement
	}
	timer := time.NewTimer(n.Wait)
	defer timer.Stop()
	for {
		taken, err := look()
		if err != nil || len(taken) > 0 {
			waiting.found = len(taken) > 0
			if n.ClaimID != "" {
				return taken, err // a repeat of the call may have it by now
			}
			return s.unlessGone(ctx, auth, taken, err)
		}
		waiting.foundNothing()
		over := false
		select {
		case <-waiting.woken:
		case <-timer.C:
			over = true
		case <-s.hub.done:
			over = true
		case <-ctx.Done():
			over = true
		}
		if w := waiting.rise(); w != nil {
			taken, err := s.complement(context.WithoutCancel(ctx), auth.owner, w.demand.taken)
			return s.unlessGone(ctx, auth, taken, err)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case over:
			return []Claimed{}, nil
		}
	}
}

// unlessGone returns what was claimed, or gives it back when whoever waited for it has
// left meanwhile: it would be nobody's until the lease lapses.
func (s *Store) unlessGone(ctx context.Context, auth authority, taken []Claimed, err error) ([]Claimed, error) {
	if ctx.Err() == nil || len(taken) == 0 {
		return taken, err
	}
	w := &work{auth: auth}
	for _, c := range taken {
		e := &ending{auth: &w.auth, id: c.TodoID, act: actReleased, hash: digest([]byte(actReleased), []byte(goneReason)), reason: &goneReason}
		if err := e.setToken(c.LeaseToken); err != nil {
			return nil, err
		}
		w.endings = append(w.endings, e)
		w.size += itemSize
	}
	if err := s.do(context.WithoutCancel(ctx), w); err != nil {
		s.log.WarnContext(ctx, "give back what nobody waits for any more", "error", err)
	}
	return nil, ctx.Err()
}

var goneReason = "the worker left before it was told"

// took reports whether the todo was claimed.
func (d *demand) took(id uuid.UUID) bool {
	return slices.ContainsFunc(d.taken, func(c Claimed) bool { return c.TodoID == id })
}

// claimQueues are the asked queues, all of them the endpoint's, sorted.
func claimQueues(granted, asked []string) ([]string, error) {
	if asked == nil {
		asked = granted
	}
	if len(asked) == 0 {
		return nil, refusal.Invalid("queues", "queues must name at least one queue")
	}
	for _, q := range asked {
		if !slices.Contains(granted, q) {
			return nil, errNoQueue
		}
	}
	queues := slices.Clone(asked)
	slices.Sort(queues)
	return slices.Compact(queues), nil
}

// take claims, first what is ready where it was last found, once more if others were
// there at the same time, then with a look at everything. It never answers "none"
// without the latter.
func (s *Store) take(ctx context.Context, w *work, claimID string) ([]Claimed, error) {
	if claimID != "" {
		return s.takeOnce(ctx, w, claimID)
	}
	if d := w.demand; d.id == uuid.Nil && s.lanes.quiet(w.auth.owner, d.queues) {
		// A claim that takes nothing commits all the same, since it holds its caller's
		// row. Where there was nothing the last time it is cheaper to ask first; but many
		// at once are served better by one batch, which shares its looks and has a bound
		// for each owner.
		select {
		case s.glances <- struct{}{}:
			some, err := s.glance(ctx, w.auth, d.queues)
			<-s.glances
			if err != nil || !some {
				return []Claimed{}, err
			}
		default:
		}
	}
	if err := s.do(ctx, w); err != nil {
		return nil, err
	}
	for try := 0; len(w.demand.taken) == 0 && try < 4; try++ {
		if w.demand.full {
			// One may find only what others have locked: of several queues the next are
			// chosen before they are locked, and a claim of many leaves what is too heavy.
			if more, err := s.moreReady(ctx, w.demand); err != nil || !more {
				break
			}
		}
		// A look at everything is dear while somebody holds an old snapshot.
		w.demand.decided, w.demand.full = false, try > 0 || !w.demand.crowded
		if err := s.do(ctx, w); err != nil {
			return nil, err
		}
	}
	return s.complement(ctx, w.auth.owner, w.demand.taken)
}

// setContent puts a friend's words where they are labelled.
func (c *Claimed) setContent(x *content) {
	if x.friend {
		c.FromFriend = &FromFriend{Identity: x.identity, CallsItself: x.callsItself, Title: x.title, Body: x.body, Payload: rawJSON(x.payload)}
		return
	}
	c.Title, c.Body, c.Payload = x.title, x.body, rawJSON(x.payload)
}

func rawJSON(s *string) json.RawMessage {
	if s == nil {
		return nil
	}
	return json.RawMessage(*s)
}
