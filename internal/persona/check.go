package persona

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"switchboard/internal/refusal"
	"switchboard/internal/scope"
)

// Bounds of what an owner may write.
const (
	MaxName        = 100      // characters
	MaxDescription = 2000     // characters
	MaxPrompt      = 16 << 10 // bytes
	MaxOffers      = 64
	MaxIssuers     = 20
)

const inbox = "inbox" // for humans only

// checkLine refuses what is no single line of at most most characters.
func checkLine(field, text string, most int) error {
	if strings.TrimSpace(text) == "" {
		return refusal.Invalid(field, "%s must not be empty", field)
	}
	if err := checkText(field, text, most); err != nil {
		return err
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return refusal.Invalid(field, "%s must be one line without control characters", field)
	}
	return nil
}

// checkText refuses more than most characters, what is no UTF-8, and control
// characters other than tab and line break (PostgreSQL has no NUL).
func checkText(field, text string, most int) error {
	if !utf8.ValidString(text) {
		return refusal.Invalid(field, "%s must be UTF-8", field)
	}
	if utf8.RuneCountInString(text) > most {
		return refusal.Invalid(field, "%s must have at most %d characters", field, most)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) }) {
		return refusal.Invalid(field, "%s must not have control characters", field)
	}
	return nil
}

// check refuses a persona that must not be stored; whether its queues exist is
// asked elsewhere.
func (p Persona) check() error {
	if wrong := p.problems(); len(wrong) > 0 {
		return wrong[0]
	}
	return nil
}

// problems are all that is wrong with a persona, at most one a member.
func (p Persona) problems() []error {
	var wrong []error
	look := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	if !scope.QueueName(p.Slug) {
		look(refusal.Invalid("slug", "slug must be of [a-z0-9-]{1,63}"))
	}
	look(checkLine("name", p.Name, MaxName))
	look(checkText("description", p.Description, MaxDescription))
	if len(p.Prompt) > MaxPrompt {
		look(refusal.Invalid("prompt", "prompt must have at most %d bytes", MaxPrompt))
	} else {
		look(checkText("prompt", p.Prompt, MaxPrompt))
	}
	switch p.Visibility {
	case Listed, Unlisted, Off:
	default:
		look(refusal.Invalid("visibility", "visibility is listed, unlisted or off"))
	}
	look(checkQueues(p.Queues))
	look(checkOffers(p.Offers, p.Queues))
	look(p.WhoMayAsk.check())
	return wrong
}

func checkQueues(queues []string) error {
	if len(queues) > scope.MaxQueues {
		return refusal.Invalid("queues", "queues names more than %d queues", scope.MaxQueues)
	}
	for i, q := range queues {
		switch {
		case !scope.QueueName(q):
			return refusal.Invalid("queues", "queues[%d] is no queue name ([a-z0-9-]{1,63})", i)
		case q == inbox:
			return refusal.Invalid("queues", "inbox is for humans only")
		case slices.Contains(queues[:i], q):
			return refusal.Invalid("queues", "queues names %s twice", q)
		}
	}
	return nil
}

func checkOffers(offers []scope.Offer, queues []string) error {
	if len(offers) > MaxOffers {
		return refusal.Invalid("offers", "there are more than %d offers", MaxOffers)
	}
	for i, o := range offers {
		if err := o.Check(); err != nil {
			e := refusal.From(err)
			return refusal.Invalid("offers", "offers[%d]: %s", i, e.Message)
		}
		if !slices.Contains(queues, o.Queue) {
			return refusal.Invalid("offers", "offers[%d] is on queue %s, which the persona does not work", i, o.Queue)
		}
	}
	return nil
}

func (w WhoMayAsk) check() error {
	const field = "who_may_ask"
	switch {
	case w.Nobody && w.Issuers != nil:
		return refusal.Invalid(field, "who_may_ask is either nobody or a list of issuers")
	case w.Nobody || w.Issuers == nil:
		return nil
	case len(w.Issuers) == 0:
		return refusal.Invalid(field, "who_may_ask names no issuer; say \"nobody\" to take no requests")
	case len(w.Issuers) > MaxIssuers:
		return refusal.Invalid(field, "who_may_ask names more than %d issuers", MaxIssuers)
	}
	for i, issuer := range w.Issuers {
		if err := checkLine(field, issuer, 500); err != nil {
			return err
		}
		if slices.Contains(w.Issuers[:i], issuer) {
			return refusal.Invalid(field, "who_may_ask names %s twice", issuer)
		}
	}
	return nil
}
