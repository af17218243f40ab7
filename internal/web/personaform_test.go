package web_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"switchboard/internal/refusal"
	"switchboard/internal/todo"
)

func TestPersona_AllThatIsWrongIsToldAtOnceAndNothingIsMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.queues = []todo.Queue{{Name: "inbox"}}
	b.signIn("bob", "/")
	f := url.Values{
		"once": {uuid.NewString()}, "agent_id": {""}, "new_agent": {strings.Repeat("x", 101)}, "slug": {"taken"}, "name": {" "},
		"description": {strings.Repeat("d", 2001)}, "prompt": {""}, "new_queue": {"Not A Queue"}, "visibility": {"listed"}, "who": {"issuers"},
		"offers": {"2"}, "offer.0.queue": {""}, "offer.0.verbs": {"create_for"}, "offer.0.max_priority": {"12"}, "offer.0.max_open": {""},
		"offer.1.queue": {""}, "do": {"save"},
	}
	a := b.post("/personas/new", f)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	has(t, a.body, "nothing was made")
	for id, says := range map[string]string{
		"agent_id": "Name must have at most 100 characters.", "slug": "The address taken is taken.", "name": "Name must not be empty.",
		"description": "Description must have at most 2000 characters.", "new_queue": "A queue’s name has letters", "who": "Choose at least one provider",
		"offer.0.max_priority": "From 0 to 9.", "offer.1.queue": "Tick at least one thing",
	} {
		says = strings.ReplaceAll(says, "’", "&#39;")
		require.Regexp(t, `id="`+regexp.QuoteMeta(id)+`-wrong">`+regexp.QuoteMeta(says), a.body, id)
	}
	has(t, a.body, "8 things are to mend")
	for _, typed := range []string{strings.Repeat("x", 101), `value="Not A Queue"`, `value="taken"`, strings.Repeat("d", 2001)} {
		has(t, a.body, typed)
	}
	for _, target := range regexp.MustCompile(`<li><a href="#([^"]+)">`).FindAllStringSubmatch(a.body, -1) {
		has(t, a.body, `id="`+target[1]+`"`, "every link leads somewhere")
	}
	require.Empty(t, b.agents)
	require.Empty(t, b.personas)
	require.Len(t, b.queues, 1)
}

func TestPersona_StaleFormMakesNoQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	had := len(b.queues)
	f := url.Values{
		"version": {"1"}, "name": {"Reviewer"}, "description": {""}, "prompt": {""}, "new_queue": {"fresh"}, "visibility": {"listed"}, "who": {"anyone"},
		"offers": {"1"}, "offer.0.queue": {""}, "offer.0.verbs": {"create_for"}, "do": {"save"},
	}
	a := b.post("/personas/"+b.personas[0].ID.String(), f)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	has(t, a.body, "changed elsewhere")
	has(t, a.body, `name="version" value="2"`)
	has(t, a.body, `value="fresh"`)
	require.Len(t, b.queues, had)

	f.Set("version", "2")
	b.refuse = refusal.New(refusal.PreconditionFailed, "it has changed since that version")
	has(t, b.post("/personas/"+b.personas[0].ID.String(), f).body, "changed elsewhere")
	require.Equal(t, "fresh", b.queues[len(b.queues)-1].Name)
	has(t, b.post("/personas/new", url.Values{"once": {uuid.NewString()}, "agent_id": {b.agents[0].ID.String()}, "new_agent": {"another"}, "name": {"x"}, "slug": {"x"}, "offers": {"0"}, "visibility": {"listed"}, "who": {"anyone"}}).body,
		"Either choose an agent")
}

// TestPersona_ForgedFormMakesNothing: what no browser of ours sends is refused with
// nothing left over.
func TestPersona_ForgedFormMakesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill()
	b.signIn("bob", "/")
	agents, personas, queues := len(b.agents), len(b.personas), len(b.queues)
	base := func() url.Values {
		return url.Values{
			"once": {uuid.NewString()}, "new_agent": {"mole"}, "slug": {"mole"}, "name": {"Mole"}, "new_queue": {"moles"}, "visibility": {"listed"}, "who": {"anyone"},
			"offers": {"1"}, "offer.0.queue": {""}, "offer.0.verbs": {"create_for"},
		}
	}
	for what, change := range map[string]func(url.Values){
		"a queue of nobody's":      func(f url.Values) { f["queues"] = []string{"nobodys"} },
		"a thousand queues":        func(f url.Values) { f["queues"] = strings.Split(strings.Repeat("q,", 999)+"q", ",") },
		"inbox":                    func(f url.Values) { f["queues"] = []string{"inbox"} },
		"more offers than a form":  func(f url.Values) { f.Set("offers", "99999999") },
		"a verb that there is not": func(f url.Values) { f["offer.0.verbs"] = []string{"create_for", "approve"} },
		"a limit of another world": func(f url.Values) { f.Set("offer.0.max_open", "99999999999999999999") },
		"controls in a name":       func(f url.Values) { f.Set("name", "a\u0000b") },
		"an agent that is no id":   func(f url.Values) { f.Set("agent_id", "x"); f.Del("new_agent") },
		"a visibility of its own":  func(f url.Values) { f.Set("visibility", "secret") },
	} {
		f := base()
		change(f)
		a := b.post("/personas/new", f)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, what)
		has(t, a.body, "to mend", what)
		require.Len(t, b.agents, agents, what)
		require.Len(t, b.personas, personas, what)
		require.Len(t, b.queues, queues, what)
	}
	// Twice at once is once.
	f := base()
	done := make(chan string, 2)
	for range 2 {
		g := url.Values{}
		for k, v := range f {
			g[k] = v
		}
		go func() { done <- b.post("/personas/new", g).to() }()
	}
	first, second := <-done, <-done
	require.Contains(t, first+second, "done=again")
	require.Contains(t, first+second, "done=created")
	require.Len(t, b.personas, personas+1)
}
