package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"switchboard/internal/friend"
	"switchboard/internal/human"
	"switchboard/internal/quote"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// message is what one notification says, before it is put into a channel's form.
// All text is ours but Quoted.
type message struct {
	ID       uuid.UUID
	At       time.Time // of the event
	Kind     string
	Headline string   // one line; the subject of an e-mail
	Lead     []string // paragraphs
	QuotedBy string   // who says what follows
	Quoted   string   // strangers' words, made visible
	ListHead string
	List     []string // fixed sentences
	Tail     []string
	Action   string // what the link is for
	Link     string
	Data     hookData
}

// How much of what strangers wrote a message shows; the page has all of it.
const (
	maxName   = 100
	maxWho    = 200
	maxReason = 2000
)

// compose says what n is about, to h. ok is false when it is no longer worth
// saying: a request that was decided meanwhile, a grant that has changed again.
func (s *Store) compose(ctx context.Context, n notification, h human.Human) (m message, ok bool, err error) {
	m = message{ID: n.ID, At: n.CreatedAt.UTC(), Kind: n.Kind}
	switch n.Kind {
	case kindTest:
		m.Headline = "Test notification from Switchboard"
		m.Lead = []string{"Notifications of " + s.host + " reach you here."}
		m.Action, m.Link = "Settings", s.o.PublicURL+"/settings"
		ok = true
	case kindDisabled:
		m.Headline = "Your webhook is switched off"
		m.Lead = []string{"It has failed for more than a day, or asked to be left alone, so nothing is sent there any more.",
			"Mend it, then send a test from the settings page: one success switches it on again."}
		m.Action, m.Link = "Settings", s.o.PublicURL+"/settings"
		ok = true
	case kindReceived:
		ok, err = s.composeReceived(ctx, n, &m)
	case kindDecided:
		ok, err = s.composeDecided(ctx, n, &m)
	case kindAsked:
		ok, err = s.composeAsked(ctx, n, &m)
	case kindChanged, kindEnding:
		ok, err = s.composeGrant(ctx, n, &m)
	}
	if errors.Is(err, refusal.New(refusal.NotFound, "")) {
		return message{}, false, nil // erased
	}
	if err != nil {
		return message{}, false, fmt.Errorf("say what the notification is about: %w", err)
	}
	m.Data.Text, m.Data.URL = m.Headline, m.Link
	return m, ok, nil
}

func (s *Store) composeReceived(ctx context.Context, n notification, m *message) (bool, error) {
	r, err := s.o.Friends.GetIncoming(ctx, n.Owner, orZero(n.RequestID))
	if err != nil || r.State != friend.Pending {
		return false, err
	}
	who, issuer := quote.Visible(r.Identity.Text(), maxWho), quote.Visible(r.Identity.Issuer, maxWho)
	m.Headline = fmt.Sprintf("Friend request for %s from %s", r.Persona, quote.Visible(r.Identity.Text(), 80))
	m.Lead = []string{fmt.Sprintf("%s, verified by %s, asks to hand work to your persona %s.", who, issuer, r.Persona)}
	if r.From.Name != "" {
		m.Lead = append(m.Lead, "The agent calls itself “"+unlink(quote.Visible(r.From.Name, maxName))+"”.")
	}
	m.QuotedBy, m.Quoted = "Their reason, in their words", quote.VisibleLines(r.Reason, maxReason, quote.Kept)
	m.ListHead, m.List = "It asks that its agent", sentences(r.Scope)
	m.Tail = []string{"Nothing is granted until you decide. The request waits until " + date(r.ExpiresAt) + "."}
	m.Action, m.Link = "Look at it and decide", s.o.PublicURL+"/inbox/requests/"+r.ID.String()
	m.Data = hookData{
		Persona: r.Persona, FriendRequest: &r.ID, State: string(r.State), ExpiresAt: moment(r.ExpiresAt), Scope: &r.Scope,
		From: &hookFrom{Identity: who, Issuer: issuer, CallsItself: quote.Visible(r.From.Name, maxName), Reason: m.Quoted},
	}
	return true, nil
}

