package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"switchboard/internal/persona"
	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// typedPersona is what the form of a persona says, and what is to be made along
// with it.
type typedPersona struct {
	persona.Spec
	Agent string // the name of a new one, "" for none
	Queue string // the name of a new one, "" for none
}

// readPersona reads the form and marks all that is wrong with it, at once.
func (v *visit) readPersona(f *form, old *persona.Persona) (typedPersona, error) {
	typed := typedPersona{Spec: persona.Spec{
		Slug: strings.TrimSpace(f.Get("slug")), Name: strings.TrimSpace(f.Get("name")),
		Description: strings.TrimSpace(f.Get("description")), Prompt: f.Get("prompt"),
		Queues: slices.Clone(f.Values["queues"]), Visibility: persona.Visibility(f.Get("visibility")),
	}}
	if err := v.readNewQueue(f, &typed); err != nil {
		return typed, err
	}
	readWho(f, &typed.WhoMayAsk)
	readOffers(f, &typed)
	for _, err := range typed.Problems() {
		e := refusal.From(err)
		// Offers are marked row by row already, where they are; slug and agent cannot change.
		if e.Field == "offers" && f.wrongWithin("offer.") || e.Field == "slug" && old != nil || e.Field == "who_may_ask" && f.Error("who") != "" || e.Field == "queues" && f.Error("new_queue") != "" {
			continue
		}
		if err := f.refused(err, personaFields); err != nil {
			return typed, err
		}
	}
	if err := v.checkQueues(f, typed); err != nil {
		return typed, err
	}
	if old != nil {
		typed.AgentID = old.AgentID
		return typed, nil
	}
	if err := v.readAgent(f, &typed); err != nil {
		return typed, err
	}
	if f.Error("slug") == "" {
		taken, err := v.Personas.SlugTaken(v.r.Context(), v.owner(), typed.Slug)
		if err != nil {
			return typed, err
		}
		if taken {
			f.wrong("slug", "the address "+typed.Slug+" is taken")
		}
	}
	return typed, nil
}

// personaFields leads from members of a persona to fields of its form.
var personaFields = map[string]string{"who_may_ask": "who", "agent_name": "new_agent"}

// readNewQueue takes the queue that the form names as new into the persona's. One
// that is there already is simply meant.
func (v *visit) readNewQueue(f *form, typed *typedPersona) error {
	name := strings.TrimSpace(f.Get("new_queue"))
	switch {
	case name == "":
		return nil
	case !scope.QueueName(name):
		f.wrong("new_queue", "a queue's name has letters a to z, digits and hyphens, 63 at most")
		return nil
	case name == "inbox":
		f.wrong("new_queue", "inbox is for you alone; name another queue")
		return nil
	}
	err := v.Todos.QueuesExist(v.r.Context(), v.owner(), []string{name})
	switch refusal.CodeOf(err) {
	case "":
	case refusal.InvalidArgument:
		typed.Queue = name
	default:
		return err
	}
	if !slices.Contains(typed.Queues, name) {
		typed.Queues = append(typed.Queues, name)
	}
	return nil
}

// checkQueues looks for the queues that are to be there already.
func (v *visit) checkQueues(f *form, typed typedPersona) error {
	if f.Error("queues") != "" || f.Error("new_queue") != "" {
		return nil
	}
	there := slices.DeleteFunc(slices.Clone(typed.Queues), func(q string) bool { return q == typed.Queue })
	if err := v.Todos.QueuesExist(v.r.Context(), v.owner(), there); err != nil {
		return f.refused(err, nil)
	}
	return nil
}

// readAgent takes the agent that was chosen or named.
func (v *visit) readAgent(f *form, typed *typedPersona) error {
	chosen, name := f.Get("agent_id"), strings.TrimSpace(f.Get("new_agent"))
	switch {
	case chosen != "" && name != "":
		f.wrong("agent_id", "either choose an agent, or choose “a new one” and name it")
	case chosen != "":
		var err error
		if typed.AgentID, err = uuid.Parse(chosen); err != nil {
			f.wrong("agent_id", "choose an agent, or name a new one")
		}
	case name == "":
		f.wrong("agent_id", "choose an agent, or name a new one")
	default:
		if err := persona.CheckAgent(name, ""); err != nil {
			return f.refused(err, map[string]string{"name": "new_agent"})
		}
		typed.Agent = name
	}
	return nil
}

