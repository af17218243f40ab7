package persona

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"switchboard/internal/postgres"
)

// Entry is one persona as a directory shows it, of this instance or another.
// What another instance says is a stranger's: bounded, and data.
type Entry struct {
	Slug        string       `json:"slug"`
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Card        string       `json:"card"` // URL of the A2A 1.0 card
	Skills      []EntrySkill `json:"skills"`
	Source      string       `json:"source"`   // public URL of the instance it was found at
	Verified    bool         `json:"verified"` // the card's signature is by a key of that instance
}

// EntrySkill is one skill of a card.
type EntrySkill struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// refreshEvery is how often configured directories are read again; keepFor is
// how long an answer stands while they cannot be reached.
const (
	refreshEvery = 10 * time.Minute
	keepFor      = 24 * time.Hour
)

// Directory finds personas: the listed ones of this instance, and those that the
// configured instances list. It is bounded: nothing is fetched but what the
// operator named and what stands on those very hosts.
type Directory struct {
	store     *Store
	publicURL string
	remotes   []*remote
	client    *http.Client
	log       *slog.Logger
}

// remote is another instance's catalog as it was read last.
type remote struct {
	url     string
	entries atomic.Pointer[[]Entry]
	read    time.Time // by Run alone
}

// NewDirectory returns the directory. remotes are public URLs of instances,
// without trailing slash; client fetches from them and must be guarded.
func NewDirectory(store *Store, publicURL string, remotes []string, client *http.Client, log *slog.Logger) *Directory {
	d := &Directory{store: store, publicURL: publicURL, client: client, log: log}
	remotes = slices.Sorted(slices.Values(remotes)) // elsewhere lists them in this order
	for _, url := range remotes {
		if url = strings.TrimSuffix(url, "/"); url != publicURL {
			d.remotes = append(d.remotes, &remote{url: url})
		}
	}
	return d
}

// The first letter of a cursor says which part of the list it goes on with.
const (
	hereCursor      = "h"
	elsewhereCursor = "e"
)

// Search finds personas whose slug, name or description contains the query,
// those of this instance first.
func (d *Directory) Search(ctx context.Context, query, cursor string, limit int) ([]Entry, string, error) {
	limit = page(limit)
	list := []Entry{}
	if rest, ok := strings.CutPrefix(cursor, hereCursor); ok || cursor == "" {
		ps, next, err := d.store.Catalog(ctx, query, rest, limit)
		if err != nil {
			return nil, "", err
		}
		for _, p := range ps {
			list = append(list, d.entry(p))
		}
		if next != "" {
			return list, hereCursor + next, nil
		}
		cursor = ""
	}
	bind := postgres.BindCursor("directory", query)
	after := []string{"", ""}
	if cursor != "" {
		var err error
		if after, err = postgres.DecodeCursor(bind, strings.TrimPrefix(cursor, elsewhereCursor), 2); err != nil {
			return nil, "", err
		}
	}
	for _, e := range d.elsewhere(query) {
		if e.Source < after[0] || e.Source == after[0] && e.Slug <= after[1] {
			continue
		}
		if len(list) == limit {
			last := list[len(list)-1]
			if last.Source == d.publicURL { // the page was full with this instance's own
				return list, elsewhereCursor + postgres.EncodeCursor(bind, "", ""), nil
			}
			return list, elsewhereCursor + postgres.EncodeCursor(bind, last.Source, last.Slug), nil
		}
		list = append(list, e)
	}
	return list, "", nil
}

func (d *Directory) entry(p Persona) Entry {
	e := Entry{
		Slug: p.Slug, Name: p.Name, Description: p.Description, Skills: []EntrySkill{}, Source: d.publicURL, Verified: true,
		Card: d.publicURL + "/a2a/" + p.Slug + "/.well-known/agent-card.json",
	}
	for _, s := range p.Skills() {
		e.Skills = append(e.Skills, EntrySkill{ID: s.ID, Name: s.Name, Description: s.Description})
	}
	return e
}

// elsewhere are the entries of other instances that match, by source and slug.
func (d *Directory) elsewhere(query string) []Entry {
	query = strings.ToLower(strings.TrimSpace(query))
	var list []Entry
	for _, r := range d.remotes {
		entries := r.entries.Load()
		if entries == nil {
			continue
		}
		for _, e := range *entries {
			if query == "" || strings.Contains(strings.ToLower(e.Slug+" "+e.Name+" "+e.Description), query) {
				list = append(list, e)
			}
		}
	}
	return list
}

// Run reads the configured directories now and then until ctx ends. One that
// cannot be read keeps its last answer for a day.
func (d *Directory) Run(ctx context.Context) error {
	for {
		for _, r := range d.remotes {
			entries, err := d.fetch(ctx, r.url)
			if err == nil {
				r.entries.Store(&entries)
				r.read = time.Now()
				continue
			}
			if ctx.Err() != nil {
				break // the select below ends it
			}
			d.log.WarnContext(ctx, "read a directory", "url", r.url, "error", err)
			if time.Since(r.read) > keepFor {
				r.entries.Store(nil)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(refreshEvery):
		}
	}
}