func (s *Store) composeDecided(ctx context.Context, n notification, m *message) (bool, error) {
	r, err := s.o.Friends.GetIncoming(ctx, n.Owner, orZero(n.RequestID))
	if err != nil {
		return false, err
	}
	switch r.State {
	case friend.Approved:
		g, err := s.o.Friends.Grant(ctx, n.Owner, r.GrantID)
		if err != nil {
			return false, err
		}
		m.Headline = r.Persona + " approved your friend request"
		m.ListHead, m.List = "Your agent", sentences(g.Approved)
		m.Tail = []string{"This lasts until " + date(g.ExpiresAt) + "."}
		m.Action, m.Link = "See the grant", s.o.PublicURL+"/friends/"+g.ID.String()
		m.Data.Grant, m.Data.Scope, m.Data.ExpiresAt = &g.ID, &g.Approved, moment(g.ExpiresAt)
	case friend.Declined:
		m.Headline = r.Persona + " declined your friend request"
		m.Action, m.Link = "See your requests", s.o.PublicURL+"/friends"
	case friend.RequestExpired:
		m.Headline = "Your friend request to " + r.Persona + " expired"
		m.Lead = []string{"Nobody decided upon it in time. You may ask again."}
		m.Action, m.Link = "See your requests", s.o.PublicURL+"/friends"
	default:
		return false, nil
	}
	if r.From.Name != "" {
		m.Lead = append([]string{"You asked as “" + unlink(quote.Visible(r.From.Name, maxName)) + "” at " + s.host + "."}, m.Lead...)
	}
	if r.Note != "" {
		m.QuotedBy, m.Quoted = "Their note, in their words", quote.VisibleLines(r.Note, maxReason, quote.Kept)
		m.Data.Note = m.Quoted
	}
	m.Data.Persona, m.Data.FriendRequest, m.Data.State = r.Persona, &r.ID, string(r.State)
	return true, nil
}

func (s *Store) composeGrant(ctx context.Context, n notification, m *message) (bool, error) {
	g, err := s.o.Friends.Grant(ctx, n.Owner, orZero(n.GrantID))
	if err != nil || string(g.State) != n.State || n.ExpiresAt != nil && !sameMoment(g.ExpiresAt, *n.ExpiresAt) {
		return false, err // what came after has a notification of its own
	}
	subject := "Your grant from " + g.Persona // to the requester
	if n.Side == owner {
		subject = fmt.Sprintf("The grant of %s on %s", quote.Visible(g.Identity.Text(), 80), g.Persona)
	}
	end := date(g.ExpiresAt)
	if n.Kind == kindEnding {
		m.Headline = subject + " ends on " + end
		m.Tail = []string{"To go on, ask again and name this grant as the one to supersede: the line goes on, with its todos."}
		if n.Side == owner {
			m.Tail = []string{"It ends by itself. If it is to go on, your friend asks again and you approve again."}
		}
	} else {
		m.Headline, m.Tail = subject+" "+changes(n.Event, g.State), nil
		if g.State == friend.GrantActive {
			m.ListHead, m.List = "Now the agent", sentences(g.Scope)
			m.Tail = []string{"This lasts until " + end + "."}
		}
	}
	if g.From.Name != "" {
		m.Lead = []string{"The agent calls itself “" + unlink(quote.Visible(g.From.Name, maxName)) + "”."}
	}
	m.Action, m.Link = "See the grant", s.o.PublicURL+"/friends/"+g.ID.String()
	m.Data = hookData{
		Persona: g.Persona, Grant: &g.ID, FriendRequest: &g.RequestID, State: string(g.State), Event: n.Event,
		ExpiresAt: moment(g.ExpiresAt), Scope: &g.Scope, Side: string(n.Side),
	}
	return true, nil
}

// sameMoment allows for what PostgreSQL rounds away.
func sameMoment(a, b time.Time) bool { return a.Sub(b).Abs() < time.Millisecond }

// changes says what happened to a grant.
func changes(event string, state friend.GrantState) string {
	switch event {
	case "grant.narrowed":
		return "was narrowed"
	case "grant.paused":
		return "was paused"
	case "grant.resumed":
		return "goes on"
	case "grant.revoked":
		return "was revoked"
	case "grant.left":
		return "was ended by your friend"
	}
	return "is now " + string(state)
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// hookData is the member data of a webhook's body. Members named from, note and
// question hold what others wrote.
type hookData struct {
	Text          string       `json:"text"`
	URL           string       `json:"url"` // the page, for a signed-in human
	Persona       string       `json:"persona,omitempty"`
	FriendRequest *uuid.UUID   `json:"friend_request_id,omitempty"`
	Grant         *uuid.UUID   `json:"grant_id,omitempty"`
	Side          string       `json:"side,omitempty"` // of a grant: owner or requester
	State         string       `json:"state,omitempty"`
	Event         string       `json:"event,omitempty"`
	ExpiresAt     *time.Time   `json:"expires_at,omitempty"`
	Scope         *scope.Scope `json:"scope,omitempty"`
	From          *hookFrom    `json:"from,omitempty"`
	Note          string       `json:"note,omitempty"`
	Queue         string       `json:"queue,omitempty"`
	Todo          *uuid.UUID   `json:"todo_id,omitempty"`
	Question      string       `json:"question,omitempty"`
}

// hookFrom is who asks, and what they say of themselves.
type hookFrom struct {
	Identity    string `json:"identity"`
	Issuer      string `json:"issuer"`
	CallsItself string `json:"calls_itself,omitempty"`
	Reason      string `json:"reason"`
}
