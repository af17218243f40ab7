package persona

import (
	"fmt"
	"strings"

	"switchboard/internal/scope"
)

// Skill is an entry of the card's list of skills, for A2A's AgentSkill.
type Skill struct {
	ID, Name, Description string
	Tags, Examples        []string
}

// Skills says what friends may ask for, one skill an offer. It reads the offers
// and nothing else, so that a card cannot claim what nobody may have.
func (p Persona) Skills() []Skill {
	skills := make([]Skill, 0, len(p.Offers))
	nth := map[string]int{}
	for _, o := range p.Offers {
		id := o.Queue
		if nth[o.Queue]++; nth[o.Queue] > 1 {
			id = fmt.Sprintf("%s.%d", o.Queue, nth[o.Queue]) // no queue's name has a dot
		}
		skills = append(skills, skillOf(id, o))
	}
	return skills
}

func skillOf(id string, o scope.Offer) Skill {
	l := o.Full()
	s := Skill{ID: id, Name: "Work in " + o.Queue, Tags: []string{"todo", o.Queue}, Examples: []string{}}
	var may []string
	for _, v := range scope.Verbs() {
		if !offers(o, v) {
			continue
		}
		s.Tags = append(s.Tags, string(v))
		switch v {
		case scope.CreateFor:
			s.Name = "Take work in " + o.Queue
			may = append(may, fmt.Sprintf("add todos to %s (%s: %d open at once, %d an hour, payloads up to %d bytes, priority up to %d, start up to %d days ahead)",
				o.Queue, v, l.MaxOpen, l.PerHour, l.MaxPayloadBytes, l.MaxPriority, l.MaxDelayDays))
			s.Examples = append(s.Examples, fmt.Sprintf("Once befriended: %s with queue %q, a title and an idempotency_key.", v, o.Queue))
		case scope.TodoStatus:
			may = append(may, fmt.Sprintf("follow a todo to its result (%s)", v))
		case scope.ListCreated:
			may = append(may, fmt.Sprintf("list the todos that they created (%s)", v))
		case scope.Answer:
			may = append(may, fmt.Sprintf("answer a worker's question (%s)", v))
		case scope.CancelTodo:
			may = append(may, fmt.Sprintf("cancel a todo (%s)", v))
		}
	}
	s.Description = fmt.Sprintf("Friends may %s, for up to %d days from approval. Ask for friendship first; a person decides. Work is handed over through MCP tools, never over A2A.",
		strings.Join(may, "; "), l.ExpiresInDays)
	return s
}

func offers(o scope.Offer, v scope.Verb) bool {
	for _, has := range o.Verbs {
		if has == v {
			return true
		}
	}
	return false
}