func readWho(f *form, who *persona.WhoMayAsk) {
	switch f.Get("who") {
	case "nobody":
		who.Nobody = true
	case "issuers":
		who.Issuers = append([]string{}, f.Values["issuers"]...)
		if len(who.Issuers) == 0 {
			f.wrong("who", "choose at least one provider, or nobody")
		}
	}
}

func readOffers(f *form, typed *typedPersona) {
	fresh := strings.TrimSpace(f.Get("new_queue"))
	for n := range offerCount(*f) {
		row := offerRow{N: n}
		o := scope.Offer{Queue: f.Get(row.Field("queue"))}
		if o.Queue == "" {
			o.Queue = fresh // "the new queue above"
		}
		for _, verb := range f.Values[row.Field("verbs")] {
			o.Verbs = append(o.Verbs, scope.Verb(verb))
		}
		for _, l := range limits {
			field := row.Field(l.Name)
			n := f.integer(field)
			*l.part(&o.Limits) = n
			if n != nil && (*n < l.Min || *n > l.Max) {
				f.wrong(field, fmt.Sprintf("from %s to %s", number(l.Min), number(l.Max)))
			}
		}
		here := fmt.Sprintf("offer.%d", n)
		switch {
		case o.Queue == "":
			f.wrong(here, "choose the queue that this offer is for, or name a new one above; or remove the offer")
		case len(o.Verbs) == 0:
			f.wrong(here, "tick at least one thing that friends may do, or remove the offer")
		default:
			if err := o.Check(); err != nil && !f.wrongWithin(here+".") && f.Error("new_queue") == "" {
				f.wrong(here, refusal.From(err).Message)
			}
			if !slices.Contains(typed.Queues, o.Queue) && o.Queue != fresh {
				// An offer on a queue means that the persona works it.
				typed.Queues = append(typed.Queues, o.Queue)
				f.Values["queues"] = append(f.Values["queues"], o.Queue)
			}
		}
		typed.Offers = append(typed.Offers, o)
	}
}

// makeQueue makes the queue that the form names as new, once all else is known to
// be right: nothing that is made here can be left over by a form that was refused.
func (v *visit) makeQueue(f *form, typed typedPersona) error {
	if typed.Queue == "" {
		return nil
	}
	_, err := v.Todos.CreateQueue(v.r.Context(), v.owner(), typed.Queue, "")
	switch refusal.CodeOf(err) {
	case "", refusal.Conflict: // made meanwhile, in another tab
		return nil
	case refusal.QuotaExceeded:
		f.wrong("new_queue", refusal.From(err).Message)
		return nil
	}
	return err
}

// mark is one thing that is wrong with a form, and where.
type mark struct{ ID, Label, Text string }

// marks lists what is wrong with a persona's form from top to bottom.
func marks(f form) []mark {
	var out []mark
	add := func(field, id, label string) {
		if text := f.Error(field); text != "" {
			out = append(out, mark{id, label, text})
		}
	}
	agent := "agent_id"
	if f.Error("new_agent") != "" {
		agent = "new_agent"
	}
	add(agent, "new_agent", "Agent")
	for _, x := range []mark{{"slug", "Address", ""}, {"name", "Name", ""}, {"description", "What it does", ""}, {"prompt", "Prompt", ""}, {"queues", "Queues", ""}, {"new_queue", "New queue", ""}, {"offers", "Offers", ""}} {
		add(x.ID, x.ID, x.Label)
	}
	for n := range offerCount(f) {
		row := offerRow{N: n}
		label := fmt.Sprintf("Offer %d", n+1)
		add(fmt.Sprintf("offer.%d", n), row.Field("queue"), label)
		for _, l := range limits {
			add(row.Field(l.Name), row.Field(l.Name), label+", "+strings.ToLower(l.Label[:1])+l.Label[1:])
		}
	}
	add("visibility", "vis-listed", "Visibility")
	add("who", "who-anyone", "Who may ask")
	return out
}
