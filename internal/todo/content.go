package todo

import (
	"sync"

	"github.com/google/uuid"
)

// content is what a claim hands out of a todo's row in table todo, which never
// changes.
type content struct {
	title, body string
	payload     *string
	friend      bool
	identity    string
	callsItself string
}

func (c *content) size() int { return 256 + len(c.title) + len(c.body) + textSize(c.payload) }

// contents remembers what was created here lately, so that a claim soon after need
// not read it again: the look-up of a todo in its partition is a good part of a claim.
// While claims find what they want here, their statements leave the content out, and
// one that does not is read afterwards; after a miss they bring it along again for a
// while.
type contents struct {
	mu       sync.Mutex
	now, old map[uuid.UUID]*content // two generations
	bytes    int                    // of now
	cold     int                    // claims that are to be found here until it is relied upon
}

const (
	contentBytes = 8 << 20 // a generation
	coldClaims   = 200
)

func newContents() *contents { return &contents{now: map[uuid.UUID]*content{}} }

// add remembers the content of a new todo.
func (c *contents) add(m *creation) {
	x := &content{title: m.title, body: m.body, payload: m.payload, friend: m.grant != nil, identity: m.identity, callsItself: m.callsItself}
	if x.size() > contentBytes/64 {
		return // better read where it is
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes += x.size(); c.bytes > contentBytes {
		c.old, c.now, c.bytes = c.now, map[uuid.UUID]*content{}, x.size()
	}
	c.now[m.id] = x
}

// forget lets go of what was not created after all.
func (c *contents) forget(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.now[id]; x != nil {
		c.bytes -= x.size()
		delete(c.now, id)
	}
	delete(c.old, id)
}

// get returns the content of a claimed todo, nil when it is not known, and learns from
// it whether claims can rely upon it.
func (c *contents) get(id uuid.UUID) *content {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.now[id]
	if x == nil {
		x = c.old[id]
	}
	switch {
	case x == nil:
		c.cold = coldClaims
	case c.cold > 0:
		c.cold--
	}
	return x
}

// warm reports whether claims can rely upon it.
func (c *contents) warm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cold == 0
}
